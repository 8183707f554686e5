"""The limits of a tree of sub-agents: on starting them, on running them at once, on asking for states."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agenticx.argument_types import check_int, check_number
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock
from agenticx.errors import CallBlocked
from agenticx.runtime import StopSignal
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.subagents.records import SubagentLimitReached
from agenticx.subagents.tree import Subagent, SubagentTree

__all__ = ["RunSlots", "StartLimits", "StatusQueries", "SubagentLimits"]

_ADVICE = "wait_subagents waits without asking; endings are reported to you by themselves"


@explain_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """The limits of a tree of sub-agents.

    - `depth`: the levels of sub-agents; the main agent's own are at level 1.
    - `children`: the sub-agents of one agent that have not ended.
    - `running`: the sub-agents of the tree that work at once; the others are queued. A sub-agent that waits for a
      person or for its own sub-agents releases its slot. It goes on without waiting for a free slot; a queued sub-agent
      waits for one.
    - `seconds`: the time of one turn of a sub-agent; time spent waiting for a person does not count.
    - `total`: the runs that one turn of the main agent starts, directly or through sub-agents; None is no limit.
    """

    depth: int = 3
    children: int = 8
    running: int = 4
    seconds: float = 1800.0
    total: int | None = None

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, "a number of seconds")
        for name in ("depth", "children", "running", "seconds", "total"):
            if name == "total" and self.total is None:
                continue
            value = getattr(self, name)
            if name != "seconds":
                check_int(name, value)
            if not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")


class StartLimits:
    """The limits of a tree, and how many runs each root turn has started, directly or through sub-agents.

    The number of runs that a person starts, outside of turns, is not limited.
    """

    def __init__(self, limits: SubagentLimits, tree: SubagentTree) -> None:
        self._limits = limits
        self._tree = tree
        self._runs = Counter[str]()

    def check(self, parent: Subagent | None, caller: Turn | None) -> None:
        """Raise `SubagentLimitReached` if `caller` may not start another sub-agent of `parent`."""
        limits = self._limits
        if parent is not None and parent.depth >= limits.depth:
            raise SubagentLimitReached(f"sub-agents may be {limits.depth} deep; do the work yourself")
        if (working := len(self._tree.working(parent))) >= limits.children:
            raise SubagentLimitReached(f"queue_full: {working} sub-agents have not ended; wait for one of them")
        if caller is not None and limits.total is not None and self._runs[caller.lineage.root.id] >= limits.total:
            raise SubagentLimitReached(
                f"queue_full: this turn of the main agent has started {limits.total} sub-agents, the most that it may;"
                " work with what they found"
            )

    def count(self, parent_turn: Turn | None) -> None:
        """Count a run that begins as a child turn."""
        if parent_turn is not None:
            self._runs[parent_turn.lineage.root.id] += 1


class RunSlots:
    """A semaphore of `number` slots for running sub-agents, first come, first served."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting = deque[asyncio.Future[None]]()

    async def acquire(self, agent: Subagent) -> None:
        """Wait for a slot and give it to the agent, unless the agent is stopped first."""
        agent.has_slot = await self._acquire(agent.stop)

    def release(self, agent: Subagent) -> None:
        """Pass the agent's slot, if it has one, on to the agent that has waited longest."""
        if agent.has_slot:
            agent.has_slot = False
            self._release()

    def reacquire(self, agent: Subagent) -> None:
        """Give the agent a slot at once unless it has one; more than `number` slots may be held then.

        Meanwhile no queued agent gets a slot.
        """
        if not agent.has_slot:
            agent.has_slot = True
            self._free -= 1

    @asynccontextmanager
    async def released(self, agent: Subagent | None) -> AsyncGenerator[None]:
        """Release the slot of an agent while it waits for its sub-agents, which may need one.

        The agent gets a slot back at once when the block ends, unless its run has ended.
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


class StatusQueries:
    """The limits on queries for states, for all agents of one tree."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._made: dict[str, _Queries] = {}

    def count(self, turn: Turn | None) -> None:
        """Count a query of a turn; raise `CallBlocked` if the turn has used its queries up or asks too early."""
        agent_id, turn_id = ("", "") if turn is None else (turn.agent_id, turn.id)
        made = self._made.get(agent_id)
        if made is None or made.turn_id != turn_id:
            made = self._made[agent_id] = _Queries(turn_id)
        budget, now = self._settings.status_query_budget_per_turn, self._clock.monotonic()
        if made.number >= budget:
            raise CallBlocked(
                f"Blocked: {budget} status queries per turn were made, ask again in the next turn; {_ADVICE}."
            )
        if (left := made.last + self._settings.status_query_cooldown_seconds - now) > 0:
            raise CallBlocked(f"Blocked: ask again in {left:.1f} s; {_ADVICE}.")
        made.number, made.last = made.number + 1, now


@dataclass(slots=True)
class _Queries:
    """The queries of one agent in one turn; `last` is the time of the latest one."""

    turn_id: str
    number: int = 0
    last: float = float("-inf")
