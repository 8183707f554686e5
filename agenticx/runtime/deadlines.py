"""The four time limits ("clocks") of a model call, and the task that reads the model's stream.

Deadlines apply to *receiving*: the source is read by a task of its own and is never awaited under a time-out, so no
generator stays half-read when a limit expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx import user_code
from agenticx.batch_queue import BatchQueue
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, ClockExpired, ModelError, ModelErrorCode, UserCodeError
from agenticx.llms.base import ChatModel, Delta, ModelRequest, receive_reply
from agenticx.logs import get_logger
from agenticx.settings import Settings
from agenticx.threads import retrieve_exception

__all__ = ["Deadlines", "Expiry", "FatalExpiry", "ModelClocks", "ModelStream", "clock_expired"]

Expiry = Literal["first_feedback", "slow", "first_chunk", "heartbeat", "hard"]
_MAX_DELTAS = 256  # added at once, to at most as many: `receive` returns at most 512 before other tasks of the loop run
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClocks:
    """The time limits of one model call in seconds; with the names and defaults of the published `AgentRuntime`."""

    first_feedback: float = 8.0
    invoke: float = 120.0
    heartbeat: float = 60.0
    hard: float = 300.0

    @classmethod
    def from_settings(cls, settings: Settings) -> ModelClocks:
        return cls(
            first_feedback=settings.llm_first_feedback_seconds,
            invoke=settings.llm_invoke_timeout_seconds,
            heartbeat=settings.llm_heartbeat_timeout_seconds,
            hard=settings.llm_hard_timeout_seconds,
        )

    @property
    def request_timeout(self) -> float:
        """The time-out for the provider's client, longer than these limits, so that one of them expires first."""
        return max(self.invoke, self.heartbeat, self.hard) + 15

    def limit(self, expiry: Expiry) -> float:
        match expiry:
            case "first_feedback" | "slow":
                return self.first_feedback
            case "first_chunk":
                return self.invoke
            case "heartbeat":
                return self.heartbeat
            case "hard":
                return self.hard


class Deadlines:
    """The deadlines of one model call. Times are nominal seconds of a `Clock`; only progress resets any of them."""

    def __init__(self, clocks: ModelClocks, now: float) -> None:
        self._clocks = clocks
        self.started = now
        self.last_progress: float | None = None
        self._attempt = now
        self._is_attempt_bounded = False
        self._noticed = False

    def start_attempt(self, start: float, *, bounded: bool) -> None:
        """Begin a new attempt at `start`; if it is `bounded`, the caller limits the wait for its first delta."""
        self._attempt = start
        self._is_attempt_bounded = bounded

    def is_hard_limit_reached(self, now: float) -> bool:
        """Return whether the hard limit was reached; it also ends a call that keeps sending deltas."""
        return now >= self.started + self._clocks.hard

    def record_progress(self, now: float) -> None:
        """Record a delta that adds a character or a call."""
        self.last_progress = now
        self._noticed = False

    def mark_noticed(self) -> None:
        """Record that the user was notified of a slow model; this happens once per silence."""
        self._noticed = True

    def next_expiry(self) -> tuple[float, Expiry]:
        """Return the time at which the next limit expires, and its name."""
        clocks, last_progress = self._clocks, self.last_progress
        expiries: list[tuple[float, Expiry]] = [(self.started + clocks.hard, "hard")]
        if last_progress is not None:
            expiries.append((last_progress + clocks.heartbeat, "heartbeat"))
        elif not self._is_attempt_bounded:
            expiries.append((self._attempt + clocks.invoke, "first_chunk"))
        if not self._noticed:
            silent_since = self.started if last_progress is None else last_progress
            expiries.append(
                (silent_since + clocks.first_feedback, "first_feedback" if last_progress is None else "slow")
            )
        return min(expiries)


class ModelStream:
    """A model call that is being read.

    `receive` returns the deltas that arrived; `close` ends the call and its socket.
    """

    def __init__(self, model: ChatModel, request: ModelRequest, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._arrived: BatchQueue[Delta] = BatchQueue(limit=_MAX_DELTAS)
        self._model_name = model.name
        self._task = asyncio.create_task(self._pump(model, request), name="agx model stream")

    @property
    def is_open(self) -> bool:
        """True if the model may send more than what has arrived."""
        return not self._task.done()

    async def receive(self, until: float) -> Sequence[Delta] | None:
        """Return deltas that arrived, at least one; empty at the end of the stream; None if `until` passed without any.

        Raises `ModelError` after everything that arrived before the error was returned.
        """
        deltas = await self._arrived.take(self._loop.time() + self._clock.real(until - self._clock.monotonic()))
        if not deltas:
            if self.is_open:
                return None
            self._raise_failure()
        return deltas

    async def close(self) -> None:
        """End the call; return when the model has closed its socket, or shortly after if it does not."""
        if not self._task.done():
            await user_code.abandon(self._task, f"model {self._model_name}")
        else:
            retrieve_exception(self._task)

    async def _pump(self, model: ChatModel, request: ModelRequest) -> None:
        try:
            with user_code.translated_errors(f"model {self._model_name}"):
                await receive_reply(model, request, self._add)
        finally:
            self._arrived.close()

    async def _add(self, batch: Sequence[Delta]) -> None:
        """Add deltas that arrived; wait while too many are not received yet."""
        for part in _parts(batch):
            self._arrived.put(*part)
            if self._arrived.is_full:
                await self._arrived.wait_for_room()

    def _raise_failure(self) -> None:
        if self._task.cancelled():
            raise ModelError(f"the call of model {self._model_name} was cancelled", code="provider.transport")
        failure = self._task.exception()
        if isinstance(failure, UserCodeError):
            _log.error(
                "the model raised an unexpected exception or returned an invalid value",
                model=self._model_name,
                exc_info=failure,
            )
            raise ModelError(str(failure), code="provider.bad_reply") from failure
        if isinstance(failure, AgenticXError):
            raise failure
        if failure is not None:
            raise failure


def _parts(batch: Sequence[Delta]) -> Sequence[Sequence[Delta]]:
    """Return the parts of a batch, each of at most `_MAX_DELTAS`."""
    if len(batch) <= _MAX_DELTAS:
        return (batch,)
    return [batch[start : start + _MAX_DELTAS] for start in range(0, len(batch), _MAX_DELTAS)]


FatalExpiry = Literal["first_chunk", "heartbeat", "hard"]
_ERRORS: Mapping[FatalExpiry, tuple[ModelErrorCode, str, str]] = {
    "first_chunk": ("timeout.first_chunk", "sent nothing within", "AGX_LLM_INVOKE_TIMEOUT_SECONDS"),
    "heartbeat": ("timeout.heartbeat", "sent nothing more for", "AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS"),
    "hard": ("timeout.hard", "took longer than", "AGX_LLM_HARD_TIMEOUT_SECONDS"),
}


def clock_expired(expiry: FatalExpiry, elapsed: float, limit: float) -> ClockExpired:
    """Return the error for a model that exceeded `limit` after `elapsed` seconds; both are in seconds."""
    code, what, setting = _ERRORS[expiry]
    text = f"the model {what} {limit:g} s ({setting})"
    return ClockExpired(text, code=code, elapsed_seconds=round(elapsed, 3), limit_seconds=limit)
