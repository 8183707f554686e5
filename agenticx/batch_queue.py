"""A queue on the event loop whose consumer takes everything that is there at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["BatchQueue"]

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """A queue from producers to one consumer on the same event loop.

    `put` never waits; a producer waits in `wait_for_room` and `join` only. Producers in threads call `put` with
    `call_soon_threadsafe`.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self._limit = limit
        self._items: list[T] = []
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None  # of the consumer, while it waits
        self._timer: _ResettableTimer | None = None
        self._producers_wait = False
        self._released = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """True if the queue holds more than `limit` items, so that producers should wait."""
        return len(self._items) > self._limit and not self._closed

    def put(self, *items: T) -> None:
        """Add items. After `close` they are dropped, because there is no consumer any more."""
        if not self._closed:
            self._items += items
            self._wake_consumer()

    def close(self) -> None:
        """Close the queue, because no more items will be put or the consumer has ended."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._wake_consumer()
        self._release()

    async def take(self, until: float | None = None) -> list[T]:
        """Return all items, waiting for at least one; return none only if the queue is closed or `until` has passed.

        `until` is a time of the event loop. By calling it again the consumer reports that it has processed the items of
        the previous call.
        """
        loop = asyncio.get_running_loop()
        while not (self._items or self._closed):
            if until is not None:
                if loop.time() >= until:
                    return []
                self._timer = self._timer or _ResettableTimer(self._wake_consumer)
                self._timer.set(until)
            self._waiter = loop.create_future()
            self._release()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch, self._items = self._items, []
        self._release()
        return batch

    async def write_to(self, sink: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        """Pass all items to `sink`, each time all that were put since it was last called, until `close`."""
        while batch := await self.take():
            await sink(batch)

    async def wait_for_room(self) -> None:
        """Wait while the queue is full."""
        while self.is_full:
            await self._wait_for_release()

    async def join(self) -> None:
        """Wait until the consumer has processed every item put so far and waits for more."""
        while (self._items or self._waiter is None) and not self._closed:
            await self._wait_for_release()

    def _wake_consumer(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_release(self) -> None:
        self._producers_wait = True
        await self._released.wait()

    def _release(self) -> None:
        """Wake the producers that wait now; each checks its own condition again."""
        if self._producers_wait:
            self._producers_wait = False
            self._released.set()
            self._released.clear()


class _ResettableTimer:
    """A timer that calls `callback` at the set time or earlier.

    Setting a later time costs nothing, as the handle that is due earlier is kept: it calls `callback` too early, which
    then compares the clock with its own deadline and sets the timer again. The timer belongs to the event loop that
    runs when it is created.
    """

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        """Call the callback at `when` (the loop's time) at the latest."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def cancel(self) -> None:
        """Cancel the timer and drop the reference to its callback."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._callback()
