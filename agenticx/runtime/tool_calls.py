"""The calls of one round: read, checked, permitted, run, and answered, each exactly once and in call order.

The path of one call, each step able to answer it instead of the next:

    known tool? → arguments parse and fit? → before_tool_call hooks → mode and rules → confirm gate → still what was
    shown? → run, under a time-out → after_tool_call hooks → result
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from itertools import groupby
from typing import Any, cast

from agenticx import foreign
from agenticx.clocks import Clock
from agenticx.errors import ForeignError, HookFailed, InvalidArguments, ToolError
from agenticx.llms.arguments import parse_arguments, repair_arguments
from agenticx.logs import get_logger
from agenticx.messages import ToolCall, ToolMessage, ToolOutcome, clean_text
from agenticx.runtime.events import EventType, check_payload
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.output import Verdict
from agenticx.runtime.permits import Permits, Refused, validate
from agenticx.runtime.tool_output import jsonable, render
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.tools.base import Tool, ToolContext

__all__ = ["CallOutcome", "ToolCalls"]

BEAT_SECONDS = 2.0
CUT = "The answer broke off or was cut by its limit, so this call may be incomplete and was not run; make it again."
CANCELLED = "Cancelled: the turn ended before this call was answered; whether it took effect is not known."
NOT_REVIEWED = "Cancelled: the call took effect, but the turn ended before its result was released by its hooks."
NOT_STARTED = "Cancelled: the turn ended before this call began to run."

_TOOL_EVENTS = frozenset(
    {EventType.TOOL_PROGRESS, EventType.ARTIFACT, EventType.CITATION, EventType.HANDOFF}
    | {type_ for type_ in EventType if type_.value.startswith("subagent_")} - {EventType.SUBAGENT_PAUSED}
)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call was answered."""

    text: str
    outcome: ToolOutcome = "ok"
    truncated: bool = False
    repaired: bool = False


@dataclass(slots=True)
class _Pending:
    """One call on its way.

    `value` is what the tool returned and `outcome` what the hooks left of it, both kept even if nobody waits for them
    any more; `partial` is what a tool gave when it was cancelled.
    """

    call: ToolCall
    tool: Tool | None
    arguments: dict[str, Any] | None
    problem: CallOutcome | None
    repaired: bool = False
    started: float | None = None
    value: list[object] = field(default_factory=list[object])
    partial: list[object] = field(default_factory=list[object])
    outcome: CallOutcome | None = None
    over: bool = False

    @property
    def parallel(self) -> bool:
        return self.problem is not None or (self.tool is not None and self.tool.read_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """Runs calls of a turn; a frozen set of collaborators."""

    permits: Permits
    hooks: HookRegistry
    settings: Settings
    clock: Clock

    async def run(self, turn: Turn, calls: Sequence[ToolCall], *, cut: bool = False) -> list[CallOutcome]:
        """Answer every call, in call order, whatever happens: on any way out the rest is answered `cancelled`.

        `cut` says that the output limit ended the reply, so that no call of it can be trusted.
        """
        verdicts = turn.output.verdicts(calls, cut=cut)
        pending = [
            _judged(call, verdicts[call.id]) if call.id in verdicts else self._read(turn, call, cut=cut)
            for call in calls
        ]
        turn.enter("executing")
        for one in pending:
            as_said = one.arguments is None or one.repaired
            arguments: Any = one.call.arguments if as_said else jsonable(cast("dict[str, Any]", one.arguments))
            data = {"tool_call_id": one.call.id, "name": one.call.name, "arguments": arguments}
            turn.emit(EventType.TOOL_CALL, data)
        return await self._answer_all(turn, pending)

    async def take_up(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallOutcome]:
        """Answer calls that a turn had told of before it was cut off, and of which none had begun."""
        return await self._answer_all(turn, [self._read(turn, call, cut=False) for call in calls])

    async def _answer_all(self, turn: Turn, pending: Sequence[_Pending]) -> list[CallOutcome]:
        outcomes: list[CallOutcome] = []
        try:
            await turn.channel.delivered()  # whoever follows the turn has the calls before anything runs
            for group in _groups(pending):
                await self._run_group(turn, group, outcomes)
        finally:
            for one in pending[len(outcomes) :]:
                self._answer(turn, one, self._unanswered(one), outcomes)
        turn.enter("observing")
        return outcomes

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, turn: Turn, call: ToolCall, *, cut: bool) -> _Pending:
        tool = turn.tools.get(call.name) if call.name in turn.tools else None
        try:
            arguments = parse_arguments(call.arguments)
        except InvalidArguments as exc:
            return self._read_malformed(turn, call, tool, exc, cut=cut)
        if tool is None:
            return _Pending(call, None, arguments, _unknown_tool(turn, call))
        if cut:
            return _Pending(call, tool, arguments, CallOutcome(CUT, "invalid_arguments"))
        return _validated(_Pending(call, tool, arguments, None), arguments)

    def _read_malformed(
        self, turn: Turn, call: ToolCall, tool: Tool | None, error: InvalidArguments, *, cut: bool
    ) -> _Pending:
        if tool is None:
            return _Pending(call, None, None, _unknown_tool(turn, call))
        if cut:
            return _Pending(call, tool, None, CallOutcome(CUT, "invalid_arguments"))
        refusal = CallOutcome(f"Invalid arguments: {error}", "invalid_arguments")
        if not tool.read_only:
            return _Pending(call, tool, None, refusal)
        try:
            repaired = repair_arguments(call.arguments)
        except InvalidArguments:
            return _Pending(call, tool, None, refusal)
        return _validated(_Pending(call, tool, None, None, repaired=True), repaired)

    # --- running ------------------------------------------------------------------------------------------------------

    async def _run_group(self, turn: Turn, group: list[_Pending], outcomes: list[CallOutcome]) -> None:
        """One call, or several read-only ones side by side; results come out in call order as soon as they can."""
        if len(group) == 1:
            self._answer(turn, group[0], await self._run_one(turn, group[0]), outcomes)
            return
        tasks = [asyncio.create_task(self._run_one(turn, one)) for one in group]
        try:
            for one, task in zip(group, tasks, strict=True):
                self._answer(turn, one, await task, outcomes)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=2 * foreign.GRACE_SECONDS)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()

    async def _run_one(self, turn: Turn, one: _Pending) -> CallOutcome:
        one.outcome = await self._take_path(turn, one)
        return one.outcome

    async def _take_path(self, turn: Turn, one: _Pending) -> CallOutcome:
        if one.problem is not None:
            return one.problem
        assert one.tool is not None
        assert one.arguments is not None
        name = one.tool.schema.name
        try:
            block = await self.hooks.run_before_tool_call(name, one.arguments, turn.hook_context)
        except HookFailed as exc:
            turn.report(exc)
            return CallOutcome(f"Blocked: {exc}", "blocked")
        if block is not None:
            return CallOutcome(f"Blocked: {block.reason}", "blocked")
        context = self._context(turn, one)
        try:
            permitted = await self.permits.obtain(turn, one.tool, one.arguments, context)
        except Refused as exc:
            return CallOutcome(str(exc), exc.outcome)
        if turn.only_reads(one.call):
            await turn.polls.wait(one.call, clock=self.clock, round_number=turn.round, emit=turn.emit)
        outcome = await self._execute(turn, one, one.tool, permitted, context)
        if turn.only_reads(one.call):
            turn.polls.record(one.call, outcome.text, now=self.clock.monotonic(), round_number=turn.round)
        return await self._reviewed(turn, one, outcome)

    async def _execute(
        self, turn: Turn, one: _Pending, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> CallOutcome:
        limit = tool.timeout if tool.timeout is not None else self.settings.tool_timeout_seconds
        what = f"tool {tool.schema.name!r}"

        async def body() -> tuple[str, bool]:
            value: Any = tool.run(arguments, context)
            if isawaitable(value):
                value = await value
            task = asyncio.current_task()
            late = task is not None and task.cancelling() > 0
            (one.partial if late else one.value).append(value)
            return render(value, self.settings.tool_result_chars)

        await turn.channel.delivered()  # that it was permitted, too
        await turn.journal.began(one.call)
        one.started = self.clock.monotonic()
        beat = self._beat(turn, one)
        try:
            text, truncated = await foreign.call(body, what=what, limit=self.clock.real(limit))
            return CallOutcome(text, "ok", truncated, one.repaired)
        except ForeignError as exc:
            if exc.kind == "timed_out":
                data = {"phase": "tool", "elapsed_seconds": self._elapsed(one), "limit_seconds": limit}
                turn.emit(EventType.STALL, {**data, "action": "failed"})
                text = f"{tool.schema.name} did not finish within {limit:g} s and was ended."
                return self._with_partial(one, CallOutcome(text, "timed_out"))
            return CallOutcome(f"Error: {exc}", "error", repaired=one.repaired)
        except InvalidArguments as exc:
            return CallOutcome(f"Invalid arguments: {exc}", "invalid_arguments", repaired=one.repaired)
        except ToolError as exc:
            text, truncated = render(str(exc), self.settings.tool_result_chars)
            return CallOutcome(text, "error", truncated, one.repaired)
        finally:
            beat.cancel()
            one.over = True

    def _with_partial(self, one: _Pending, outcome: CallOutcome) -> CallOutcome:
        """What is said of the ending, and behind it what the tool had by then."""
        if not one.partial:
            return outcome
        try:
            text, truncated = foreign.call_now(
                render, one.partial[0], self.settings.tool_result_chars, what=f"the output of {one.call.name!r}"
            )
        except ForeignError:
            return outcome
        return replace(outcome, text=f"{outcome.text}\n{text}", truncated=truncated)

    async def _reviewed(self, turn: Turn, one: _Pending, outcome: CallOutcome) -> CallOutcome:
        """What the after_tool_call hooks leave of the result."""
        assert one.tool is not None
        assert one.arguments is not None
        name = one.tool.schema.name
        try:
            text = await self.hooks.run_after_tool_call(name, one.arguments, outcome.text, turn.hook_context)
        except HookFailed as exc:
            turn.report(exc)
            return CallOutcome(f"The result is withheld: {exc}", "error", repaired=outcome.repaired)
        if text == outcome.text:
            return outcome
        text, truncated = render(text, self.settings.tool_result_chars)
        return CallOutcome(text, outcome.outcome, outcome.truncated or truncated, outcome.repaired)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, turn: Turn, one: _Pending, outcome: CallOutcome, outcomes: list[CallOutcome]) -> None:
        one.over = True
        text = clean_text(outcome.text)  # reasons of hooks and gates are foreign text
        data: dict[str, Any] = {
            "tool_call_id": one.call.id,
            "name": one.call.name,
            "result": text,
            "is_error": outcome.outcome != "ok",
            "outcome": outcome.outcome,
        }
        if one.started is not None:
            data["duration_ms"] = round((self.clock.monotonic() - one.started) * 1000, 3)
        if outcome.truncated:
            data["truncated"] = True
        if outcome.repaired:
            data["repaired"] = True
        turn.remember(ToolMessage(tool_call_id=one.call.id, name=one.call.name, content=text, outcome=outcome.outcome))
        turn.emit(EventType.TOOL_RESULT, data)
        outcomes.append(outcome)

    def _unanswered(self, one: _Pending) -> CallOutcome:
        """The answer of a call that an ending turn cut off; one that had finished is told as it was.

        Unless a hook has yet to see the result: hooks guard, so what they did not let pass is not told.
        """
        if one.outcome is not None:
            return one.outcome
        if one.value and self.hooks.has("after_tool_call"):
            return CallOutcome(NOT_REVIEWED, "cancelled")
        if one.value:
            value = one.value[0]
            text = value if isinstance(value, str) else f"(finished with a {type(value).__name__})"
            text, truncated = render(text, self.settings.tool_result_chars)
            return CallOutcome(text, "ok", truncated, one.repaired)
        if one.problem is not None or one.started is None:
            return one.problem or CallOutcome(NOT_STARTED, "cancelled")
        cancelled = CallOutcome(CANCELLED, "cancelled")
        return cancelled if self.hooks.has("after_tool_call") else self._with_partial(one, cancelled)

    # --- what a tool may say while it runs ----------------------------------------------------------------------------

    def _context(self, turn: Turn, one: _Pending) -> ToolContext:
        loop, home_thread = asyncio.get_running_loop(), threading.get_ident()

        def emit(type_: str, payload: Mapping[str, Any]) -> None:
            event_type, data = self._tool_event(one, type_, payload)
            if threading.get_ident() == home_thread:
                put(event_type, data)
            else:
                loop.call_soon_threadsafe(put, event_type, data)

        def put(event_type: EventType, data: dict[str, Any]) -> None:
            if not one.over:
                turn.emit(event_type, data)

        return ToolContext(
            workspace=turn.session.workspace,
            call_id=one.call.id,
            session_id=turn.session.id,
            agent_id=turn.agent_id,
            state=turn.session.state,
            clock=self.clock,
            emit=emit,
            afterwards=turn.afterwards,
            started=partial(turn.journal.started, one.call),
            protected_roots=self.settings.private_paths,
            snapshots=turn.session.snapshots,
        )

    def _tool_event(self, one: _Pending, type_: str, payload: Mapping[str, Any]) -> tuple[EventType, dict[str, Any]]:
        if type_ not in _TOOL_EVENTS:
            allowed = ", ".join(sorted(_TOOL_EVENTS))
            raise ToolError(f"a tool cannot emit {type_!r}; it may emit {allowed}")
        try:
            data: dict[str, Any] = json.loads(
                clean_text(json.dumps(dict(payload), allow_nan=False, ensure_ascii=False))
            )
        except (TypeError, ValueError) as exc:
            raise ToolError(f"the payload of {type_!r} is not JSON: {exc}") from exc
        if type_ == EventType.TOOL_PROGRESS:
            return EventType(type_), self._progress(one) | ({"output": str(data["output"])} if "output" in data else {})
        try:
            check_payload(EventType(type_), data)
        except ValueError as exc:
            raise ToolError(f"the payload of {type_!r} does not fit the contract: {exc}") from exc
        return EventType(type_), data

    def _progress(self, one: _Pending) -> dict[str, Any]:
        return {"tool_call_id": one.call.id, "name": one.call.name, "elapsed_seconds": self._elapsed(one)}

    def _elapsed(self, one: _Pending) -> float:
        return 0.0 if one.started is None else round(self.clock.monotonic() - one.started, 3)

    def _beat(self, turn: Turn, one: _Pending) -> _Beat:
        return _Beat(self.clock.real(BEAT_SECONDS), lambda: turn.emit(EventType.TOOL_PROGRESS, self._progress(one)))


class _Beat:
    """Calls `say` every `period` real seconds until cancelled; costs nothing for calls that are quick."""

    def __init__(self, period: float, say: Any) -> None:
        self._period = period
        self._say = say
        self._handle = asyncio.get_running_loop().call_later(period, self._tick)

    def _tick(self) -> None:
        self._say()
        self._handle = asyncio.get_running_loop().call_later(self._period, self._tick)

    def cancel(self) -> None:
        self._handle.cancel()


def _groups(pending: Sequence[_Pending]) -> Iterator[list[_Pending]]:
    """Neighbouring harmless calls together, every other call by itself."""
    for parallel, group in groupby(pending, key=lambda one: one.parallel):
        if parallel:
            yield list(group)
        else:
            yield from ([one] for one in group)


def _validated(one: _Pending, arguments: dict[str, Any]) -> _Pending:
    assert one.tool is not None
    try:
        one.arguments = validate(one.tool, arguments)
    except InvalidArguments as exc:
        one.problem = CallOutcome(f"Invalid arguments: {exc}", "invalid_arguments", repaired=False)
        one.repaired = False
    return one


def _judged(call: ToolCall, verdict: Verdict) -> _Pending:
    """A call that is the turn's answer: nobody runs it."""
    try:
        arguments = parse_arguments(call.arguments)
    except InvalidArguments:
        arguments = None
    return _Pending(call, None, arguments, CallOutcome(verdict.text, verdict.outcome))


def _unknown_tool(turn: Turn, call: ToolCall) -> CallOutcome:
    known = ", ".join([*turn.tools.names, *turn.output.tool_names]) or "none"
    return CallOutcome(f"unknown tool {call.name!r}; known tools: {known}", "unknown_tool")
