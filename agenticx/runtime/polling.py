"""Back-off before a read-only call is repeated whose last result was still pending.

The waits are 1, 2, 4, then 8 s each time. The time since the last result counts towards them, so a model that did
something else meanwhile waits only for the rest. A result that changed starts again at 1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agenticx.clocks import Clock
from agenticx.messages import ToolCall
from agenticx.runtime.events import EventType
from agenticx.runtime.loop_detector import call_signature
from agenticx.runtime.result_text import mask_times, reports_pending

__all__ = ["POLL_DELAYS", "PollBackoff"]

POLL_DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition; the last value applies to every further one."""

_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Pending:
    """The last result of a call, how many times it was repeated, and when and in which round it was received."""

    text: str
    repeated: int
    at: float
    round: int


class PollBackoff:
    """The pending results of one turn's read-only calls."""

    def __init__(self) -> None:
        self._pending: dict[bytes, _Pending] = {}

    def record(self, call: ToolCall, text: str, *, now: float, round_number: int) -> None:
        """Record the result of a read-only call. Of equal calls in one round the first counts."""
        key = call_signature(call.name, call.arguments)
        last = self._pending.pop(key, None)
        if not reports_pending(text):
            return
        text = mask_times(text)
        repeated = 0
        if last is not None and last.text == text:
            repeated = last.repeated + (round_number != last.round)
        if len(self._pending) >= _REMEMBERED:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = _Pending(text, repeated, now, round_number)

    async def wait(
        self, call: ToolCall, *, clock: Clock, round_number: int, emit: Callable[[EventType, dict[str, Any]], None]
    ) -> None:
        """Wait until `call` may be repeated, and emit `stall`; return at once unless its last result was pending."""
        last = self._pending.get(call_signature(call.name, call.arguments)) if self._pending else None
        if last is None or last.round == round_number:
            return
        limit = POLL_DELAYS[min(last.repeated, len(POLL_DELAYS) - 1)]
        elapsed = clock.monotonic() - last.at
        if elapsed < limit:
            data = {"phase": "tool", "elapsed_seconds": round(elapsed, 3), "limit_seconds": limit, "action": "waiting"}
            emit(EventType.STALL, data)
            await clock.sleep(limit - elapsed)
