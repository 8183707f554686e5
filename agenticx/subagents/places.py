"""The places in which sub-agents work, of which there are only so many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agenticx.runtime import StopSignal
from agenticx.subagents.records import Subagent

__all__ = ["Places"]


class Places:
    """A number of places, taken in the order of asking."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting = deque[asyncio.Future[None]]()

    async def take(self, agent: Subagent) -> None:
        """Wait for a place and take it for the agent, unless that is stopped before there is one."""
        agent.has_place = await self._take(agent.stop)

    def leave(self, agent: Subagent) -> None:
        """Give the place of the agent, if it has one, to the one that has waited longest."""
        if agent.has_place:
            agent.has_place = False
            self._give_back()

    def take_back(self, agent: Subagent) -> None:
        """Take a place for the agent, unless it has one, at once: if need be beyond their number.

        While more are taken than there are, none is given to others.
        """
        if not agent.has_place:
            agent.has_place = True
            self._free -= 1

    @asynccontextmanager
    async def without(self, agent: Subagent | None) -> AsyncGenerator[None]:
        """Give up the place of an agent while it waits for others, which may need one.

        Take one back at once, however the wait ends, unless the run of the agent has ended.
        """
        if agent is None or not agent.has_place:
            yield
            return
        inbox_of_run = agent.steering
        self.leave(agent)
        try:
            yield
        finally:
            if not inbox_of_run.closed:
                self.take_back(agent)

    async def _take(self, stop: StopSignal) -> bool:
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
                self._give_back()
            raise
        finally:
            stopping.cancel()
            if not given.done():
                self._waiting.remove(given)
        return given.done()

    def _give_back(self) -> None:
        self._free += 1
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft().set_result(None)
