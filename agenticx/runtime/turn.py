"""The mutable state of one running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from agenticx.attachments import check_attachments
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError
from agenticx.logs import bind_ids, get_logger
from agenticx.messages import ToolCall, ToolMessage, UserMessage, new_id
from agenticx.runtime.artifact_events import ArtifactEvents
from agenticx.runtime.background_tasks import BackgroundTasks
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.budgets.turn_usage import TurnUsage
from agenticx.runtime.budgets.work_clock import WorkClock
from agenticx.runtime.channel import Channel
from agenticx.runtime.child_turns import ChannelChildTurns, ChildTurns, ChildTurnWriter, RunningChildren
from agenticx.runtime.events import EVENT_CLASSES, LOGGED_EVENTS, Event, EventType, TurnState
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.hooks import HookContext
from agenticx.runtime.interrupts import InterruptReason, Interrupts
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.polling import PollBackoff
from agenticx.runtime.resume import CallJournal, ResumedRequest, ResumePoint
from agenticx.runtime.session import Session
from agenticx.runtime.steering import Steering
from agenticx.runtime.structured_output import MAX_REPAIRS, TurnOutput
from agenticx.runtime.turn_agent import ToolResult, TurnAgent, TurnAgents
from agenticx.runtime.turn_context import OnExhausted, TurnContext
from agenticx.runtime.turn_history import TurnHistory
from agenticx.runtime.turn_lineage import TurnLineage
from agenticx.runtime.turn_log import TurnLog
from agenticx.runtime.turn_permissions import TurnPermissions
from agenticx.runtime.turn_sources import TurnSources
from agenticx.settings import Settings
from agenticx.tools.registry import Toolbox

__all__ = [
    "CURRENT_TURN",
    "Turn",
    "attachment_data",
    "current_turn",
]


_log = get_logger(__name__)

CURRENT_TURN: ContextVar[Turn | None] = ContextVar("agenticx_turn", default=None)
"""The turn in which the code runs."""


def current_turn() -> Turn | None:
    """Return the turn in which the code runs, for example a tool's; None outside of turns.

    Code in another event loop, in a thread that a turn started, is outside: turns are not thread-safe.
    """
    turn, loop = CURRENT_TURN.get(), None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    return turn if turn is None or loop in (None, turn.event_loop) else None


@dataclass(slots=True, kw_only=True)
class Turn:
    """One user message and its processing up to the terminal event.

    Its events are emitted by `emit`, `emit_deltas` and `artifact_events`.
    """

    session: Session
    context: TurnContext = field(default_factory=TurnContext)
    lineage: TurnLineage = field(init=False, repr=False)
    id: str = field(init=False)
    session_id: str = field(init=False)
    """The id of the root turn's session, whose log has the events of all child turns."""
    settings: Settings = field(repr=False)
    clock: Clock
    event_loop: asyncio.AbstractEventLoop | None = None
    """The event loop that runs the turn."""

    agent: TurnAgent
    """The acting agent. `agent_id` and the gate change with it."""
    agent_id: str = field(init=False)
    gate: InitVar[ConfirmGate]
    """The gate for agents without one of their own."""
    permissions: TurnPermissions = field(init=False, repr=False)
    agents: TurnAgents = field(repr=False)
    """The agents to which calls can hand off."""
    change: ToolResult = field(default_factory=ToolResult)
    """The result of this round's call that ends the turn, or hands off to an agent that acts from the next round on."""
    calling_replies: set[str] = field(default_factory=set[str])
    """The ids of the replies in which the acting agent has made calls."""

    output: TurnOutput
    max_rounds: int
    on_exhausted: OnExhausted
    round: int = 0
    state: TurnState = "idle"
    last_input_tokens: int | None = None
    last_text: str = ""
    answering_model: str | None = None
    """The name of the model that gave the last reply, which may be a fallback."""
    reminded_of_tools: bool = False
    overflowed_in_reply: bool = False
    """True if the context window overflowed after a part of the reply was shown."""

    loop_detector: LoopDetector
    poll_backoff: PollBackoff = field(default_factory=PollBackoff)
    read_only_calls: set[str] = field(default_factory=set[str])
    """The ids of the round's calls whose command seems to change nothing, though their tool may."""
    deps: Any = field(init=False, repr=False)
    """The object that the application gave the tools of this turn, else of its nearest ancestor with one."""
    journal: CallJournal = field(init=False)
    resumed_requests: dict[str, ResumedRequest] = field(default_factory=dict[str, ResumedRequest])
    """The requests to the user of the interrupted turn that this one resumes, by call id."""
    background: BackgroundTasks = field(default_factory=BackgroundTasks)

    usage: TurnUsage = field(init=False)
    work_clock: WorkClock = field(init=False)

    channel: Channel = field(default_factory=Channel)
    log: TurnLog = field(init=False)
    history: TurnHistory = field(init=False, repr=False)
    """The writer of its messages."""
    artifact_events: ArtifactEvents = field(init=False, repr=False)
    """The writer of its events of files."""
    steering: Steering = field(init=False)
    interrupts: Interrupts = field(default_factory=Interrupts)
    stopped: bool = False
    closing: asyncio.Event | None = None
    """Made when the consumer stops reading, and set when the turn has ended."""

    child_turns: ChildTurns = field(init=False)
    """The place where the events of child turns are written."""
    children: RunningChildren = field(default_factory=RunningChildren, repr=False)
    earlier_events: Sequence[Event] = ()
    """The events of this turn from an earlier process."""
    sources: TurnSources = field(init=False, repr=False)
    """The texts of others that the turn may act on."""
    writer: ChildTurnWriter | None = None
    """The writer of a child turn's events; None for a root turn."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last event of a child turn is written."""

    def __post_init__(self, gate: ConfirmGate) -> None:
        context = self.context
        parent = context.parent
        self.lineage = TurnLineage(self, parent, context.title)
        self.permissions = TurnPermissions(
            self.session,
            gate,
            home=self.settings.home,
            parent=None if parent is None else parent.permissions,
            mode=context.permission_mode,
            rule_store=context.rules,
        )
        self.id = context.turn_id or new_id("turn")
        self.session_id = self.session.id if parent is None else parent.session_id
        budget = context.budget if parent is None else Budget.joined(context.budget, parent.usage.budget)
        self.history = TurnHistory(self.session)
        self.usage = TurnUsage(budget, self._emit_usage)
        self._set_agent(self.agent)
        seconds = None if context.work_seconds is None else Budget(seconds=context.work_seconds)
        limits: Mapping[InterruptReason, Budget | None] = {"budget_exceeded": budget, "timeout.turn": seconds}
        self.work_clock = WorkClock(
            self.clock,
            limits,
            lambda reason: self.interrupts.fire(reason),
            parent=None if parent is None else parent.work_clock,
        )
        inherited = None if parent is None else parent.child_turns
        self.child_turns = context.child_turns or inherited or ChannelChildTurns(self.channel)
        self.channel.pacer = context.pacer
        self.log = TurnLog(self.clock)
        self.artifact_events = ArtifactEvents(self.emit, self.loop_detector)
        self.deps = parent.deps if context.deps is None and parent is not None else context.deps
        self.journal, self.steering = context.journal, context.steering
        instructions = context.instructions or self.agent.instructions
        self.sources = TurnSources(self.session, None if parent is None else parent.sources, instructions)

    @property
    def detached(self) -> bool:
        """True if the turn continues after the end of its parent."""
        return self.context.detached and self.child_turns.is_durable

    def hook_context(self, call: ToolCall | None = None) -> HookContext:
        """Return the context of a hook; `call` is the tool call that it runs for, if any."""
        return HookContext(
            session_id=self.session_id,
            agent_id=self.agent_id,
            round=self.round,
            turn_id=self.id,
            model=self.agent.model.name,
            call_id=None if call is None else call.id,
            context_variables=self.session.state.context_variables,
        )

    def is_read_only(self, call: ToolCall) -> bool:
        """Return whether a call's tool or command only reads, as loop detection and polling need to know."""
        tool = self.agent.tools.find(call.name)
        return call.id in self.read_only_calls or (tool is not None and tool.read_only)

    def begin(self, message: UserMessage) -> None:
        """Check attachments, reserve the session, emit `turn_started` and append the user's message if it is new."""
        if message.attachments:
            check_attachments(message.attachments)
        self.session.begin_turn(self)
        context = self.context
        parent_id = None if context.parent is None else context.parent.id
        started = {"input": message.content, "model": self.agent.model.name, "message_id": message.message_id}
        ids = {"client_turn_id": context.client_turn_id, "parent_turn_id": parent_id}
        notes = context.notes
        mode = {} if notes is None else {"mode": notes.mode, "mode_reason": notes.mode_reason}
        auto = {}
        if self.permissions.mode == "auto":
            auto = {"permission_mode": "auto", "permission_mode_resumed": not self.permissions.has_auto_consent}
        optional = {**ids, **attachment_data(message), **mode, **auto}
        self.emit(EventType.TURN_STARTED, started | {key: value for key, value in optional.items() if value})
        self.history.message_id = message.message_id
        if not context.continues:
            self.history.append(message)

    def resume(self, point: ResumePoint) -> None:
        """Reserve the session and restore the state of the turn that was interrupted at `point`.

        The calls that are to begin lose their results: messages may be stored before their events, so a process that
        died while it stopped the turn can have left some that nobody was shown.
        """
        self.session.begin_turn(self)
        calls, messages = {call.id for call in point.calls}, self.session.messages
        while messages and isinstance(last := messages[-1], ToolMessage) and last.tool_call_id in calls:
            messages.pop()
        self.round, self.state, self.last_text = point.round, point.state, point.last_text
        self.usage.total = point.usage
        self.resumed_requests.update(point.requests)
        self.permissions.began_with_auto_consent = point.has_auto_consent
        self.children.waiting += point.children
        self.artifact_events.restore(point.previews)
        self.log.resume(point)

    def emit(self, type_: EventType, data: dict[str, Any]) -> None:
        """Emit an event of any type but `artifact`, for which there is `artifact_events`."""
        self.channel.put(EVENT_CLASSES[type_](type_, data, self.agent_id, self.id))
        if type_ in LOGGED_EVENTS:
            self.log.record(type_, data)

    def emit_deltas(self, events: Sequence[Event]) -> None:
        """Emit tokens, thinking and deltas of tool calls, past the bookkeeping of `emit`."""
        self.channel.put(*events)

    def end(self, task: asyncio.Task[None]) -> None:
        """Close the channel and write the turn's log line; `task`, which ran the turn, is done."""
        self.children.close()
        self.work_clock.end()
        self.channel.close()
        self.log.end(task, model=self.agent.model.name, rounds=self.round, usage=self.usage.total)

    def stop(self) -> None:
        """Stop the turn and its child turns on behalf of the user."""
        self.stopped = True
        self.interrupts.fire("stopped")
        self.children.stop()

    def renew_interrupts(self, limit: float = 0.0) -> Interrupts:
        """Return a new scope with its own limit, for work after the first scope has ended.

        An earlier stop applies to the new scope too.
        """
        self.interrupts = Interrupts(limit)
        if self.stopped:
            self.interrupts.fire("stopped")
        return self.interrupts

    def enter(self, state: TurnState) -> None:
        """Change the state and emit it; do nothing if the turn is in that state already."""
        if state != self.state:
            if state == "done":
                self.artifact_events.drop_previews()
                self.usage.is_closed = True  # no event may follow the state `done` but the terminal one
            self.state = state
            self.emit(EventType.STATE, {"state": state})

    def apply_result(self, result: ToolResult) -> str | None:
        """Apply the change of the turn that a call returned; return why it cannot be applied, else None."""
        if result.next_agent is not None or result.ending is not None:
            if self.change.next_agent is not None:
                return f"an earlier call of this round has handed over to {self.change.next_agent.name!r}"
            if self.change.ending is not None:
                return f"an earlier call of this round has ended the turn as {self.change.ending!r}"
            self.change = result
        self.session.state.context_variables.update(result.variables or {})
        return None

    def _set_agent(self, agent: TurnAgent) -> None:
        """Make `agent`, which reserves its model calls at the turn's budget, the acting agent."""
        self.permissions.agent_gate = agent.confirm_gate or self.permissions.agent_gate
        self.agent, self.agent_id = replace(agent, model=self.usage.reserving(agent.model)), agent.name
        self.history.sender = agent.name if agent.shares_history else None

    def apply_handoff(self) -> None:
        """Make the agent to which a call of this round has handed off the acting one, if there is one."""
        agent = self.change.next_agent
        if agent is None:
            return
        self.emit(EventType.HANDOFF, self.change.handoff_data(self.agent.name))
        self.change = ToolResult()
        self._set_agent(agent)
        self.calling_replies.clear()
        self.last_input_tokens, self.session.active_agent = None, agent.name
        agent.on_handoff()
        bind_ids(agent=agent.name, organization=agent.organization_id)
        self.output.set_model(self.agent.model, agent.tools.names)

    def drop_tools(self) -> None:
        """Give the model one more round without tools, and the rounds for corrections of its output."""
        self.agent = replace(self.agent, tools=Toolbox(()), required_tool=None)
        self.output.set_model(self.agent.model, ())
        self.max_rounds += 1 + (MAX_REPAIRS if self.output.is_requested else 0)
        self.on_exhausted = "error"

    async def append_steering(self) -> Sequence[UserMessage]:
        """Append the notices and steering messages since the last model call; return the user's messages.

        They wait until all earlier events are written. A hub stores the conversation as it is then with each write: it
        would have a message without its event, which a turn that resumes after a crash at this point took in again.
        """
        if self.steering.left:
            await self.channel.wait_until_written()
        if self.context.work is None:  # work calls no model; its child turns get the notices
            if self.session.notices:
                self.history.append(self.session.take_notices(self.id, self.id))
            self._append_notices_of_root()
        messages = self.steering.take() if self.steering.left else ()
        for message in messages:
            self.loop_detector.record_user_message()
            data = {"message_id": message.message_id, "text": message.content, **attachment_data(message)}
            self.emit(EventType.STEERED, data)
            self.history.append(message)
        return messages

    def _append_notices_of_root(self) -> None:
        """Append the root session's notices for this agent; if the root calls no model, also notices for any agent."""
        root = self.lineage.root
        takes_others = root.context.work is not None and not self.context.detached
        readers = {self.agent_id, ""} if takes_others else {self.agent_id}
        if chosen := [notice for notice in root.session.notices if notice.reader in readers]:
            self.history.append(root.session.take_notices(root.id, self.id, chosen))

    @property
    def has_steering(self) -> bool:
        """True if steering messages are pending and a round is left for them: an answer does not end the turn then."""
        return bool(self.steering.left) and self.round < self.max_rounds

    def _emit_usage(self, data: dict[str, Any], name: str) -> None:
        organization = self.agent.organization_id
        ids = {} if organization is None else {"organization_id": organization}
        self.emit(EventType.USAGE, {**data, **ids, "model": name})

    def report_hook_failure(self, failure: AgenticXError) -> None:
        """Report a failed observer hook as a non-fatal error; the turn continues."""
        _log.warning("a hook failed", reason=str(failure))
        self.emit(EventType.ERROR, {"text": str(failure), "code": "hook_failed", "fatal": False})


def attachment_data(message: UserMessage) -> dict[str, Any]:
    """Return the payload key with the summaries of a message's attachments; empty if it has none."""
    summaries = [dict(attachment.summary) for attachment in message.attachments]
    return {"attachments": summaries} if summaries else {}
