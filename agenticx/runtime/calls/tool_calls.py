"""The calls of one round: read, checked, authorized, run, and answered, each once and in call order.

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
from decimal import Decimal
from functools import partial
from inspect import isawaitable
from itertools import groupby
from typing import Any

from agenticx import user_code
from agenticx.attachments import Attachment
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, CallBlocked, HookFailed, InvalidArguments, ToolError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import ToolCall, ToolMessage, ToolOutcome, clean_text, is_from_user
from agenticx.runtime.calls.asking import Asker, close_resumed
from agenticx.runtime.calls.assessing import CallAssessor
from agenticx.runtime.calls.authorization import authorize
from agenticx.runtime.calls.concurrency import Slot, slots
from agenticx.runtime.calls.loop_watchdog import watched
from agenticx.runtime.calls.questions import ask_for_call
from agenticx.runtime.calls.result_rendering import (
    is_large,
    reject_unfinished,
    render_value,
    render_value_async,
    truncate,
)
from agenticx.runtime.calls.validation import (
    NO_VALUE,
    CallOutcome,
    CallRefused,
    PendingCall,
    ValidatedArguments,
    read_call,
)
from agenticx.runtime.events import TOOL_EVENTS, EventType, check_payload
from agenticx.runtime.structured_output import OutputCallResult
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import ToolResult, TurnChange
from agenticx.runtime.user_requests.edited_arguments import with_edited_arguments
from agenticx.sandbox.options import sandbox_options
from agenticx.settings import PROJECT_FILE, Settings
from agenticx.threads import retrieve_exception, run_sized
from agenticx.tools.base import Tool, ToolOutput, is_untrusted, runs_in_thread
from agenticx.tools.context import SettleCost, ToolContext
from agenticx.tools.result_data import details_to_json

__all__ = ["CallOutcome", "ToolCalls"]

PROGRESS_SECONDS = 2.0
CANCELLED = "Cancelled: the turn ended before this call was answered; whether it took effect is not known."
NOT_REVIEWED = "Cancelled: the call took effect, but the turn ended before its result was released by its hooks."
NOT_STARTED = "Cancelled: the turn ended before this call began to run."

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """The runner of a turn's calls; a frozen set of collaborators."""

    settings: Settings
    clock: Clock

    async def run(self, turn: Turn, calls: Sequence[ToolCall], *, cut: bool = False) -> list[CallOutcome]:
        """Answer every call, in call order; on any exit, also by an error, the remaining ones are answered `cancelled`.

        `cut` is true if the output limit ended the reply, so that none of its calls can be trusted.
        """
        return await self._answer_all(turn, calls, cut=cut, announced=False)

    async def resume(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallOutcome]:
        """Answer the calls that an interrupted turn had announced; none of them had begun."""
        return await self._answer_all(turn, calls, cut=False, announced=True)

    def cancel(self, turn: Turn, calls: Sequence[ToolCall]) -> None:
        """Answer the calls of an interrupted turn that was stopped before it went on."""
        close_resumed(turn)
        for pending in [PendingCall(call, call.arguments) for call in calls]:
            self._answer(turn, pending, self._outcome_at_end(turn, pending), [])

    async def _answer_all(
        self, turn: Turn, calls: Sequence[ToolCall], *, cut: bool, announced: bool
    ) -> list[CallOutcome]:
        pending_calls = [PendingCall(call, call.arguments) for call in calls]
        outcomes: list[CallOutcome] = []
        try:
            try:
                output_results: Mapping[str, OutputCallResult] = (
                    {} if announced else await _output_results(turn, calls, cut=cut)
                )
                for pending in pending_calls:
                    await read_call(turn, pending, cut=cut, output_result=output_results.get(pending.call.id))
            finally:
                if not announced:
                    self._announce(turn, pending_calls)
            await turn.channel.wait_until_written()  # the calls are known to the consumer before any of them runs
            for group in _groups(pending_calls):
                await self._run_group(turn, group, outcomes)
        finally:
            if len(outcomes) < len(pending_calls):
                close_resumed(turn)
            for pending in pending_calls[len(outcomes) :]:
                self._answer(turn, pending, self._outcome_at_end(turn, pending), outcomes)
        turn.enter("observing")
        return outcomes

    def _announce(self, turn: Turn, pending_calls: Sequence[PendingCall]) -> None:
        turn.enter("executing")
        for pending in pending_calls:
            data = {"tool_call_id": pending.call.id, "name": pending.call.name, "arguments": pending.parsed_arguments}
            turn.emit(EventType.TOOL_CALL, data)

    # --- running ------------------------------------------------------------------------------------------------------

    async def _run_group(self, turn: Turn, group: list[PendingCall], outcomes: list[CallOutcome]) -> None:
        """Run one call, or several concurrently; emit results in call order as soon as possible.

        An error of the engine in one of them cancels the others.
        """
        group_slots = slots(len(group))
        if len(group) == 1:
            self._answer(turn, group[0], await self._run_one(turn, group[0], group_slots[0]), outcomes)
            return
        pairs = zip(group, group_slots, strict=True)
        tasks = [asyncio.create_task(self._run_one(turn, pending, slot)) for pending, slot in pairs]
        first_failure = _first_failure(tasks)
        try:
            for pending, task in zip(group, tasks, strict=True):
                await asyncio.wait({task, first_failure}, return_when=asyncio.FIRST_COMPLETED)
                outcome = (first_failure.result() if first_failure.done() else task).result()
                self._answer(turn, pending, outcome, outcomes)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=2 * user_code.GRACE_SECONDS)
            for task in tasks:
                if task.done():
                    retrieve_exception(task)

    async def _run_one(self, turn: Turn, pending: PendingCall, slot: Slot) -> CallOutcome:
        try:
            # Wait before asking, so that nothing changes between the authorization and the call.
            if pending.problem is None:
                await turn.poll_backoff.wait(pending.call, clock=self.clock, round_number=turn.round, emit=turn.emit)
            await slot.acquire()
            pending.outcome = await self._run_steps(turn, pending, slot)
            close_resumed(turn, "restart", pending.call.id)  # of a call that is refused now
            return pending.outcome
        finally:
            slot.close()

    async def _run_steps(self, turn: Turn, pending: PendingCall, slot: Slot) -> CallOutcome:
        if pending.problem is not None:
            return pending.problem
        assert pending.tool is not None
        assert pending.arguments is not None
        if "before_tool_call" in turn.agent.hooks.overridden:
            name = pending.tool.schema.name
            try:
                block = await turn.agent.hooks.run_before_tool_call(
                    name, pending.arguments, turn.hook_context(pending.call)
                )
            except HookFailed as exc:
                turn.report_hook_failure(exc)
                return CallOutcome(f"Blocked: {exc}", "blocked")
            if block is not None:
                return CallOutcome(f"Blocked: {block.reason}", "blocked")
        context = self._context(turn, pending)
        try:
            permitted = await self._answer_or_authorize(turn, pending, context, slot)
        except CallRefused as exc:
            return CallOutcome(str(exc), exc.outcome, sources=exc.sources)
        slot.mark_asked()
        if isinstance(permitted, CallOutcome):
            return await self._run_after_hooks(turn, pending, permitted)
        pending.arguments, pending.edited, pending.rules = permitted.arguments, permitted.edited, permitted.rules
        pending.repaired = pending.repaired or permitted.repaired
        context = replace(context, permitted_risk=permitted.risk)
        outcome = await self._execute(turn, pending, pending.tool, permitted.arguments, context)
        if turn.is_read_only(pending.call):
            turn.poll_backoff.record(pending.call, outcome.text, now=self.clock.monotonic(), round_number=turn.round)
        return await self._run_after_hooks(turn, pending, outcome)

    async def _answer_or_authorize(
        self, turn: Turn, pending: PendingCall, context: ToolContext, slot: Slot
    ) -> CallOutcome | ValidatedArguments:
        """Return the user's answer to a call that is a question, else the arguments with which the call may run.

        Raises `CallRefused`.
        """
        assert pending.tool is not None
        assert pending.arguments is not None
        async with Asker(turn, slot, turn.resumed_requests.pop(pending.call.id, None)) as asker:
            assessor = CallAssessor(turn, pending.tool, context)
            assessment = await assessor.assess(pending.arguments)
            if assessment.asks is not None:
                return await ask_for_call(turn, pending, assessment.asks, asker)
            return await authorize(pending.arguments, assessment, assessor, asker)

    async def _execute(
        self, turn: Turn, pending: PendingCall, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> CallOutcome:
        await turn.channel.wait_until_written()  # the confirmation too
        await turn.journal.record_call(pending.call)
        plan = turn.session.state.plan
        pending.started = self.clock.monotonic()
        timer = self._progress_timer(turn, pending)
        try:
            body = self._tool_body(turn, pending, tool, arguments, context)
            outcome = await self._with_timeout(turn, pending, tool, body)
        finally:
            timer.cancel()
            pending.closed, pending.ended = True, self.clock.monotonic()
        if pending.failure is not None:
            raise pending.failure
        if turn.session.state.plan != plan:
            turn.sources.keep()
        return outcome

    def _tool_body(
        self, turn: Turn, pending: PendingCall, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> Callable[[], Awaitable[CallOutcome]]:
        """Return a function that runs the tool; any error of our tree that it raises becomes its result."""
        limit = self.settings.tool_result_chars

        async def body() -> CallOutcome:
            if _is_to_end(turn):  # the cancellation of this new task is on its way
                pending.started = None
                raise asyncio.CancelledError
            try:
                with watched(tool.schema.name):
                    value: Any = tool.run(arguments, context)
                    value = await reject_unfinished(await value if isawaitable(value) else value)
                task = asyncio.current_task()
                late = task is not None and task.cancelling() > 0
                pending.keep(value, late=late)
                effect = await value.tool_result(turn.agents) if isinstance(value, TurnChange) else None
                if effect is not None:
                    pending.keep(effect, late=late)
                output = await render_value_async(value if effect is None else effect.text, limit)
                if late:
                    pending.partial = replace(output, attachments=())
                return CallOutcome(
                    output.text,
                    truncated=output.truncated,
                    effect=effect,
                    sources=output.sources,
                    attachments=output.attachments,
                    details=output.details,
                )
            except InvalidArguments as exc:
                text, truncated = truncate(f"Invalid arguments: {exc}", limit)
                return CallOutcome(text, "invalid_arguments", truncated=truncated)
            except AgenticXError as exc:
                text, truncated = truncate(str(exc) if isinstance(exc, ToolError) else f"Error: {exc}", limit)
                outcome: ToolOutcome = "blocked" if isinstance(exc, CallBlocked) else "error"
                sources = exc.sources if isinstance(exc, ToolError) else ()
                return CallOutcome(text, outcome, truncated=truncated, sources=sources)

        return body

    async def _with_timeout(
        self, turn: Turn, pending: PendingCall, tool: Tool, body: Callable[[], Awaitable[CallOutcome]]
    ) -> CallOutcome:
        limit = tool.timeout if tool.timeout is not None else self.settings.tool_timeout_seconds
        try:
            return await user_code.call(body, what=f"tool {tool.schema.name!r}", limit=self.clock.real(limit))
        except UserCodeError as exc:
            if exc.kind != "timed_out":
                return CallOutcome(f"Error: {exc}", "error")
        data = {"phase": "tool", "elapsed_seconds": self._elapsed(pending), "limit_seconds": limit}
        turn.emit(EventType.STALL, {**data, "action": "failed"})
        source = ""
        if tool.timeout is None and "tool_timeout_seconds" in self.settings.from_workspace:
            source = f" (tool_timeout_seconds in {PROJECT_FILE})"
        text, end = f"{tool.schema.name} did not finish within {limit:g} s{source}", " and was ended."
        if runs_in_thread(tool):
            end = "; it may still take effect, as its thread cannot be ended."
            fields = {"tool_name": tool.schema.name, "call_id": pending.call.id}
            _log.warning("tool timed out; its thread cannot be ended", **fields, seconds=limit)
        return self._with_partial(pending, CallOutcome(text + end, "timed_out"))

    def _with_partial(self, pending: PendingCall, outcome: CallOutcome) -> CallOutcome:
        """Add to `outcome` the output that the tool had so far; a large value only if it is rendered already."""
        if pending.partial is NO_VALUE or is_large(pending.partial):
            return outcome
        try:
            output: ToolOutput = user_code.call_sync(
                render_value,
                pending.partial,
                self.settings.tool_result_chars,
                what=f"the output of {pending.call.name!r}",
            )
        except AgenticXError:
            return outcome
        return replace(outcome, text=f"{outcome.text}\n{output.text}", truncated=output.truncated)

    async def _run_after_hooks(self, turn: Turn, pending: PendingCall, outcome: CallOutcome) -> CallOutcome:
        """Return the result as the after_tool_call hooks leave it."""
        if "after_tool_call" not in turn.agent.hooks.overridden:
            return outcome
        assert pending.tool is not None
        assert pending.arguments is not None
        name = pending.tool.schema.name
        try:
            text = await turn.agent.hooks.run_after_tool_call(
                name, pending.arguments, outcome.text, turn.hook_context(pending.call)
            )
        except HookFailed as exc:
            turn.report_hook_failure(exc)
            return CallOutcome(f"The result is withheld: {exc}", "error")
        if text == outcome.text:
            return outcome
        text, truncated = truncate(text, self.settings.tool_result_chars)
        return replace(outcome, text=text, truncated=outcome.truncated or truncated, attachments=(), details=None)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, turn: Turn, pending: PendingCall, outcome: CallOutcome, outcomes: list[CallOutcome]) -> None:
        pending.closed = True
        if outcome.effect is not None and (obstacle := turn.apply_result(outcome.effect)) is not None:
            outcome = CallOutcome(f"Blocked: {obstacle}.", "blocked")
        text = outcome.text
        if pending.edited is not None and pending.started is not None:
            text = with_edited_arguments(text, pending.edited)
        text = clean_text(text)  # reasons of hooks and gates are untrusted text
        own = [pending.call.name] if _has_foreign_result(pending) and not outcome.sources else []
        sources = tuple(dict.fromkeys([*outcome.sources, *own, *turn.sources.take_child_sources()]))
        data: dict[str, Any] = {
            "tool_call_id": pending.call.id,
            "name": pending.call.name,
            "result": text,
            "is_error": outcome.outcome != "ok",
            "outcome": outcome.outcome,
        }
        if pending.started is not None:
            ended = self.clock.monotonic() if pending.ended is None else pending.ended
            data["duration_ms"] = round((ended - pending.started) * 1000, 3)
        if outcome.truncated:
            data["truncated"] = True
        if pending.repaired:
            data["repaired"] = True
        if pending.rules:
            data["allowed_by"] = [rule.to_json() for rule in pending.rules]
        if outcome.attachments:
            data["attachments"] = [dict(file.summary) for file in outcome.attachments]
        if outcome.details is not None:
            data["data"] = details_to_json(outcome.details)
        if sources:
            data |= {"untrusted": True, "sources": list(sources)}
        turn.artifact_events.drop_previews([pending.call.id])
        turn.history.append(
            ToolMessage(
                tool_call_id=pending.call.id,
                name=pending.call.name,
                content=text,
                outcome=outcome.outcome,
                attachments=outcome.attachments,
                sources=sources,
            )
        )
        turn.emit(EventType.TOOL_RESULT, data)
        outcomes.append(outcome)

    def _outcome_at_end(self, turn: Turn, pending: PendingCall) -> CallOutcome:
        """Return the result of a call that was unanswered when the turn ended; a finished call keeps its own.

        If after_tool_call hooks have not seen the result yet, it is withheld: hooks are guards.
        """
        if pending.outcome is not None:
            return pending.outcome
        if pending.value is not NO_VALUE and "after_tool_call" in turn.agent.hooks.overridden:
            return CallOutcome(NOT_REVIEWED, "cancelled")
        if (value := pending.value) is not NO_VALUE:
            value = value.text if isinstance(value, ToolResult) else value
            text = value if isinstance(value, str) else f"(finished with a {type(value).__name__})"
            text, truncated = truncate(text, self.settings.tool_result_chars)
            return CallOutcome(text, truncated=truncated)
        if pending.problem is not None or pending.started is None:
            return pending.problem or CallOutcome(NOT_STARTED, "cancelled")
        cancelled = CallOutcome(CANCELLED, "cancelled")
        return cancelled if "after_tool_call" in turn.agent.hooks.overridden else self._with_partial(pending, cancelled)

    # --- events of a running tool ---------------------------------------------------------------------------------

    def _context(self, turn: Turn, pending: PendingCall) -> ToolContext:
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

        def on_loop(function: Callable[..., object], *arguments: Any) -> None:
            """Call `function` on the event loop: now if this is its thread, else soon."""
            if threading.get_ident() == loop_thread:
                function(*arguments)
            else:
                loop.call_soon_threadsafe(function, *arguments)

        def emit(type_: str, payload: Mapping[str, Any]) -> None:
            on_loop(put, *self._tool_event(pending, type_, payload))

        def put(event_type: EventType, data: dict[str, Any]) -> None:
            if pending.closed:
                return
            if event_type is EventType.ARTIFACT:
                turn.artifact_events.emit(data)
            else:
                turn.emit(event_type, data)

        def reserve_cost(name: str, cost_usd: Decimal | None) -> SettleCost:
            return partial(on_loop, turn.usage.reserve_cost(name, cost_usd))

        async def started(process: Mapping[str, Any]) -> None:
            try:
                await turn.journal.record_process(pending.call, process)
            except AgenticXError as exc:
                pending.failure = exc
                raise

        return ToolContext(
            workspace=turn.session.workspace,
            deps=turn.deps,
            call_id=pending.call.id,
            session_id=turn.session_id,
            turn_id=turn.id,
            agent_id=turn.agent_id,
            state=turn.session.state,
            clock=self.clock,
            emit=emit,
            add_background_task=partial(_add_background_task, turn, on_loop),
            record_process=started,
            protected_roots=self.settings.private_paths,
            snapshots=turn.session.snapshots,
            reserve_cost=reserve_cost,
            attachments=partial(_attached_files, turn),
            artifacts=turn.session.artifacts,
            preview=turn.artifact_events.previews.get(pending.call.id),
            raise_if_stopped=partial(_raise_if_stopped, turn, pending),
            sandbox=sandbox_options(self.settings),
        )

    def _tool_event(
        self, pending: PendingCall, type_: str, payload: Mapping[str, Any]
    ) -> tuple[EventType, dict[str, Any]]:
        if type_ not in TOOL_EVENTS:
            allowed = ", ".join(sorted(TOOL_EVENTS))
            raise ToolError(f"a tool cannot emit {type_!r}; it may emit {allowed}")
        try:
            data: dict[str, Any] = json.loads(
                clean_text(json.dumps(dict(payload), allow_nan=False, ensure_ascii=False))
            )
        except (TypeError, ValueError) as exc:
            raise ToolError(f"the payload of {type_!r} is not JSON: {exc}") from exc
        if type_ == EventType.ARTIFACT:
            data["tool_call_id"] = pending.call.id
        if type_ == EventType.TOOL_PROGRESS:
            return EventType(type_), self._progress(pending) | (
                {"output": str(data["output"])} if "output" in data else {}
            )
        try:
            check_payload(EventType(type_), data)
        except ValueError as exc:
            raise ToolError(f"the payload of {type_!r} is invalid: {exc}") from exc
        return EventType(type_), data

    def _progress(self, pending: PendingCall) -> dict[str, Any]:
        return {"tool_call_id": pending.call.id, "name": pending.call.name, "elapsed_seconds": self._elapsed(pending)}

    def _elapsed(self, pending: PendingCall) -> float:
        return 0.0 if pending.started is None else round(self.clock.monotonic() - pending.started, 3)

    def _progress_timer(self, turn: Turn, pending: PendingCall) -> _ProgressTimer:
        return _ProgressTimer(
            self.clock.real(PROGRESS_SECONDS), lambda: turn.emit(EventType.TOOL_PROGRESS, self._progress(pending))
        )


def _attached_files(turn: Turn) -> Sequence[Attachment]:
    """Return the files that the user attached to the conversation and its ancestors', newest first."""
    messages = (message for one in turn.lineage for message in reversed(one.session.messages))
    return [file for message in messages if is_from_user(message) for file in message.attachments]


def _add_background_task(turn: Turn, on_loop: Callable[..., None], work: Coroutine[Any, Any, None]) -> None:
    try:
        on_loop(turn.background.run, work)
    except RuntimeError:  # the loop is closed
        work.close()
        raise


def _raise_if_stopped(turn: Turn, pending: PendingCall) -> None:
    """Raise `ToolError` if the call may not begin any more; may be called in any thread."""
    if pending.closed or _is_to_end(turn):
        raise ToolError(NOT_STARTED)


def _has_foreign_result(pending: PendingCall) -> bool:
    """Return whether the call began, so that even its error may have a text of others, as its tool says of itself."""
    return pending.started is not None and pending.tool is not None and is_untrusted(pending.tool)


def _is_to_end(turn: Turn | None) -> bool:
    """Return whether the turn, or an ancestor that it does not outlive, is to end."""
    while turn is not None:
        if turn.interrupts.is_requested:
            return True
        turn = None if turn.context.detached else turn.context.parent
    return False


class _ProgressTimer:
    """A timer that calls `emit_progress` every `period` real seconds until cancelled; quick calls cost nothing."""

    def __init__(self, period: float, emit_progress: Any) -> None:
        self._period = period
        self._emit_progress = emit_progress
        self._handle = asyncio.get_running_loop().call_later(period, self._tick)

    def _tick(self) -> None:
        self._emit_progress()
        self._handle = asyncio.get_running_loop().call_later(self._period, self._tick)

    def cancel(self) -> None:
        self._handle.cancel()


async def _output_results(turn: Turn, calls: Sequence[ToolCall], *, cut: bool) -> Mapping[str, OutputCallResult]:
    """Return the results of the calls that submit the turn's output object."""
    size = sum(len(call.arguments) for call in calls)
    return await run_sized(partial(turn.output.submit_calls, calls, cut=cut), size=size, name="agx output")


def _groups(pending_calls: Sequence[PendingCall]) -> Iterator[list[PendingCall]]:
    """Yield neighbouring calls that may run concurrently as one group, every other call by itself."""
    for parallel, group in groupby(pending_calls, key=lambda pending: pending.parallel):
        if parallel:
            yield list(group)
        else:
            yield from ([pending] for pending in group)


def _first_failure(tasks: Sequence[asyncio.Task[CallOutcome]]) -> asyncio.Future[asyncio.Task[CallOutcome]]:
    """Return a future for the first of `tasks` that raises; the task is its result."""
    first: asyncio.Future[asyncio.Task[CallOutcome]] = asyncio.get_running_loop().create_future()

    def set_first(task: asyncio.Task[CallOutcome]) -> None:
        if not task.cancelled() and task.exception() is not None and not first.done():
            first.set_result(task)

    for task in tasks:
        task.add_done_callback(set_first)
    return first
