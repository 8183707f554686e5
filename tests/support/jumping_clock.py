"""An event loop with virtual time, which advances only while the loop is idle.

A slow machine cannot make a timeout of a test expire early.

Tests that wait run in a `VirtualTimeLoop`, with `LoopClock` for the product's clock:

    @pytest.fixture
    def anyio_backend():
        return VIRTUAL_TIME
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["VIRTUAL_TIME", "VIRTUAL_TIME_OVER_SOCKETS", "LoopClock", "VirtualTimeLoop"]

_BEGAN = datetime.now(UTC)
_WATCHDOG = "agx loop watchdog"  # a thread that runs beside a tool, and wakes the loop only to see whether it answers
_SILENT_WAITS, _WAIT_SECONDS = 10, 0.02
"""The number and length of the waits in which the sockets of a test must be silent before time jumps."""


class LoopClock:
    """A `Clock` that returns the time of the running loop, also in other threads."""

    _loop: asyncio.AbstractEventLoop

    def monotonic(self) -> float:
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def now(self) -> datetime:
        return _BEGAN + timedelta(seconds=self.monotonic())

    def real(self, seconds: float) -> float:
        return seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while it is busy and jumps to the next timer once it is idle.

    A thread started since the loop was made, or the other end of a socket, may still wake the loop: while there is one,
    real time passes, but by no more than the loop waited for. `own_sockets` says that both ends of every socket are in
    this loop, so that data that has not arrived after a short silence will not arrive.
    """

    def __init__(self, *, own_sockets: bool = False) -> None:
        self._now = 0.0
        self._own_sockets = own_sockets
        self._known_threads = set(threading.enumerate())
        super().__init__(_VirtualTimeSelector(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    @property
    def has_new_threads(self) -> bool:
        return any(thread not in self._known_threads and thread.name != _WATCHDOG for thread in threading.enumerate())

    @property
    def has_own_sockets(self) -> bool:
        return self._own_sockets


class _VirtualTimeSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        sockets = len(self.get_map()) > 1  # beside the one with which threads wake the loop
        if sockets and not self._loop.has_own_sockets:
            began = time.monotonic()
            found = super().select(timeout)
            self._loop.advance(min(time.monotonic() - began, timeout) if found else timeout)
            return found
        while self._loop.has_new_threads:  # polled, since the end of a thread does not wake the loop
            began, most = time.monotonic(), min(timeout, _WAIT_SECONDS)
            found = super().select(most)
            passed = min(time.monotonic() - began, most)
            self._loop.advance(passed)
            timeout -= passed
            if found or timeout <= 0:
                return found
        for _ in range(_SILENT_WAITS if sockets else 1):
            if found := super().select(_WAIT_SECONDS if sockets else 0):
                return found
        self._loop.advance(timeout)
        return []


def _over_sockets() -> VirtualTimeLoop:
    return VirtualTimeLoop(own_sockets=True)


VIRTUAL_TIME = ("asyncio", {"loop_factory": VirtualTimeLoop})
VIRTUAL_TIME_OVER_SOCKETS = ("asyncio", {"loop_factory": _over_sockets})
