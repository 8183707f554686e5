"""The mutable state of one running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from agenticx.attachments import Attachment, check_attachments
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError
from agenticx.llms.base import Reply, Usage
from agenticx.logs import bind_ids, get_logger
from agenticx.messages import AssistantMessage, Message, ToolCall, UserMessage, new_id, sources_of
from agenticx.permissions.rule_stores import RuleStore
from agenticx.permissions.trusted_files import Instructions
from agenticx.permissions.verdict import EVERY_MODE_RULES, PermissionMode, stricter_mode
from agenticx.runtime.background_tasks import BackgroundTasks
from agenticx.runtime.budgets.budget import Budget, Spent
from agenticx.runtime.budgets.budgeted_model import BudgetedModel
from agenticx.runtime.budgets.usage_payload import usage_data
from agenticx.runtime.budgets.work_clock import WorkClock
from agenticx.runtime.channel import Channel
from agenticx.runtime.child_turns import ChannelChildTurns, ChildTurns, ChildTurnWriter
from agenticx.runtime.events import EVENT_CLASSES, LOGGED_EVENTS, Event, EventType, TurnState
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.hooks import HookContext, HookRegistry
from agenticx.runtime.interrupts import InterruptReason, Interrupts
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.polling import PollBackoff
from agenticx.runtime.resume import CallJournal, ResumedRequest, ResumedTurn, ResumePoint
from agenticx.runtime.session import Session
from agenticx.runtime.steering import Steering
from agenticx.runtime.structured_output import MAX_REPAIRS, TurnOutput
from agenticx.runtime.turn_agent import EndReason, ToolResult, TurnAgent, TurnAgents
from agenticx.runtime.turn_context import OnExhausted, TurnContext
from agenticx.runtime.turn_log import TurnLog
from agenticx.runtime.user_requests.requests import ConfirmRequest, UserRequest
from agenticx.settings import Settings
from agenticx.tools.artifacts.files import ArtifactPreview
from agenticx.tools.context import SettleCost
from agenticx.tools.registry import Toolbox

__all__ = [
    "CURRENT_TURN",
    "Turn",
    "attachment_data",
    "current_turn",
]

_KEPT_SOURCES = 200
_CHILDREN_SECONDS = 1.0  # for stopped child turns to write their last events; a stop takes 0.2 s

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
    """One user message and its processing up to the terminal event. All events of a turn are emitted by `emit`."""

    session: Session
    context: TurnContext = field(default_factory=TurnContext)
    id: str = field(init=False)
    session_id: str = field(init=False)
    """The id of the root turn's session, whose log has the events of all child turns."""
    settings: Settings = field(repr=False)
    clock: Clock
    event_loop: asyncio.AbstractEventLoop | None = None
    """The event loop that runs the turn."""

    agent: TurnAgent
    """The acting agent. `agent_id`, `tools`, `hooks`, `model_name` and `gate` change with it."""
    agent_id: str = field(init=False)
    tools: Toolbox = field(init=False)
    hooks: HookRegistry = field(init=False)
    model_name: str = field(init=False)
    gate: ConfirmGate = field(init=False)
    """The gate that is asked before risky calls: the acting agent's own, else `turn_gate`."""
    turn_gate: ConfirmGate
    agents: TurnAgents = field(repr=False)
    """The agents to which calls can hand off."""
    next_agent: TurnAgent | None = None
    """The agent to which a call of this round has handed off; it acts from the next round on."""
    ending: EndReason | None = None
    """The reason with which a call of this round ends the turn."""
    handoff: ToolResult = field(default_factory=ToolResult)
    """The result of the call that set `next_agent` or `ending`."""
    calling_replies: set[str] = field(default_factory=set[str])
    """The ids of the replies in which the acting agent has made calls."""

    output: TurnOutput
    max_rounds: int
    on_exhausted: OnExhausted
    message_id: str = ""
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
    previews: dict[str, ArtifactPreview] = field(default_factory=dict[str, ArtifactPreview], repr=False)
    """The previews of calls, by call id, that have had no last event yet."""
    journal: CallJournal = field(init=False)
    resumed_requests: dict[str, ResumedRequest] = field(default_factory=dict[str, ResumedRequest])
    """The requests to the user of the interrupted turn that this one resumes, by call id."""
    began_with_auto_consent: bool = False
    """True for a turn that an earlier process began with the consent of a person to mode auto."""
    background: BackgroundTasks = field(default_factory=BackgroundTasks)

    usage: Usage | None = None
    unreported: Spent = field(default_factory=Spent)
    """What budgets count of a call whose provider reported no usage, until its usage is emitted."""
    budget: Budget | None = field(init=False)
    work_clock: WorkClock = field(init=False)

    channel: Channel = field(default_factory=Channel)
    log: TurnLog = field(init=False)
    steering: Steering = field(init=False)
    interrupts: Interrupts = field(default_factory=Interrupts)
    stopped: bool = False
    closing: asyncio.Event | None = None
    """Made when the consumer stops reading, and set when the turn has ended."""

    child_turns: ChildTurns = field(init=False)
    """The place where the events of child turns are written."""
    children: dict[str, Turn] = field(default_factory=dict[str, "Turn"], repr=False)
    """The running child turns, by id."""
    accepts_children: bool = True
    """False once the turn is about to end."""
    child_sources: dict[str, None] = field(default_factory=dict[str, None], repr=False)
    """The sources read by child turns that have ended, until a call's result names them."""
    instructions: list[Instructions] = field(default_factory=list[Instructions], init=False, repr=False)
    """The AGENTS.md files in the prompts of this turn and of the child turns that have begun in it."""
    waiting_children: list[ResumedTurn] = field(default_factory=list[ResumedTurn], repr=False)
    """The child turns of an earlier process that continue when they are begun again."""
    earlier_events: Sequence[Event] = ()
    """The events of this turn from an earlier process."""
    writer: ChildTurnWriter | None = None
    """The writer of a child turn's events; None for a root turn."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last event of a child turn is written."""

    def __post_init__(self) -> None:
        context = self.context
        parent = context.parent
        self.id = context.turn_id or new_id("turn")
        self.session_id = self.session.id if parent is None else parent.session_id
        self.budget = context.budget if parent is None else Budget.joined(context.budget, parent.budget)
        self._set_agent(self._within_budget(self.agent))
        seconds = None if context.work_seconds is None else Budget(seconds=context.work_seconds)
        limits: Mapping[InterruptReason, Budget | None] = {"budget_exceeded": self.budget, "timeout.turn": seconds}
        self.work_clock = WorkClock(self.clock, limits, lambda reason: self.interrupts.fire(reason))
        inherited = None if parent is None else parent.child_turns
        self.child_turns = context.child_turns or inherited or ChannelChildTurns(self.channel)
        self.channel.pacer = context.pacer
        self.log = TurnLog(self.clock)
        self.journal, self.steering = context.journal, context.steering
        self._add_instructions(context.instructions or self.agent.instructions)

    def _add_instructions(self, instructions: Instructions | None) -> None:
        """Add the files of this turn's prompt to it and to its ancestors, which read its result."""
        turn: Turn | None = self
        while turn is not None and instructions is not None and instructions.digests:
            if instructions not in turn.instructions:
                turn.instructions.append(instructions)
            turn = turn.context.parent

    @property
    def permission_mode(self) -> PermissionMode:
        """The turn's own mode, else the session's, which may change while the turn runs.

        It permits no more than the parent's mode.
        """
        mode, parent = self.context.permission_mode or self.session.permission_mode, self.context.parent
        return mode if parent is None else stricter_mode(mode, parent.permission_mode)

    @property
    def has_auto_consent(self) -> bool:
        """True if a person has agreed to mode auto since the program was started, or before this turn began.

        A child turn has the consent of its ancestors. A turn that is resumed keeps that with which it began.
        """
        if self.began_with_auto_consent:
            return True
        parent = self.context.parent
        return self.session.auto_consent.is_given if parent is None else parent.has_auto_consent

    @property
    def has_gate(self) -> bool:
        """True if the application gave a confirm gate for the turn or an ancestor; a hub always does."""
        return self.gate.is_given

    def gate_for(self, request: UserRequest) -> ConfirmGate:
        """Return the gate for a request.

        A call that is asked about in every mode, such as a call that touches a protected path, is not for the agent's
        own gate: the outermost gate that was given for this turn or an ancestor is asked.
        """
        if not (isinstance(request, ConfirmRequest) and request.decided_by in (*EVERY_MODE_RULES, "rule")):
            return self.gate
        gate, turn = self.gate, self
        while True:
            gate = turn.turn_gate if turn.turn_gate.is_given else gate
            if turn.context.parent is None:
                return gate
            turn = turn.context.parent

    @property
    def deps(self) -> Any:
        """The object that the application gave the tools of this turn, else of its nearest ancestor with one."""
        parent = self.context.parent
        return self.context.deps if self.context.deps is not None or parent is None else parent.deps

    @property
    def root(self) -> Turn:
        """The turn at the top, in whose session the rules of the user are."""
        return self if self.context.parent is None else self.context.parent.root

    @property
    def rule_store(self) -> RuleStore | None:
        """The rules of the user for all sessions; None outside of a hub."""
        parent = self.context.parent
        return self.context.rules if self.context.rules is not None or parent is None else parent.rule_store

    @property
    def has_own_gate(self) -> bool:
        """True if the acting agent has a confirm gate of its own, which then decides instead of rules that allow."""
        return self.gate is not self.turn_gate

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The ids of the agents from the root turn to this one."""
        return (*(() if self.context.parent is None else self.context.parent.agent_path), self.agent_id)

    @property
    def foreign_sources(self) -> tuple[str, ...]:
        """The names of the foreign texts that the turn may act on, each once, the newest of its own first.

        They are in its conversation, in its ancestors' (its task comes from there), and in the conversations of ended
        child turns (their results are in these conversations).
        """
        sources: dict[str, None] = {}
        turn = self
        while True:
            sources |= dict.fromkeys(sources_of(reversed(turn.session.messages)))
            sources |= dict.fromkeys([*turn.child_sources, *turn.session.state.sources])
            if turn.context.parent is None:
                return tuple(sources)
            turn = turn.context.parent

    @property
    def has_instructions(self) -> bool:
        """True if there are AGENTS.md files in the prompt of this turn, of an ancestor or of their child turns."""
        return bool(self.root.instructions)

    def untrusted_files(self) -> tuple[str, ...]:
        """Return the names of the AGENTS.md files whose content the user does not trust now, each once.

        They are in the prompts of this turn, its ancestors and their child turns: the conversations that it may act on
        were written under these instructions. Blocks.
        """
        files = [name for instructions in tuple(self.root.instructions) for name in instructions.untrusted()]
        return tuple(dict.fromkeys(files))

    def user_texts(self) -> list[str]:
        """Return the messages of the user in the conversation, without what the engine adds in the user's role."""
        users = (message for message in self.session.messages if isinstance(message, UserMessage))
        return [message.content for message in users if not message.injected and not message.sources]

    def take_child_sources(self) -> tuple[str, ...]:
        """Return the sources read by child turns that have ended since the last call of this method."""
        taken = tuple(self.child_sources)
        self.child_sources.clear()
        return taken

    def keep_sources(self) -> None:
        """Keep the foreign sources in the session's state, because the to-do list or the scratchpad may quote them.

        A rewind of the conversation leaves both as they are, and a fork copies them.
        """
        self._keep(self.foreign_sources)

    def _keep(self, sources: Iterable[str]) -> None:
        state = self.session.state
        state.sources = [*dict.fromkeys([*state.sources, *sources])][-_KEPT_SOURCES:]

    def report_sources(self) -> None:
        """Report the foreign sources of this turn, which is about to end, to its parent.

        A root turn keeps those that no call's result has named in the session's state. A detached turn reports its
        sources with its ending.
        """
        parent, session = self.context.parent, self.session
        if parent is None:
            self._keep(self.child_sources)
        elif not self.context.detached:
            read = [*sources_of(session.messages), *self.child_sources, *session.state.sources]
            parent.child_sources |= dict.fromkeys(read)

    @property
    def asking_path(self) -> tuple[str, ...]:
        """The `agent_path` that a request to the user shows; empty for a root turn."""
        return () if self.context.parent is None else self.agent_path

    def with_title(self, text: str) -> str:
        """Return `text`, for the user, after the title of this turn or of its nearest ancestor with a title."""
        if self.context.title is not None:
            return f"{self.context.title}: {text}"
        return text if self.context.parent is None else self.context.parent.with_title(text)

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
            model=self.model_name,
            call_id=None if call is None else call.id,
            context_variables=self.session.state.context_variables,
        )

    def is_read_only(self, call: ToolCall) -> bool:
        """Return whether a call's tool or command only reads, as loop detection and polling need to know."""
        return call.id in self.read_only_calls or (call.name in self.tools and self.tools.get(call.name).read_only)

    def begin(self, message: UserMessage) -> None:
        """Check attachments, reserve the session, emit `turn_started` and append the user's message if it is new."""
        if message.attachments:
            check_attachments(message.attachments)
        self.session.begin_turn(self)
        context = self.context
        parent_id = None if context.parent is None else context.parent.id
        started = {"input": message.content, "model": self.model_name, "message_id": message.message_id}
        ids = {"client_turn_id": context.client_turn_id, "parent_turn_id": parent_id}
        notes = context.notes
        mode = {} if notes is None else {"mode": notes.mode, "mode_reason": notes.mode_reason}
        permissions = {}
        if self.permission_mode == "auto":
            permissions = {"permission_mode": "auto", "permission_mode_resumed": not self.has_auto_consent}
        optional = {**ids, **attachment_data(message), **mode, **permissions}
        self.emit(EventType.TURN_STARTED, started | {key: value for key, value in optional.items() if value})
        self.message_id = message.message_id
        if not context.continues:
            self.append(message)

    def own_messages(self) -> Sequence[Message]:
        """Return the messages of this turn: from those injected just before the user's message to the last."""
        messages = self.session.messages
        said = [index for index, message in enumerate(messages) if _is_of_user(message)]
        own = (index for index in said if messages[index].message_id == self.message_id)
        start = next(own, said[-1] if said else 0)
        while start and isinstance(before := messages[start - 1], UserMessage) and before.injected:
            start -= 1
        return messages[start:]

    async def end_children(self) -> None:
        """Stop the child turns that are not detached and wait until their last events are written."""
        self.accepts_children = False
        ending = [child for child in self.children.values() if not child.detached]
        for child in ending:
            child.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHILDREN_SECONDS if ending else None):
                for child in ending:
                    await child.written.wait()

    def resume(self, point: ResumePoint) -> None:
        """Reserve the session and restore the state of the turn that was interrupted at `point`."""
        self.session.begin_turn(self)
        self.round, self.state, self.usage, self.last_text = point.round, point.state, point.usage, point.last_text
        self.resumed_requests.update(point.requests)
        self.began_with_auto_consent = point.has_auto_consent
        self.waiting_children += point.children
        self.previews.update(point.previews)
        self.log.resume(point)

    def emit(self, type_: EventType, data: dict[str, Any]) -> None:
        if type_ is EventType.ARTIFACT:
            shown = self.previews.get(data.get("tool_call_id", ""))
            if data["final"] and shown is not None and (shown.path, shown.revision) == (data["path"], data["revision"]):
                del self.previews[data["tool_call_id"]]
            self.loop_detector.record_artifact(data["path"], data.get("content", ""), data.get("delta", ""))
        self.channel.put(EVENT_CLASSES[type_](type_, data, self.agent_id, self.id))
        if type_ in LOGGED_EVENTS:
            self.log.record(type_, data)

    def drop_previews(self, call_ids: Collection[str] | None = None) -> None:
        """Emit that nothing was stored of the previewed files of these calls, or of all; each has no last event yet."""
        for call_id in [call_id for call_id in self.previews if call_ids is None or call_id in call_ids]:
            self.emit(EventType.ARTIFACT, self.previews[call_id].dropped_data | {"tool_call_id": call_id})

    def emit_deltas(self, events: Sequence[Event]) -> None:
        """Emit tokens, thinking and deltas of tool calls, past the bookkeeping of `emit`."""
        self.channel.put(*events)

    def end(self, task: asyncio.Task[None]) -> None:
        """Close the channel and write the turn's log line; `task`, which ran the turn, is done."""
        self.accepts_children = False
        self.work_clock.end()
        self.channel.close()
        self.log.end(task, model=self.model_name, rounds=self.round, usage=self.usage)

    def stop(self) -> None:
        """Stop the turn and its child turns on behalf of the user."""
        self.stopped = True
        self.interrupts.fire("stopped")
        for child in list(self.children.values()):
            child.stop()

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
                self.drop_previews()
            self.state = state
            self.emit(EventType.STATE, {"state": state})

    def append(self, message: Message) -> None:
        """Append a message to the conversation."""
        self.session.messages.append(message)

    def append_reply(self, reply: Reply, message_id: str, calls: Sequence[ToolCall] = ()) -> None:
        """Append the model's text and its usable `calls`; a reply with neither adds no message."""
        if not (reply.text or calls):
            return
        self.append(
            AssistantMessage(
                content=reply.text,
                reasoning=reply.reasoning,
                tool_calls=tuple(calls),
                provider_state=reply.provider_state,
                message_id=message_id,
                sender=self.agent.name if self.agent.shares_history else None,
            )
        )

    def apply_result(self, result: ToolResult) -> str | None:
        """Apply the change of the turn that a call returned; return why it cannot be applied, else None."""
        if result.next_agent is not None or result.ending is not None:
            if self.next_agent is not None:
                return f"an earlier call of this round has handed over to {self.next_agent.name!r}"
            if self.ending is not None:
                return f"an earlier call of this round has ended the turn as {self.ending!r}"
            self.next_agent, self.ending, self.handoff = result.next_agent, result.ending, result
        self.session.state.context_variables.update(result.variables or {})
        return None

    def _within_budget(self, agent: TurnAgent) -> TurnAgent:
        """Return `agent` with a model that reserves each call at the turn's budget, if there is one."""
        budget = self.budget
        return (
            agent if budget is None else replace(agent, model=BudgetedModel(agent.model, budget, self.add_unreported))
        )

    @contextmanager
    def waiting_for_person(self) -> Generator[None]:
        """Stop the work clocks of the turn and its ancestors while the block runs."""
        parent = self.context.parent
        parent_waiting = nullcontext() if parent is None else parent.waiting_for_person()
        with self.work_clock.waiting_for_person(), parent_waiting:
            yield

    def _set_agent(self, agent: TurnAgent) -> None:
        """Make `agent` the acting agent."""
        self.agent, self.agent_id, self.tools, self.hooks = agent, agent.name, agent.tools, agent.hooks
        self.gate = agent.confirm_gate or self.turn_gate
        self.model_name = agent.model.name

    def apply_handoff(self) -> None:
        """Make `next_agent` the acting agent, if there is one."""
        agent, self.next_agent = self.next_agent, None
        if agent is None:
            return
        self.emit(EventType.HANDOFF, self.handoff.handoff_data(self.agent.name))
        self._set_agent(self._within_budget(agent))
        self.calling_replies.clear()
        self.last_input_tokens, self.session.active_agent = None, agent.name
        agent.on_handoff()
        bind_ids(agent=agent.name, organization=agent.organization_id)
        self.output.set_model(self.agent.model, agent.tools.names)

    def drop_tools(self) -> None:
        """Give the model one more round without tools, and the rounds for corrections of its output."""
        self._set_agent(replace(self.agent, tools=Toolbox(()), required_tool=None))
        self.output.set_model(self.agent.model, ())
        self.max_rounds += 1 + (MAX_REPAIRS if self.output.is_requested else 0)
        self.on_exhausted = "error"

    def append_reminder(self, text: str) -> None:
        """Append a text for the model in the user's role."""
        self.append(UserMessage(content=f"[reminder] {text[0].upper()}{text[1:]}", injected=True))

    def attached_files(self) -> Sequence[Attachment]:
        """Return the files that the user attached to this conversation and its ancestors', newest first."""
        files, turn = list[Attachment](), self
        while turn is not None:
            users = (message for message in reversed(turn.session.messages) if _is_of_user(message))
            files += [file for message in users if isinstance(message, UserMessage) for file in message.attachments]
            turn = turn.context.parent
        return files

    async def append_steering(self) -> Sequence[UserMessage]:
        """Append the notices and steering messages since the last model call; return the user's messages.

        They wait until all earlier events are written. A hub stores the conversation as it is then with each write: it
        would have a message without its event, which a turn that resumes after a crash at this point took in again.
        """
        if self.steering.left:
            await self.channel.wait_until_written()
        if self.context.work is None:  # work calls no model; its child turns get the notices
            if self.session.notices:
                self.append(self.session.take_notices(self.id, self.id))
            self._append_notices_of_root()
        messages = self.steering.take() if self.steering.left else ()
        for message in messages:
            self.loop_detector.record_user_message()
            data = {"message_id": message.message_id, "text": message.content, **attachment_data(message)}
            self.emit(EventType.STEERED, data)
            self.append(message)
        return messages

    def _append_notices_of_root(self) -> None:
        """Append the root session's notices for this agent, and those for any agent if the root calls no model."""
        root: Turn = self
        while root.context.parent is not None:
            root = root.context.parent
        takes_others = root.context.work is not None and not self.context.detached
        readers = {self.agent_id, ""} if takes_others else {self.agent_id}
        if chosen := [notice for notice in root.session.notices if notice.reader in readers]:
            self.append(root.session.take_notices(self.id, root.id, chosen))

    @property
    def has_steering(self) -> bool:
        """True if steering messages are pending and a round is left for them: an answer does not end the turn then."""
        return bool(self.steering.left) and self.round < self.max_rounds

    def add_unreported(self, spent: Spent) -> None:
        """Add to what budgets count of a call whose provider reported no usage."""
        known = self.unreported
        self.unreported = Spent(known.tokens + spent.tokens, known.cost_usd + spent.cost_usd)

    def reserve_cost(self, name: str, cost_usd: Decimal | None) -> SettleCost:
        """Reserve a call of the paid service `name`, such as an image model, at the turn's budgets.

        `cost_usd` is its largest possible cost in US dollars, None if that is unknown. The returned function ends the
        reservation and adds what was used to the turn's usage. Raises `BudgetExceeded`.
        """
        reservation = None if self.budget is None else self.budget.reserve_cost(name, cost_usd)

        def settle(usage: Usage | None) -> None:
            unreported = Spent() if reservation is None else reservation.settle(usage)
            if usage is not None and self.state != "done":  # no event may follow the state `done` but the terminal one
                self._record(usage, name, unreported)

        return settle

    def record_usage(self, usage: Usage, model_name: str) -> int | None:
        """Add a model call's usage to the turn's and emit it with `unreported`; return its input tokens."""
        unreported, self.unreported = self.unreported, Spent()
        return self._record(usage, model_name, unreported)

    def _record(self, usage: Usage, model_name: str, unreported: Spent) -> int | None:
        self.usage = usage if self.usage is None else self.usage + usage
        data = usage_data(usage, unreported, self.agent.organization_id)
        self.emit(EventType.USAGE, {**data, "model": model_name})
        return data["input_tokens"]

    def record_unreported(self, model_name: str) -> None:
        """Emit the usage of a failed call whose provider reported none, if budgets count any."""
        if self.unreported != Spent():
            self.record_usage(Usage(), model_name)

    def report_hook_failure(self, failure: AgenticXError) -> None:
        """Report a failed observer hook as a non-fatal error; the turn continues."""
        _log.warning("a hook failed", reason=str(failure))
        self.emit(EventType.ERROR, {"text": str(failure), "code": "hook_failed", "fatal": False})


def _is_of_user(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected


def attachment_data(message: UserMessage) -> dict[str, Any]:
    """Return the payload key with the summaries of a message's attachments; empty if it has none."""
    summaries = [dict(attachment.summary) for attachment in message.attachments]
    return {"attachments": summaries} if summaries else {}
