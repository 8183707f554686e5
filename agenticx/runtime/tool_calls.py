"""The calls of one round: read, checked, permitted, run, and answered, each exactly once and in call order.

The path of one call, each step able to answer it instead of the next:

    known tool? → arguments parse and fit? → before_tool_call hooks → mode and rules → confirm gate → still what was
    shown? → run, under a time-out → after_tool_call hooks → result
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import groupby
from typing import Any

from agenticx import foreign
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, HookFailed, InvalidArguments, ToolError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import ToolCall, ToolMessage, clean_text
from agenticx.runtime.call_reading import CallOutcome, PendingCall, read_call
from agenticx.runtime.events import EventType, check_payload
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.output import Verdict
from agenticx.runtime.permits import Permits, Refused
from agenticx.runtime.slots import Slot, slots
from agenticx.runtime.tool_output import finished, is_large, render, rendered
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.threads import run_sized
from agenticx.tools.base import Tool, ToolContext, ToolOutput

__all__ = ["CallOutcome", "ToolCalls"]

BEAT_SECONDS = 2.0
CANCELLED = "Cancelled: the turn ended before this call was answered; whether it took effect is not known."
NOT_REVIEWED = "Cancelled: the call took effect, but the turn ended before its result was released by its hooks."
NOT_STARTED = "Cancelled: the turn ended before this call began to run."

_TOOL_EVENTS = frozenset(
    {EventType.TOOL_PROGRESS, EventType.ARTIFACT, EventType.CITATION, EventType.HANDOFF}
    | {type_ for type_ in EventType if type_.value.startswith("subagent_")} - {EventType.SUBAGENT_PAUSED}
)

_log = get_logger(__name__)


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
        return await self._answer_all(turn, calls, cut=cut, announced=False)

    async def take_up(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallOutcome]:
        """Answer calls that a turn had told of before it was cut off, and of which none had begun."""
        return await self._answer_all(turn, calls, cut=False, announced=True)

    async def _answer_all(
        self, turn: Turn, calls: Sequence[ToolCall], *, cut: bool, announced: bool
    ) -> list[CallOutcome]:
        pending = [PendingCall(call, call.arguments) for call in calls]
        outcomes: list[CallOutcome] = []
        try:
            try:
                verdicts: Mapping[str, Verdict] = {} if announced else await _verdicts(turn, calls, cut=cut)
                for one in pending:
                    await read_call(turn, one, cut=cut, verdict=verdicts.get(one.call.id))
            finally:
                if not announced:
                    self._announce(turn, pending)
            await turn.channel.delivered()  # whoever follows the turn has the calls before anything runs
            for group in _groups(pending):
                await self._run_group(turn, group, outcomes)
        finally:
            for one in pending[len(outcomes) :]:
                self._answer(turn, one, self._unanswered(one), outcomes)
        turn.enter("observing")
        return outcomes

    def _announce(self, turn: Turn, pending: Sequence[PendingCall]) -> None:
        turn.enter("executing")
        for one in pending:
            data = {"tool_call_id": one.call.id, "name": one.call.name, "arguments": one.said}
            turn.emit(EventType.TOOL_CALL, data)

    # --- running ------------------------------------------------------------------------------------------------------

    async def _run_group(self, turn: Turn, group: list[PendingCall], outcomes: list[CallOutcome]) -> None:
        """Run one call, or several side by side; results come out in call order as soon as they can.

        An error of the engine in one of them ends the others.
        """
        places = slots(len(group))
        if len(group) == 1:
            self._answer(turn, group[0], await self._run_one(turn, group[0], places[0]), outcomes)
            return
        pairs = zip(group, places, strict=True)
        tasks = [asyncio.create_task(self._run_one(turn, one, slot)) for one, slot in pairs]
        broken = _first_failure(tasks)
        try:
            for one, task in zip(group, tasks, strict=True):
                await asyncio.wait({task, broken}, return_when=asyncio.FIRST_COMPLETED)
                outcome = (broken.result() if broken.done() else task).result()
                self._answer(turn, one, outcome, outcomes)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=2 * foreign.GRACE_SECONDS)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()

    async def _run_one(self, turn: Turn, one: PendingCall, slot: Slot) -> CallOutcome:
        try:
            if one.problem is None:  # before anything is asked: nothing may change between the permission and the call
                await turn.polls.wait(one.call, clock=self.clock, round_number=turn.round, emit=turn.emit)
            await slot.take()
            one.outcome = await self._take_path(turn, one, slot)
            return one.outcome
        finally:
            slot.leave()

    async def _take_path(self, turn: Turn, one: PendingCall, slot: Slot) -> CallOutcome:
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
            permitted = await self.permits.obtain(turn, one.tool, one.arguments, context, slot)
        except Refused as exc:
            return CallOutcome(str(exc), exc.outcome)
        slot.settle()
        one.repaired = one.repaired or permitted.repaired
        outcome = await self._execute(turn, one, one.tool, permitted.arguments, context)
        if turn.only_reads(one.call):
            turn.polls.record(one.call, outcome.text, now=self.clock.monotonic(), round_number=turn.round)
        return await self._reviewed(turn, one, outcome)

    async def _execute(
        self, turn: Turn, one: PendingCall, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> CallOutcome:
        await turn.channel.delivered()  # that it was permitted, too
        await turn.journal.began(one.call)
        one.started = self.clock.monotonic()
        beat = self._beat(turn, one)
        try:
            outcome = await self._under_time_out(turn, one, tool, self._contained(one, tool, arguments, context))
        finally:
            beat.cancel()
            one.over, one.ended = True, self.clock.monotonic()
        if one.failure is not None:
            raise one.failure
        return outcome

    def _contained(
        self, one: PendingCall, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> Callable[[], Awaitable[CallOutcome]]:
        """The call of the tool itself; any error of our tree that it raises is its result."""
        limit = self.settings.tool_result_chars

        async def body() -> CallOutcome:
            try:
                value: Any = tool.run(arguments, context)
                value = await finished(await value if isawaitable(value) else value)
                task = asyncio.current_task()
                late = task is not None and task.cancelling() > 0
                (one.partial if late else one.value).append(value)
                text, truncated = await rendered(value, limit)
                if late:
                    one.partial[:] = [ToolOutput(text, truncated)]
                return CallOutcome(text, "ok", truncated)
            except InvalidArguments as exc:
                text, truncated = render(f"Invalid arguments: {exc}", limit)
                return CallOutcome(text, "invalid_arguments", truncated)
            except AgenticXError as exc:
                text, truncated = render(str(exc) if isinstance(exc, ToolError) else f"Error: {exc}", limit)
                return CallOutcome(text, "error", truncated)

        return body

    async def _under_time_out(
        self, turn: Turn, one: PendingCall, tool: Tool, body: Callable[[], Awaitable[CallOutcome]]
    ) -> CallOutcome:
        limit = tool.timeout if tool.timeout is not None else self.settings.tool_timeout_seconds
        try:
            return await foreign.call(body, what=f"tool {tool.schema.name!r}", limit=self.clock.real(limit))
        except UserCodeError as exc:
            if exc.kind != "timed_out":
                return CallOutcome(f"Error: {exc}", "error")
        data = {"phase": "tool", "elapsed_seconds": self._elapsed(one), "limit_seconds": limit}
        turn.emit(EventType.STALL, {**data, "action": "failed"})
        text = f"{tool.schema.name} did not finish within {limit:g} s and was ended."
        return self._with_partial(one, CallOutcome(text, "timed_out"))

    def _with_partial(self, one: PendingCall, outcome: CallOutcome) -> CallOutcome:
        """Add to an ending what the tool had by then; a large value only if it is rendered already."""
        if not one.partial or is_large(one.partial[0]):
            return outcome
        try:
            text, truncated = foreign.call_sync(
                render, one.partial[0], self.settings.tool_result_chars, what=f"the output of {one.call.name!r}"
            )
        except AgenticXError:
            return outcome
        return replace(outcome, text=f"{outcome.text}\n{text}", truncated=truncated)

    async def _reviewed(self, turn: Turn, one: PendingCall, outcome: CallOutcome) -> CallOutcome:
        """What the after_tool_call hooks leave of the result."""
        assert one.tool is not None
        assert one.arguments is not None
        name = one.tool.schema.name
        try:
            text = await self.hooks.run_after_tool_call(name, one.arguments, outcome.text, turn.hook_context)
        except HookFailed as exc:
            turn.report(exc)
            return CallOutcome(f"The result is withheld: {exc}", "error")
        if text == outcome.text:
            return outcome
        text, truncated = render(text, self.settings.tool_result_chars)
        return CallOutcome(text, outcome.outcome, outcome.truncated or truncated)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, turn: Turn, one: PendingCall, outcome: CallOutcome, outcomes: list[CallOutcome]) -> None:
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
            ended = self.clock.monotonic() if one.ended is None else one.ended
            data["duration_ms"] = round((ended - one.started) * 1000, 3)
        if outcome.truncated:
            data["truncated"] = True
        if one.repaired:
            data["repaired"] = True
        turn.remember(ToolMessage(tool_call_id=one.call.id, name=one.call.name, content=text, outcome=outcome.outcome))
        turn.emit(EventType.TOOL_RESULT, data)
        outcomes.append(outcome)

    def _unanswered(self, one: PendingCall) -> CallOutcome:
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
            return CallOutcome(text, "ok", truncated)
        if one.problem is not None or one.started is None:
            return one.problem or CallOutcome(NOT_STARTED, "cancelled")
        cancelled = CallOutcome(CANCELLED, "cancelled")
        return cancelled if self.hooks.has("after_tool_call") else self._with_partial(one, cancelled)

    # --- what a tool may say while it runs ----------------------------------------------------------------------------

    def _context(self, turn: Turn, one: PendingCall) -> ToolContext:
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

        def afterwards(work: Coroutine[Any, Any, None]) -> None:
            if threading.get_ident() == home_thread:
                turn.afterwards(work)
            else:
                loop.call_soon_threadsafe(turn.afterwards, work)

        async def started(process: Mapping[str, Any]) -> None:
            try:
                await turn.journal.started(one.call, process)
            except AgenticXError as exc:
                one.failure = exc
                raise

        return ToolContext(
            workspace=turn.session.workspace,
            call_id=one.call.id,
            session_id=turn.session.id,
            agent_id=turn.agent_id,
            state=turn.session.state,
            clock=self.clock,
            emit=emit,
            afterwards=afterwards,
            started=started,
            protected_roots=self.settings.private_paths,
            snapshots=turn.session.snapshots,
        )

    def _tool_event(self, one: PendingCall, type_: str, payload: Mapping[str, Any]) -> tuple[EventType, dict[str, Any]]:
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

    def _progress(self, one: PendingCall) -> dict[str, Any]:
        return {"tool_call_id": one.call.id, "name": one.call.name, "elapsed_seconds": self._elapsed(one)}

    def _elapsed(self, one: PendingCall) -> float:
        return 0.0 if one.started is None else round(self.clock.monotonic() - one.started, 3)

    def _beat(self, turn: Turn, one: PendingCall) -> _Beat:
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


async def _verdicts(turn: Turn, calls: Sequence[ToolCall], *, cut: bool) -> Mapping[str, Verdict]:
    """Return the answers of the calls that are meant to be the object that the turn ends in."""
    size = sum(len(call.arguments) for call in calls)
    return await run_sized(partial(turn.output.verdicts, calls, cut=cut), size=size, name="agx output")


def _groups(pending: Sequence[PendingCall]) -> Iterator[list[PendingCall]]:
    """Yield neighbouring calls that may run side by side together, every other call by itself."""
    for parallel, group in groupby(pending, key=lambda one: one.parallel):
        if parallel:
            yield list(group)
        else:
            yield from ([one] for one in group)


def _first_failure(tasks: Sequence[asyncio.Task[CallOutcome]]) -> asyncio.Future[asyncio.Task[CallOutcome]]:
    """A future of the first of `tasks` that raises."""
    first: asyncio.Future[asyncio.Task[CallOutcome]] = asyncio.get_running_loop().create_future()

    def look(task: asyncio.Task[CallOutcome]) -> None:
        if not task.cancelled() and task.exception() is not None and not first.done():
            first.set_result(task)

    for task in tasks:
        task.add_done_callback(look)
    return first
