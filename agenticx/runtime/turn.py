"""What changes while one turn runs, and how it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from agenticx import foreign
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError
from agenticx.llms.base import Reply, Usage
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, Message, ToolCall, UserMessage
from agenticx.runtime.channel import Channel
from agenticx.runtime.events import EventType, RuntimeEvent, TurnState
from agenticx.runtime.hooks.base import HookContext
from agenticx.runtime.interrupts import Interrupts
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.output import TurnOutput
from agenticx.runtime.polling import Polls
from agenticx.runtime.resuming import CallJournal, Forgetful, Question
from agenticx.runtime.session import Session
from agenticx.runtime.steering import Steering
from agenticx.runtime.turn_log import LOGGED, TurnLog
from agenticx.tools.registry import Toolbox

__all__ = ["Turn", "attached", "usage_data"]

AFTERWORK_SECONDS = 3.0
"""Real seconds that work behind the terminal event (ending processes) may take."""

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Turn:
    """One user message and all that follows. Everything that a turn emits goes through `emit`.

    `looking` holds the ids of the round's calls whose command seems to change nothing, though their tool might.
    """

    session: Session
    agent_id: str
    tools: Toolbox
    output: TurnOutput
    system_prompt: str | None
    model_name: str
    max_rounds: int
    clock: Clock
    loops: LoopDetector
    polls: Polls = field(default_factory=Polls)
    looking: set[str] = field(default_factory=set[str])
    journal: CallJournal = field(default_factory=Forgetful)
    steering: Steering = field(default_factory=Steering)
    asked: dict[str, Question] = field(default_factory=dict[str, Question])
    channel: Channel = field(default_factory=Channel)
    interrupts: Interrupts = field(default_factory=Interrupts)
    round: int = 0
    state: TurnState = "idle"
    usage: Usage | None = None
    last_input_tokens: int | None = None
    last_text: str = ""
    answered_by: str | None = None
    told_about_tools: bool = False
    stopped: bool = False
    overflowed: bool = False
    log: TurnLog = field(init=False)
    _afterwork: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self.log = TurnLog(self.clock)

    @property
    def is_meta(self) -> bool:
        """Whether a person talks to this agent directly; others pause instead of failing when out of rounds."""
        return self.agent_id == "meta"

    @property
    def hook_context(self) -> HookContext:
        return HookContext(self.session.id, self.agent_id, self.round)

    def only_reads(self, call: ToolCall) -> bool:
        """Whether a call counts as a read for loops and polling: its tool is read-only, or its command only looks."""
        return call.id in self.looking or (call.name in self.tools and self.tools.get(call.name).read_only)

    def emit(self, type_: EventType, data: dict[str, Any]) -> None:
        if type_ is EventType.ARTIFACT:
            self.loops.record_artifact(data["path"], data.get("content", ""), data.get("delta", ""))
        self.channel.put(RuntimeEvent(type_, data, self.agent_id))
        if type_ in LOGGED:
            self.log.see(type_, data)

    def end(self, task: asyncio.Task[None]) -> None:
        """No more events will come: `task`, which ran the turn, is done."""
        self.channel.close()
        self.log.end(task, model=self.model_name, rounds=self.round, usage=self.usage)

    def stop(self) -> None:
        """The person wants the turn to end."""
        self.stopped = True
        self.interrupts.fire("stopped")

    def renew_interrupts(self, limit: float = 0.0) -> Interrupts:
        """A fresh scope, with its own limit, for what comes after the first was left; a stop outlives the change."""
        self.interrupts = Interrupts(limit)
        if self.stopped:
            self.interrupts.fire("stopped")
        return self.interrupts

    def enter(self, state: TurnState) -> None:
        """Go to a state of the machine; said once per change."""
        if state != self.state:
            self.state = state
            self.emit(EventType.STATE, {"state": state})

    def remember(self, message: Message) -> None:
        """Append to the conversation."""
        self.session.messages.append(message)

    def remember_reply(self, reply: Reply, message_id: str, calls: Sequence[ToolCall] = ()) -> None:
        """Keep what the model said and those of its calls that count; a reply that says nothing leaves no row."""
        if not (reply.text or calls):
            return
        self.remember(
            AssistantMessage(
                content=reply.text,
                reasoning=reply.reasoning,
                tool_calls=tuple(calls),
                provider_state=reply.provider_state,
                message_id=message_id,
            )
        )

    def remind(self, text: str) -> None:
        """Say something to the model in the user's role."""
        self.remember(UserMessage(content=f"[reminder] {text[0].upper()}{text[1:]}", injected=True))

    def take_in(self) -> None:
        """Tell the model next what the person said meanwhile."""
        for message in self.steering.take():
            self.emit(
                EventType.STEERED, {"message_id": message.message_id, "text": message.content, **attached(message)}
            )
            self.remember(message)

    def goes_on(self) -> bool:
        """Whether an answer is not the end yet, because the person said something; if not, it is too late for that."""
        if self.steering.left and self.round < self.max_rounds:
            return True
        self.steering.close()
        return False

    def spent(self, usage: Usage, model_name: str) -> None:
        """Account for one model call."""
        self.usage = usage if self.usage is None else self.usage + usage
        self.emit(EventType.USAGE, {**usage_data(usage), "model": model_name})

    def report(self, failure: AgenticXError) -> None:
        """A failed observer hook: the turn goes on, the person is told."""
        _log.warning("a hook failed", reason=str(failure))
        self.emit(EventType.ERROR, {"text": str(failure), "code": "hook_failed", "fatal": False})

    def afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` behind the call or the turn that started it."""
        task = asyncio.get_running_loop().create_task(_contained(work), name="agx afterwork")
        self._afterwork.add(task)
        task.add_done_callback(self._afterwork_done)

    async def finish_afterwork(self) -> None:
        """Wait for what was handed to `afterwards`, at most 3 s; then it is cancelled."""
        if not self._afterwork:
            return
        _, late = await asyncio.wait(self._afterwork, timeout=AFTERWORK_SECONDS)
        for task in late:
            task.cancel()
        if late:
            _log.warning("work behind the turn took too long and was cancelled", tasks=len(late))
            await asyncio.wait(late, timeout=0.1)

    def _afterwork_done(self, task: asyncio.Task[None]) -> None:
        self._afterwork.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("work behind the turn failed", exc_info=failure)


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    """Await foreign work: a `SystemExit` in a task would end the program."""
    with foreign.translated_errors("work behind the turn"):
        await work


def attached(message: UserMessage) -> dict[str, Any]:
    """The payload key that tells what came with a message; none if nothing did."""
    summaries = [dict(attachment.summary) for attachment in message.attachments]
    return {"attachments": summaries} if summaries else {}


def usage_data(usage: Usage) -> dict[str, Any]:
    """The payload keys of a `Usage`: counts that the provider did not report are null or absent, never 0."""
    data: dict[str, Any] = {"input_tokens": usage.total_input_tokens, "output_tokens": usage.total_output_tokens}
    if usage.cached_tokens is not None:
        data["cached_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens is not None:
        data["reasoning_tokens"] = usage.reasoning_tokens
    if usage.cost_usd is not None:
        data["cost_usd"] = format(usage.cost_usd.normalize(), "f")
    return data
