"""The endings of a turn: the on_agent_end hooks, the state `done`, and the one terminal event."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from agenticx.clocks import Clock, rfc3339
from agenticx.errors import (
    AgenticXError,
    ClockExpired,
    HookFailed,
    ModelError,
    ResourcesExhausted,
    SettingsError,
    StoreError,
    WorkFailed,
)
from agenticx.llms.base import Usage
from agenticx.logs import get_logger
from agenticx.messages import AssistantMessage, ToolMessage, clean_text, new_id
from agenticx.runtime.budgets.usage_payload import usage_data
from agenticx.runtime.calls.loop_check import LoopStopped
from agenticx.runtime.events import EventType
from agenticx.runtime.interrupts import TurnInterrupted, cancel_and_wait
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import EndReason
from agenticx.runtime.turn_context import WorkResult
from agenticx.threads import run_sized
from agenticx.tools.artifacts.extraction import extract_html
from agenticx.tools.artifacts.paths import is_artifact_path
from agenticx.tools.artifacts.preview import DEFAULT_PATH

__all__ = ["Endings", "RoundsExhausted"]

FinalReason = Literal["partial"] | EndReason

CHECKPOINT_ROUNDS = 8
STOPPED_HOOKS_SECONDS = 0.1

_log = get_logger(__name__)


class RoundsExhausted(AgenticXError):
    """Raised when a turn used all of its rounds without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """The ways in which a turn ends.

    Each method but `checkpoint` emits the terminal event; no event may follow it.
    """

    clock: Clock

    async def final(self, turn: Turn, text: str, message_id: str, reason: FinalReason, **more: str) -> None:
        """End the turn with an answer, whole or partial, or because a call ended it."""
        await self._end_work(turn, reason, text)
        if reason == "handoff":
            turn.emit(EventType.HANDOFF, turn.change.handoff_data(turn.agent.name))
        await _cite(turn, text, message_id)
        await _keep_page(turn, text)
        turn.enter("done")
        data = {
            "text": text,
            "message_id": message_id,
            "reason": reason,
            "usage": usage_data(turn.usage.total or Usage()),
        }
        turn.emit(EventType.FINAL, {**data, **turn.output.data, **more})

    async def ended_by_call(self, turn: Turn, text: str, message_id: str) -> None:
        """End the turn as a call asked, with the text of the reply that made it, else the text that the call gave."""
        ending, answer = turn.change.ending, clean_text(turn.change.answer)
        reason = ending or "answer"
        if text or not answer or ending is None:
            return await self.final(turn, text, message_id, reason)
        message_id = new_id("msg")
        turn.history.append(AssistantMessage(content=answer, message_id=message_id))
        await self._emit_answer(turn, answer, message_id, reason)

    async def failed(self, turn: Turn, failure: AgenticXError) -> None:
        """End the turn with the fatal error event of `failure`."""
        code, more = self._error_code(failure)
        await self._end_work(turn, code, turn.last_text)
        turn.enter("done")
        turn.emit(EventType.ERROR, {"text": str(failure), "code": code, "fatal": True, **more})

    async def paused(self, turn: Turn) -> None:
        """Pause a sub-agent that is out of rounds; it can continue from its checkpoint."""
        await self._end_work(turn, "paused", turn.last_text)
        turn.enter("done")
        checkpoint = {
            "messages": len(turn.session.messages),
            "last_text": turn.last_text,
            "todos": [dict(todo) for todo in turn.session.state.todos],
        }
        turn.emit(EventType.SUBAGENT_PAUSED, {**_rounds(turn), "checkpoint": checkpoint})

    async def out_of_rounds(self, turn: Turn) -> None:
        """End a turn that has used all of its rounds; raise `RoundsExhausted` if that is an error."""
        if turn.on_exhausted == "pause":
            return await self.paused(turn)
        if turn.on_exhausted == "summary":
            text, message_id = _last_results(turn), new_id("msg")
            return await self._emit_answer(turn, text, message_id, "partial")
        raise RoundsExhausted(f"The turn used all of its {turn.max_rounds} rounds without an answer.")

    async def work_done(self, turn: Turn, result: WorkResult) -> None:
        """End the turn with the result of its work."""
        message_id, text = new_id("msg"), clean_text(result.text)
        if text:
            turn.history.append(AssistantMessage(content=text, message_id=message_id))
        more = {} if result.stop_reason is None else {"stop_reason": clean_text(result.stop_reason)}
        await self._emit_answer(turn, text, message_id, "answer", **more)

    async def _emit_answer(self, turn: Turn, text: str, message_id: str, reason: FinalReason, **more: str) -> None:
        if text:
            turn.emit(EventType.TOKEN, {"text": text, "message_id": message_id, "offset": 0})
        await self.final(turn, text, message_id, reason, **more)

    async def partial_answer(self, turn: Turn, text: str) -> None:
        """End the turn with a partial answer that no model wrote."""
        message_id = new_id("msg")
        turn.history.append(AssistantMessage(content=text, message_id=message_id))
        turn.enter("responding")
        await self._emit_answer(turn, text, message_id, "partial")

    def checkpoint(self, turn: Turn) -> None:
        """Emit `subagent_checkpoint` after every eighth round of a sub-agent."""
        if turn.on_exhausted == "pause" and turn.round % CHECKPOINT_ROUNDS == 0:
            turn.emit(EventType.SUBAGENT_CHECKPOINT, _rounds(turn))

    def _error_code(self, failure: AgenticXError) -> tuple[str, dict[str, Any]]:
        """Return the error code of a failure and the additional fields of its event."""
        match failure:
            case TurnInterrupted():
                return failure.reason, {}
            case ModelError():
                return failure.code, self._retry_data(failure)
            case WorkFailed():
                return failure.code, {"retryable": failure.retryable}
            case LoopStopped():
                return "loop_detected", {"detector": failure.detector}
            case RoundsExhausted():
                return "max_rounds", {}
            case HookFailed():
                return "hook_failed", {}
            case StoreError():
                return "storage", {}
            case ResourcesExhausted() | SettingsError():
                _log.error("the turn failed", error=str(failure))
                return "internal", {}
            case _:
                _log.error("the turn failed", exc_info=failure)
                return "internal", {}

    def _retry_data(self, failure: ModelError) -> dict[str, Any]:
        if isinstance(failure, ClockExpired) or failure.retry_after is None:
            return {"retryable": failure.retryable or isinstance(failure, ClockExpired)}
        at = self.clock.now() + timedelta(seconds=failure.retry_after)
        return {"retryable": failure.retryable, "retry_at": rfc3339(at)}

    async def _end_work(self, turn: Turn, reason: str, text: str) -> None:
        """End the child turns, report the sources, and run the on_agent_end hooks."""
        await turn.children.end()
        turn.sources.report(detached=turn.context.detached)
        await self._run_end_hooks(turn, reason, text)

    async def _run_end_hooks(self, turn: Turn, reason: str, text: str) -> None:
        """Run the on_agent_end hooks, if there are any.

        After a stop they delay the terminal event by at most 100 ms and then continue in the background.
        """
        if "on_agent_end" not in turn.agent.hooks.overridden:
            return
        work = turn.agent.hooks.run_on_agent_end(reason, text, turn.hook_context(), turn.report_hook_failure)
        task = asyncio.create_task(work, name="agx on_agent_end")
        try:
            with suppress(TurnInterrupted):
                async with turn.renew_interrupts():
                    await asyncio.wait({task})
            await asyncio.wait({task}, timeout=STOPPED_HOOKS_SECONDS)
        except asyncio.CancelledError:
            await cancel_and_wait(task)
            raise
        if task.done():
            return task.result()
        turn.background.run(_wait_for(task))


async def _keep_page(turn: Turn, text: str) -> None:
    """Store a web page in the answer as a file of the session, if the turn has `create_file` and the session no file.

    Some models write the page as text, whatever tools they have. Its path is that of its `<file>` wrapper if a file of
    a session may have it, else `index.html`.
    """
    if not text or "create_file" not in turn.agent.tools or turn.session.artifacts.current:
        return
    page = await run_sized(extract_html, text, size=len(text), name="agx page")
    if page is None:
        return
    path = DEFAULT_PATH if page.path is None or not is_artifact_path(page.path) else page.path
    try:
        artifact = await turn.session.artifacts.write(path, page.html.encode())
    except AgenticXError as exc:
        if isinstance(exc, StoreError):
            raise
        _log.warning("page in an answer is not kept as a file", error=str(exc))
        return
    turn.artifact_events.emit(artifact.event_data(page.html))


async def _cite(turn: Turn, text: str, message_id: str) -> None:
    """Emit the citations of an answer; if the notes cannot be read, log that and emit none."""
    if turn.context.notes is None or not text:
        return
    try:
        citations = await turn.context.notes.cite(turn.session, text)
    except AgenticXError as exc:
        _log.warning("the citations of an answer could not be checked", error=str(exc))
        return
    for citation in citations:
        turn.emit(EventType.CITATION, {"message_id": message_id, **citation})


def _last_results(turn: Turn) -> str:
    """Return the results of the last round with calls, one per line."""
    results: list[str] = []
    for message in reversed(turn.session.messages):
        if isinstance(message, AssistantMessage):
            break
        if isinstance(message, ToolMessage):
            results.insert(0, message.content)
    return "\n".join(results)


async def _wait_for(task: asyncio.Task[None]) -> None:
    await task


def _rounds(turn: Turn) -> dict[str, Any]:
    *ancestors, _ = turn.lineage.agent_path
    parent = {"parent_agent_id": ancestors[-1] if ancestors else None, "depth": len(ancestors)}
    return {"round": turn.round, "max_rounds": turn.max_rounds, **parent}
