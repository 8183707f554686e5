"""Calls of a round that run side by side: how many at the same time, and the order in which the person is asked."""

from __future__ import annotations

import asyncio

__all__ = ["MOST_AT_ONCE", "Slot", "slots"]

MOST_AT_ONCE = 8
"""Calls of one turn that may run at the same time. A call that waits for the person's answer is not counted."""


def slots(calls: int) -> list[Slot]:
    """Return a slot for each of a group of neighbouring calls, in call order; `MOST_AT_ONCE` can be held at a time."""
    order = _Order(calls)
    free = asyncio.Semaphore(MOST_AT_ONCE)
    return [Slot(free, order, place) for place in range(calls)]


class Slot:
    """The right of one call to run: held from its first hook to its result, but not while the person is asked.

    So a call never waits between the last look at what it would do and doing it.
    """

    def __init__(self, free: asyncio.Semaphore, order: _Order, place: int) -> None:
        self._free = free
        self._order = order
        self._place = place
        self._held = False

    async def take(self) -> None:
        """Wait until fewer than `MOST_AT_ONCE` are held, first come first served."""
        await self._free.acquire()
        self._held = True

    async def lend(self) -> None:
        """Let others run, and wait until each earlier call of the group has put its question or needs none."""
        self._release()
        await self._order.turn_of(self._place)

    def settle(self) -> None:
        """Say that the question was put, or that there is none."""
        self._order.settle(self._place)

    def leave(self) -> None:
        """The call is over."""
        self._release()
        self.settle()

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._free.release()


class _Order:
    """Lets calls put their questions in call order."""

    def __init__(self, calls: int) -> None:
        self._settled = [False] * calls
        self._next = 0
        self._waiting: dict[int, asyncio.Event] = {}

    async def turn_of(self, place: int) -> None:
        if place > self._next:
            await self._waiting.setdefault(place, asyncio.Event()).wait()

    def settle(self, place: int) -> None:
        self._settled[place] = True
        while self._next < len(self._settled) and self._settled[self._next]:
            self._next += 1
            if waiting := self._waiting.pop(self._next, None):
                waiting.set()
