"""How tests wait: for what is to come, however long the machine takes, so that no hiccup of it ends anything."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from agenticx.clocks import SystemClock

__all__ = ["PATIENCE", "Hold", "PatientClock", "comes_true", "longest_hold", "patient_client", "slowdown"]

PATIENCE = 120.0
"""Real seconds for what has to come; they pass only where it never does."""


@dataclass(frozen=True, slots=True)
class PatientClock(SystemClock):
    """Time in which every time-out of the product lasts ten times as long.

    `but` names, by their nominal seconds, the waits that a test is there for, and the real seconds that each takes. A
    `ScaledClock` would hurry the others too: of its minutes a hiccup of the machine takes as many as of real seconds.
    """

    but: Mapping[float, float] = field(default_factory=dict[float, float])

    def monotonic(self) -> float:
        return time.monotonic() / 10

    def real(self, seconds: float) -> float:
        return self.but.get(seconds, seconds * 10)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self.but.get(seconds, seconds))


def patient_client(
    base_url: str, *, headers: Mapping[str, str] | None = None, connections: int | None = None
) -> httpx.AsyncClient:
    """A client that waits, and takes no connection again that the server may be about to end for idleness."""
    limits = httpx.Limits(max_connections=connections, keepalive_expiry=1.0)
    return httpx.AsyncClient(base_url=base_url, headers=headers, limits=limits, timeout=PATIENCE, trust_env=False)


async def comes_true(happened: Callable[[], object]) -> None:
    """Return once it has happened; `TimeoutError` if it never does."""
    async with asyncio.timeout(PATIENCE):
        while not happened():
            await asyncio.sleep(0.005)


def slowdown() -> int:
    """Return by how much measured Python code may be slower than it is: 3 while coverage traces it, else 1."""
    return 3 if sys.gettrace() is not None else 1


@dataclass
class Hold:
    """For how many seconds of this process's CPU time the loop did not go round: at most, and in all."""

    longest: float = 0.0
    total: float = 0.0


@asynccontextmanager
async def longest_hold() -> AsyncGenerator[Hold]:
    """While the body runs. Time in which the machine did something else is not counted."""
    hold, began = Hold(), time.process_time()

    async def watch() -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            hold.longest = max(hold.longest, time.process_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # so that it has begun
    try:
        yield hold
        await asyncio.sleep(0.002)  # so that it has seen the last of it
    finally:
        hold.total = time.process_time() - began
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
