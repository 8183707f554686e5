"""The queue of events from the turn's coroutine to the generator that the caller iterates."""

from __future__ import annotations

import asyncio

from agenticx.runtime.events import RuntimeEvent

__all__ = ["Channel"]


class Channel:
    """A queue with one producer and one consumer on one loop.

    `put` never waits; a producer waits in `wait_for_room` and `wait_until_delivered` only.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self._limit = limit
        self._queue: list[RuntimeEvent] = []
        self._closed = False
        self._wake: asyncio.Future[None] | None = None
        self._released = asyncio.Event()
        self._consumer_waits = False

    def put(self, event: RuntimeEvent) -> None:
        """Add an event. After `close` it is dropped, because there is no consumer any more."""
        if self._closed:
            return
        self._queue.append(event)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """Close the channel, because no more events will be put or the consumer has ended."""
        self._closed = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        self._release()

    async def take(self) -> list[RuntimeEvent]:
        """Return all queued events, waiting for at least one; return an empty list only if the channel is closed.

        By calling it again the consumer reports that it has processed the events of the previous call.
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
        """Wait while the queue holds more than `limit` events."""
        while len(self._queue) > self._limit and not self._closed:
            await self._released.wait()

    async def wait_until_delivered(self) -> None:
        """Wait until the consumer has processed every event put so far and waits for more."""
        while (self._queue or not self._consumer_waits) and not self._closed:
            await self._released.wait()

    def _release(self) -> None:
        """Wake the producers that wait now; each checks its own condition again."""
        self._released.set()
        self._released.clear()
