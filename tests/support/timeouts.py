"""Generous timeouts and clocks for tests, so that delays of a busy machine fail nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar, cast

import httpx

from agenticx.clocks import SystemClock

__all__ = [
    "PATIENCE",
    "Hold",
    "LoopDelays",
    "PatientClock",
    "explained_timeout",
    "longest_hold",
    "patient_client",
    "slowdown",
    "wait_until",
]

T = TypeVar("T")

PATIENCE = 120.0
"""The timeout in real seconds for events that must occur; it elapses only when a test fails."""

_STATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PatientClock(SystemClock):
    """A clock with which every timeout of the product lasts ten times as long.

    `but` maps the nominal seconds of the waits that a test is about to the real seconds that each takes. A
    `ScaledClock` would shorten all other timeouts too, and a delay of a busy machine would exceed them.
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
    """Return a client with a long timeout that does not reuse connections the server may be closing as idle.

    One with a limit of `connections` keeps them: a server that is out of file descriptors accepts no others.
    """
    limits = httpx.Limits(max_connections=connections, keepalive_expiry=1.0 if connections is None else None)
    return httpx.AsyncClient(
        base_url=base_url,
        headers=headers,
        limits=limits,
        timeout=PATIENCE,
        trust_env=False,
        verify=False,  # reading the certificates takes 30 ms
    )


async def wait_until(
    happened: Callable[[], T | Awaitable[T]], *, state: Callable[[], object | Awaitable[object]] | None = None
) -> T:
    """Wait until `happened`, which may be async, is true, and return its value; raise `TimeoutError` if it never is.

    The error has the `state` that is found then, as of `explained_timeout`.
    """
    last: list[object] = []
    async with explained_timeout(state or (lambda: f"the last value is {last}")):
        while True:
            value = happened()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            last[:] = [value]
            await asyncio.sleep(0.005)


@asynccontextmanager
async def explained_timeout(state: Callable[[], object | Awaitable[object]]) -> AsyncGenerator[None]:
    """Bound a block by `PATIENCE`; its `TimeoutError` has a note with the `state`, which may be async, at that time."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError as exc:
        exc.add_note(f"waited {PATIENCE:g} s; {await _text_of(state)}")
        raise


async def _text_of(state: Callable[[], object | Awaitable[object]]) -> str:
    try:
        async with asyncio.timeout(_STATE_SECONDS):
            found = state()
            return str(await cast("Awaitable[object]", found) if isinstance(found, Awaitable) else found)
    except Exception as exc:  # noqa: BLE001 - it must not hide the timeout
        return f"its state cannot be read: {exc!r}"


def slowdown() -> int:
    """Return the factor for limits of measured Python code: 3 while coverage traces it, else 1."""
    return 3 if sys.gettrace() is not None else 1


class LoopDelays:
    """The total time by which the event loop was late: its process, or the whole machine, stood still or was busy."""

    _PERIOD = 0.002

    def __init__(self) -> None:
        self._total = 0.0
        self._last_wake = time.monotonic()

    @classmethod
    @asynccontextmanager
    async def watching(cls) -> AsyncGenerator[LoopDelays]:
        delays = cls()
        watch = asyncio.create_task(delays._watch())
        try:
            yield delays
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    @property
    def total(self) -> float:
        """The seconds so far, with the delay that has just ended."""
        now = time.monotonic()
        self._total += max(now - self._last_wake - self._PERIOD, 0)
        self._last_wake = now
        return self._total

    async def _watch(self) -> None:
        while True:
            _ = self.total
            await asyncio.sleep(self._PERIOD)


@dataclass
class Hold:
    """The CPU seconds of this process in which the loop was blocked: the longest time, and the total."""

    longest: float = 0.0
    total: float = 0.0


@asynccontextmanager
async def longest_hold() -> AsyncGenerator[Hold]:
    """Measure how long the loop is blocked while the body runs, in CPU time of this process."""
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
