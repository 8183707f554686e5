"""Back-off before a read-only call with an unchanged result is repeated.

The waits are 1, 2, 4, then 8 s each time. The time since the last result counts towards them, so a model that did
something else meanwhile waits only for the rest. After a changed result the call is repeated at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agenticx.clocks import Clock
from agenticx.messages import ToolCall
from agenticx.runtime.events import EventType
from agenticx.runtime.loop_detector import call_signature
from agenticx.runtime.tool_result_text import mask_times

__all__ = ["POLL_DELAYS", "PollBackoff"]

POLL_DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition; the last value applies to every further one."""

_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Read:
    """The last result of a call: its digest, the number of repetitions, its time and its round."""

    digest: bytes
    repeated: int
    at: float
    round: int


class PollBackoff:
    """The last results of one turn's read-only calls."""

    def __init__(self) -> None:
        self._reads: dict[bytes, _Read] = {}

    def record(self, call: ToolCall, text: str, *, now: float, round_number: int) -> None:
        """Record the result of a read-only call. Of equal calls in one round the first counts."""
        key = call_signature(call.name, call.arguments)
        last = self._reads.pop(key, None)
        digest = hashlib.blake2b(mask_times(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        repeated = 0
        if last is not None and last.digest == digest:
            repeated = last.repeated + (round_number != last.round)
        if len(self._reads) >= _REMEMBERED:
            del self._reads[next(iter(self._reads))]
        self._reads[key] = _Read(digest, repeated, now, round_number)

    async def wait(
        self, call: ToolCall, *, clock: Clock, round_number: int, emit: Callable[[EventType, dict[str, Any]], None]
    ) -> None:
        """Wait until `call` may be repeated, and emit `stall`; return at once unless its last result was unchanged."""
        last = self._reads.get(call_signature(call.name, call.arguments)) if self._reads else None
        if last is None or not last.repeated or last.round == round_number:
            return
        limit = POLL_DELAYS[min(last.repeated, len(POLL_DELAYS)) - 1]
        elapsed = clock.monotonic() - last.at
        if elapsed < limit:
            data = {"phase": "tool", "elapsed_seconds": round(elapsed, 3), "limit_seconds": limit, "action": "waiting"}
            emit(EventType.STALL, data)
            await clock.sleep(limit - elapsed)
