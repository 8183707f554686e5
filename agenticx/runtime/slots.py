"""Calls of a round that run side by side: how many at the same time, and the order in which the person is asked."""

from __future__ import annotations

import asyncio

__all__ = ["MAX_CONCURRENT_CALLS", "Slot", "slots"]

MAX_CONCURRENT_CALLS = 8
"""Calls of one turn that may run at the same time. A call that waits for the person's answer is not counted."""


def slots(calls: int) -> list[Slot]:
    """Return a slot for each of a group of neighbouring calls, in call order; `MOST_AT_ONCE` can be held at a time."""
    order = _QuestionOrder(calls)
    free = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    return [Slot(free, order, place) for place in range(calls)]


class Slot:
    """The right of one call to run: held from its first hook to its result, but not while the person is asked.

    So a call never waits between the last look at what it would do and doing it.
    """

    def __init__(self, free: asyncio.Semaphore, order: _QuestionOrder, place: int) -> None:
        self._free = free
        self._order = order
        self._place = place
        self._held = False

    async def acquire(self) -> None:
        """Wait until fewer than `MOST_AT_ONCE` are held, first come first served."""
        await self._free.acquire()
        self._held = True

    async def release_to_ask(self) -> None:
        """Let others run, and wait until each earlier call of the group has put its question or needs none."""
        self._release()
        await self._order.wait_for(self._place)

    def mark_asked(self) -> None:
        """Say that the question was put, or that there is none."""
        self._order.mark_asked(self._place)

    def close(self) -> None:
        """The call is over."""
        self._release()
        self.mark_asked()

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._free.release()


class _QuestionOrder:
    """Lets calls put their questions in call order."""

    def __init__(self, calls: int) -> None:
        self._asked = [False] * calls
        self._next = 0
        self._waiting: dict[int, asyncio.Event] = {}

    async def wait_for(self, place: int) -> None:
        if place > self._next:
            await self._waiting.setdefault(place, asyncio.Event()).wait()

    def mark_asked(self, place: int) -> None:
        self._asked[place] = True
        while self._next < len(self._asked) and self._asked[self._next]:
            self._next += 1
            if waiting := self._waiting.pop(self._next, None):
                waiting.set()
