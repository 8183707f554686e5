"""A shared tick at which the text deltas of many turns are written together."""

from __future__ import annotations

import asyncio

__all__ = ["WritePacer"]

_TICK_SECONDS = 0.004
_WINDOW_SECONDS = 0.02
_BUSY_WRITES = 12
"""The number of writes within a window from which on they wait for each other: 600 per second."""


class WritePacer:
    """A pacer of the writes of all turns of one event loop.

    A write costs a hand-over to the thread of the store and back, whatever it contains. Where writes are frequent,
    those of text deltas alone wait for the next tick, at most 4 ms, and are stored by one transaction.
    """

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._window_start = 0.0
        self._count = 0
        self._is_busy = False

    def defer(self, wake: asyncio.Future[None]) -> bool:
        """Have `wake` set at the next tick and return True; return False if writes are so few that none needs to wait.

        A future that is set earlier stays as it is.
        """
        loop = wake.get_loop()
        now = loop.time()
        self._count += 1
        if now - self._window_start >= _WINDOW_SECONDS:
            self._is_busy = self._count >= _BUSY_WRITES
            self._window_start, self._count = now, 0
        if self._is_busy:
            if not self._waiting:
                loop.call_later(_TICK_SECONDS, self._tick)
            self._waiting.append(wake)
        return self._is_busy

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            if not wake.done():
                wake.set_result(None)
