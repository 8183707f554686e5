"""Model calls within their time limits, and the call of a turn, with its deltas as events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from agenticx.clocks import Clock, rfc3339
from agenticx.errors import ModelError
from agenticx.llms.base import Attempt, ChatModel, Delta, ModelRequest, Reply, Usage, failed_reply_error
from agenticx.messages import clean_text
from agenticx.runtime.deadlines import Deadlines, Expiry, FatalExpiry, ModelClocks, ModelStream, clock_expired
from agenticx.runtime.events import EventType
from agenticx.runtime.reply_writer import ReplyWriter
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_log import LlmCallLine

__all__ = ["ModelReader", "call_model"]


class ModelReader(ABC):
    """The loop that reads one call of a model within its time limits."""

    def __init__(self, clock: Clock, clocks: ModelClocks) -> None:
        self._clock = clock
        self._clocks = clocks
        self._deadlines = Deadlines(clocks, clock.monotonic())

    async def read(
        self,
        model: ChatModel,
        request: ModelRequest,
        write: Callable[[Sequence[Delta]], bool],
        wait_for_room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Receive until the model ends; raise `ClockExpired` if one of the time limits expires first.

        `write` uses the deltas and returns whether any of them was progress. After progress `wait_for_room` is awaited;
        it returns when the consumer is ready for more.
        """
        clock, deadlines = self._clock, self._deadlines
        source = ModelStream(model, request, clock)
        try:
            while True:
                if source.is_open and deadlines.is_hard_limit_reached(clock.monotonic()):
                    self._handle_expiry("hard")
                until, expiry = deadlines.next_expiry()
                deltas = await source.receive(until)
                if deltas is None:
                    self._handle_expiry(expiry)
                elif not deltas:
                    return
                elif write(deltas):
                    deadlines.record_progress(clock.monotonic())
                    if wait_for_room is not None:
                        await wait_for_room()
                else:
                    self._check_attempt()
        finally:
            await source.close()

    def _handle_expiry(self, expiry: Expiry) -> None:
        """Report an expired time limit; raise `ClockExpired` unless the limit only causes a notice."""
        now, deadlines, limit = self._clock.monotonic(), self._deadlines, self._clocks.limit(expiry)
        total = now - deadlines.started
        silent = now - (deadlines.last_progress or deadlines.started)
        if expiry == "first_feedback" or expiry == "slow":
            deadlines.mark_noticed()
            self._report_slow(total, None if expiry == "first_feedback" else silent)
            return
        elapsed = silent if expiry == "heartbeat" else total
        self._report_expired(expiry, elapsed, limit)
        raise clock_expired(expiry, elapsed, limit)

    # --- implemented by the readers

    def _check_attempt(self) -> None:
        """React to an `Attempt` among deltas that were no progress."""
        return

    @abstractmethod
    def _report_slow(self, total: float, silent: float | None) -> None:
        """Report that the model is slow.

        `total` are the seconds since the call began, `silent` those since the last progress, None if there was none.
        """

    def _report_expired(self, expiry: FatalExpiry, elapsed: float, limit: float) -> None:
        """Report a time limit that ends the call, before its error is raised."""
        return


async def call_model(turn: Turn, model: ChatModel, request: ModelRequest, clocks: ModelClocks) -> tuple[Reply, str]:
    """Stream one reply within the four time limits and return it with the id of its message.

    Raises `ModelError`: `ClockExpired` for a time limit, `provider.truncated` for an end without an end marker,
    `provider.content_filter`, and the error of `failed_reply_error` for a reply that failed. Text that was shown before
    stays in the history as a partial message.
    """
    turn.enter("planning")
    call = _ModelCall(turn, model.name, clocks)
    with LlmCallLine(turn.clock, call.current_usage):
        return await _whole_reply(turn, call, model, request)


async def _whole_reply(turn: Turn, call: _ModelCall, model: ChatModel, request: ModelRequest) -> tuple[Reply, str]:
    complete = False
    try:
        await call.read(model, request, call.writer.write, turn.channel.wait_for_room)
        reply = call.writer.reply()
        complete = reply.complete and reply.stop not in ("content_filter", "failed")
    except ModelError as exc:
        if exc.code == "context_overflow" and call.writer.has_output:
            turn.overflowed_in_reply = True  # part of the reply was already shown: too late to compact and ask again
        raise
    finally:
        call.writer.previews.finish(complete=complete)
        turn.answering_model = call.writer.model_name
        call.writer.record_usage()
        if not complete:
            call.writer.keep_partial()
    if not reply.complete:
        raise ModelError(
            "the model's answer ended without its end marker, so its calls are not run",
            code="provider.truncated",
            retryable=True,
        )
    if reply.stop == "content_filter":
        raise ModelError("the provider's content filter ended the answer", code="provider.content_filter")
    if reply.stop == "failed":
        raise failed_reply_error(call.writer.model_name, reply.finish_reason)
    return reply, call.writer.message_id


class _ModelCall(ModelReader):
    """A call of a turn while it runs."""

    def __init__(self, turn: Turn, model_name: str, clocks: ModelClocks) -> None:
        super().__init__(turn.clock, clocks)
        self.writer = ReplyWriter(turn, model_name)
        self._turn = turn

    def current_usage(self) -> tuple[str, Usage]:
        """Return the name of the model that was called last, and its counts so far."""
        return self.writer.model_name, self.writer.usage

    def _check_attempt(self) -> None:
        if (attempt := self.writer.take_attempt()) is not None:
            self._start_attempt(attempt)

    def _start_attempt(self, attempt: Attempt) -> None:
        """Restart the time limit for the first delta, as each attempt does; the hard limit continues."""
        now, wait = self._turn.clock.monotonic(), attempt.wait_seconds
        self._deadlines.start_attempt(now + wait, bounded=attempt.bounded)
        if attempt.reason is not None:
            more = {
                "retry_at": rfc3339(self._turn.clock.now() + timedelta(seconds=wait)),
                "reason": clean_text(attempt.reason),
                "model": attempt.model,
                **({} if attempt.code is None else {"code": attempt.code}),
            }
            limit = self._clocks.limit("first_chunk")
            self._stall("first_chunk", now - self._deadlines.started, limit, "retrying", **more)

    def _report_slow(self, total: float, silent: float | None) -> None:
        if silent is None:
            self.writer.emit_waiting(round(total, 3))
        else:
            self._stall("heartbeat", silent, self._clocks.heartbeat, "waiting")

    def _report_expired(self, expiry: FatalExpiry, elapsed: float, limit: float) -> None:
        self._stall(expiry, elapsed, limit, "failed")

    def _stall(self, phase: str, elapsed: float, limit: float, action: str, **more: Any) -> None:
        data = {"phase": phase, "elapsed_seconds": round(elapsed, 3), "limit_seconds": limit, "action": action}
        self._turn.emit(EventType.STALL, data | more)
