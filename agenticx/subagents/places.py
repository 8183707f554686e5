"""The places in which sub-agents work, of which there are only so many."""

from __future__ import annotations

import asyncio
from collections import deque

from agenticx.runtime import StopSignal

__all__ = ["Places"]


class Places:
    """A number of places, taken in the order of asking."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting = deque[asyncio.Future[None]]()

    async def take(self, stop: StopSignal) -> bool:
        """Wait for a place and take it; return False if `stop` was set before there was one."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({given, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if given.done():
                self.give_back()
            raise
        finally:
            stopping.cancel()
            if not given.done():
                self._waiting.remove(given)
        return given.done()

    def take_back(self) -> None:
        """Take a place at once, if need be beyond their number: one that was left for a while.

        While more are taken than there are, none is given to others.
        """
        self._free -= 1

    def give_back(self) -> None:
        """Give a place to the one that has waited longest."""
        self._free += 1
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft().set_result(None)
