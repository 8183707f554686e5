"""The queue of a turn's events, and the pacer that makes the consumer take text deltas in larger batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agenticx.batch_queue import BatchQueue
from agenticx.runtime.events import DELTAS, Event, RuntimeEvent

__all__ = ["Channel", "EventSink", "WritePacer"]

_TICK_SECONDS = 0.004
_WINDOW_SECONDS = 0.02
_BUSY_WRITES = 12
"""The number of writes within a window from which on they wait for each other: 600 per second."""

EventSink = Callable[[Sequence[RuntimeEvent]], Awaitable[None]]
"""A writer of events. It is called with one batch at a time, in order; an exception that it raises ends the turn."""


class Channel(BatchQueue[Event]):
    """The queue of a turn's events.

    With a `pacer` the consumer gets text deltas at its ticks, and all other events at once.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        super().__init__(limit=limit)
        self.pacer: WritePacer | None = None
        self._wakes_at_tick: asyncio.Future[None] | None = None

    def put(self, *events: Event) -> None:
        if self._closed or not events:
            return
        self._items += events
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if (
            self.pacer is not None
            and all(event.type in DELTAS for event in events)
            and (waiter is self._wakes_at_tick or self.pacer.defer(waiter))
        ):
            self._wakes_at_tick = waiter
        else:
            waiter.set_result(None)

    async def wait_until_written(self) -> None:
        """Wait until the consumer has taken or written every event put so far and waits for more.

        What is to happen only once its events are known to others, such as a call, waits here first.
        """
        if self._items:
            self._wake_consumer()
        await self.join()


class WritePacer:
    """A pacer of the writes of all turns of one event loop.

    A write costs a hand-over to the thread of the store and back, whatever it contains. Where writes are frequent,
    writes of nothing but text deltas wait for the next tick, at most 4 ms, and are stored by one transaction.
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
