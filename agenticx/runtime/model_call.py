"""One call of the model under its clocks: its deltas become events as they come, its reply is kept however it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agenticx.clocks import rfc3339
from agenticx.errors import ModelError
from agenticx.llms.base import Attempt, ChatModel, ModelRequest, Reply, Usage, failed_reply_error
from agenticx.messages import clean_text
from agenticx.runtime.deadlines import Deadlines, Expiry, ModelClocks, ModelStream
from agenticx.runtime.events import EventType
from agenticx.runtime.expiry import clock_expired
from agenticx.runtime.reply_writer import ReplyWriter
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_log import LlmCallLine

__all__ = ["call_model"]


async def call_model(turn: Turn, model: ChatModel, request: ModelRequest, clocks: ModelClocks) -> tuple[Reply, str]:
    """Stream one reply under the four clocks; returns it with the id of its message.

    Raises `ModelError`: `ClockExpired` for a clock, `provider.truncated` for an end without an end marker,
    `provider.content_filter`, what `failed_reply_error` makes of a reply that failed. What was shown by then stays in
    the history as a partial message.
    """
    turn.enter("planning")
    call = _ModelCall(turn, model.name, clocks)
    with LlmCallLine(turn.clock, call.spent):
        return await _whole_reply(turn, call, model, request)


async def _whole_reply(turn: Turn, call: _ModelCall, model: ChatModel, request: ModelRequest) -> tuple[Reply, str]:
    complete = False
    try:
        await call.stream(model, request)
        reply = call.writer.reply()
        complete = reply.complete and reply.stop not in ("content_filter", "failed")
    except ModelError as exc:
        if exc.code == "context_overflow" and call.writer.began:
            turn.overflowed = True  # somebody has seen of it: too late to compact and ask again
        raise
    finally:
        turn.answered_by = call.model_name
        call.writer.account(call.model_name)
        if not complete:
            call.writer.keep_partial()
    if not reply.complete:
        raise ModelError(
            "the model's answer ended without its end marker, so nothing of it is acted upon",
            code="provider.truncated",
            retryable=True,
        )
    if reply.stop == "content_filter":
        raise ModelError("the provider's content filter ended the answer", code="provider.content_filter")
    if reply.stop == "failed":
        raise failed_reply_error(call.model_name, reply.finish_reason)
    return reply, call.writer.message_id


class _ModelCall:
    """The call while it runs; `model_name` is the model that is being asked, which a fallback may change."""

    def __init__(self, turn: Turn, model_name: str, clocks: ModelClocks) -> None:
        self.writer = ReplyWriter(turn)
        self.model_name = model_name
        self._turn = turn
        self._clocks = clocks
        self._deadlines = Deadlines(clocks, turn.clock.monotonic())

    def spent(self) -> tuple[str, Usage]:
        """Return the model that was asked last, and its counts so far."""
        return self.model_name, self.writer.usage

    async def stream(self, model: ChatModel, request: ModelRequest) -> None:
        """Receive until the model ends; raises `ClockExpired` when one of the clocks does so first."""
        clock, writer, deadlines = self._turn.clock, self.writer, self._deadlines
        source = ModelStream(model, request, clock)
        try:
            while True:
                if source.is_open and deadlines.is_over(clock.monotonic()):
                    self._expired("hard")
                until, expiry = deadlines.next()
                deltas = await source.receive(until)
                if deltas is None:
                    self._expired(expiry)
                elif not deltas:
                    return
                elif writer.write(deltas):
                    deadlines.progress(clock.monotonic())
                    await self._turn.channel.room()
                elif (attempt := writer.take_attempt()) is not None:
                    self._begin(attempt)
        finally:
            await source.close()

    def _begin(self, attempt: Attempt) -> None:
        """The clock for the first delta starts anew with each attempt, the hard one goes on."""
        self.model_name = attempt.model
        now, wait = self._turn.clock.monotonic(), attempt.wait_seconds
        self._deadlines.attempt(now + wait, bounded=attempt.bounded)
        if attempt.reason is not None:
            more = {
                "retry_at": rfc3339(self._turn.clock.now() + timedelta(seconds=wait)),
                "reason": clean_text(attempt.reason),
                "model": attempt.model,
            }
            limit = self._clocks.limit("first_chunk")
            self._stall("first_chunk", now - self._deadlines.started, limit, "retrying", **more)

    def _expired(self, expiry: Expiry) -> None:
        """Say that a clock ran out; the two that only inform return, the others raise `ClockExpired`."""
        now, deadlines, limit = self._turn.clock.monotonic(), self._deadlines, self._clocks.limit(expiry)
        total = now - deadlines.started
        silent = now - (deadlines.last_progress or deadlines.started)
        match expiry:
            case "first_feedback":
                deadlines.notice()
                self.writer.waiting(round(total, 3))
            case "slow":
                deadlines.notice()
                self._stall("heartbeat", silent, self._clocks.heartbeat, "waiting")
            case "heartbeat":
                self._stall(expiry, silent, limit, "failed")
                raise clock_expired(expiry, silent, limit)
            case "first_chunk" | "hard":
                self._stall(expiry, total, limit, "failed")
                raise clock_expired(expiry, total, limit)

    def _stall(self, phase: str, elapsed: float, limit: float, action: str, **more: Any) -> None:
        data = {"phase": phase, "elapsed_seconds": round(elapsed, 3), "limit_seconds": limit, "action": action}
        self._turn.emit(EventType.STALL, data | more)
