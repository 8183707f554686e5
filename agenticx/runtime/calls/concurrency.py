"""Concurrency of a round's calls: how many run at the same time, and the order of their requests."""

from __future__ import annotations

import asyncio

__all__ = ["MAX_CONCURRENT_CALLS", "Slot", "slots"]

MAX_CONCURRENT_CALLS = 8
"""Calls of one turn that may run at the same time. A call that waits for the user's answer is not counted."""


def slots(call_count: int) -> list[Slot]:
    """Return a slot for each of a group of neighbouring calls, in call order.

    `MAX_CONCURRENT_CALLS` of them can be held at a time.
    """
    order = _RequestOrder(call_count)
    free = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    return [Slot(free, order, index) for index in range(call_count)]


class Slot:
    """The right of one call to run: held from its first hook to its result, but not while the user is asked.

    So a call never waits between the last check of what it would do and its execution.
    """

    def __init__(self, free: asyncio.Semaphore, order: _RequestOrder, index: int) -> None:
        self._free = free
        self._order = order
        self._index = index
        self._acquired = False

    async def acquire(self) -> None:
        """Wait until fewer than `MAX_CONCURRENT_CALLS` are held, in order of arrival."""
        await self._free.acquire()
        self._acquired = True

    async def release_to_ask(self) -> None:
        """Release the slot and wait until each earlier call of the group has asked its request or needs none."""
        self._release()
        await self._order.wait_for(self._index)

    def mark_asked(self) -> None:
        """Mark the call's request as asked, or as not needed."""
        self._order.mark_asked(self._index)

    def close(self) -> None:
        """Release the slot of a call that is over."""
        self._release()
        self.mark_asked()

    def _release(self) -> None:
        if self._acquired:
            self._acquired = False
            self._free.release()


class _RequestOrder:
    """Lets the calls of a group ask their requests in call order."""

    def __init__(self, call_count: int) -> None:
        self._asked = [False] * call_count
        self._next = 0
        self._waiting: dict[int, asyncio.Event] = {}

    async def wait_for(self, index: int) -> None:
        if index > self._next:
            await self._waiting.setdefault(index, asyncio.Event()).wait()

    def mark_asked(self, index: int) -> None:
        self._asked[index] = True
        while self._next < len(self._asked) and self._asked[self._next]:
            self._next += 1
            if waiting := self._waiting.pop(self._next, None):
                waiting.set()
