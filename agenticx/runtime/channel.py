"""The way of events from the turn's coroutine to the one generator at the edge."""

from __future__ import annotations

import asyncio

from agenticx.runtime.events import RuntimeEvent

__all__ = ["Channel"]


class Channel:
    """One producer, one consumer, on one loop. `put` never waits; `room` and `delivered` are where a producer does."""

    def __init__(self, *, limit: int = 1024) -> None:
        self._limit = limit
        self._queue: list[RuntimeEvent] = []
        self._closed = False
        self._wake: asyncio.Future[None] | None = None
        self._released = asyncio.Event()
        self._consumer_waits = False

    def put(self, event: RuntimeEvent) -> None:
        """Hand an event over. After `close` it is dropped: nobody is left to read it."""
        if self._closed:
            return
        self._queue.append(event)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """No more events will come, or nobody will read them."""
        self._closed = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        self._release()

    async def take(self) -> list[RuntimeEvent]:
        """All that waits, at least one event; empty only when the channel is closed.

        Being called again means that the consumer is done with what it was given before.
        """
        if not self._queue:
            self._consumer_waits = True
            self._release()
            if not self._closed:
                self._wake = asyncio.get_running_loop().create_future()
                try:
                    await self._wake
                finally:
                    self._wake = None
        self._consumer_waits = False
        batch, self._queue = self._queue, []
        self._release()
        return batch

    async def wait_for_room(self) -> None:
        """Wait while the consumer is more than `limit` events behind."""
        while len(self._queue) > self._limit and not self._closed:
            await self._released.wait()

    async def wait_until_delivered(self) -> None:
        """Wait until the consumer has dealt with every event put so far and asks for more."""
        while (self._queue or not self._consumer_waits) and not self._closed:
            await self._released.wait()

    def _release(self) -> None:
        """Wake the producers that wait now, each to look for itself."""
        self._released.set()
        self._released.clear()
