"""The limit of sub-agents that run at once: a semaphore whose slots agents hold by name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agenticx.runtime import StopSignal
from agenticx.subagents.records import Subagent

__all__ = ["RunSlots"]


class RunSlots:
    """A semaphore of `number` slots, acquired in the order of asking."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting = deque[asyncio.Future[None]]()

    async def acquire(self, agent: Subagent) -> None:
        """Wait for a slot and give it to the agent, unless that is stopped before there is one."""
        agent.has_slot = await self._acquire(agent.stop)

    def release(self, agent: Subagent) -> None:
        """Pass the slot of the agent, if it has one, on to the one that has waited longest."""
        if agent.has_slot:
            agent.has_slot = False
            self._release()

    def reacquire(self, agent: Subagent) -> None:
        """Give the agent a slot, unless it has one, at once: if need be beyond their number.

        While more are held than there are, none is given to others.
        """
        if not agent.has_slot:
            agent.has_slot = True
            self._free -= 1

    @asynccontextmanager
    async def released(self, agent: Subagent | None) -> AsyncGenerator[None]:
        """Release the slot of an agent while it waits for others, which may need one.

        It is acquired again at once, however the wait ends, unless the run of the agent has ended.
        """
        if agent is None or not agent.has_slot:
            yield
            return
        inbox_of_run = agent.steering
        self.release(agent)
        try:
            yield
        finally:
            if not inbox_of_run.closed:
                self.reacquire(agent)

    async def _acquire(self, stop: StopSignal) -> bool:
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
                self._release()
            raise
        finally:
            stopping.cancel()
            if not given.done():
                self._waiting.remove(given)
        return given.done()

    def _release(self) -> None:
        self._free += 1
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft().set_result(None)
