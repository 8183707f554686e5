"""Clocks: sources of time, replaceable so that every time-out can be tested in scaled time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

__all__ = ["Clock", "ScaledClock", "SystemClock", "rfc3339"]


class Clock(Protocol):
    """The engine's source of time, and its conversion of durations into real seconds.

    All durations in the project are *nominal* seconds: the values of settings. `real` converts them into seconds of the
    event loop, the only place where the two may differ.
    """

    def monotonic(self) -> float:
        """Return nominal seconds since an arbitrary point; never goes backwards."""
        ...

    def now(self) -> datetime:
        """Return the time of day, UTC."""
        ...

    def real(self, seconds: float, /) -> float:
        """Return how many seconds of the event loop `seconds` nominal ones take."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` nominal seconds."""
        ...


class SystemClock:
    """A clock that runs in real time: a nominal second is a second of the event loop."""

    monotonic = staticmethod(time.monotonic)
    now = staticmethod(partial(datetime.now, UTC))
    real = staticmethod(float)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ScaledClock:
    """A clock whose durations are scaled for tests: a 60 s limit expires after 60 / speed seconds.

    `monotonic`, `real` and `sleep` are scaled. `now` is not: it returns the real time of day, so a time computed as
    `now` plus nominal seconds, such as the `expires_at` of a request, is later than the moment when the limit expires.
    """

    speed: float

    def monotonic(self) -> float:
        return time.monotonic() * self.speed

    def now(self) -> datetime:
        return datetime.now(UTC)

    def real(self, seconds: float, /) -> float:
        return seconds / self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)


def rfc3339(moment: datetime) -> str:
    """Return `moment`, which is in UTC, with milliseconds and ending in Z."""
    return moment.isoformat("T", "milliseconds")[: -len("+00:00")] + "Z"
