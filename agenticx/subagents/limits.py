"""The limits of a tree of sub-agents: on starting them, on running them at once, on asking for states."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agenticx.argument_types import check_int, check_number
from agenticx.clocks import Clock
from agenticx.errors import CallBlocked
from agenticx.runtime import StopSignal
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings
from agenticx.subagents.records import SubagentLimitReached
from agenticx.subagents.tree import Subagent, SubagentTree

__all__ = ["RunSlots", "StartLimits", "StatusQueries", "SubagentLimits"]

_ADVICE = "wait_subagents waits without asking; endings are reported to you by themselves"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """The limits of a tree of sub-agents.

    `depth` is that of the lowest sub-agent, those of the main agent being at 1. An agent has at most `children` that
    have not ended, and at most `running` sub-agents of the tree work at once; the others are queued, and those that
    wait for a person or for sub-agents of their own do not count; they go on at once, and none begins until a slot is
    free again. `seconds` limits the work of each, without the time of waiting for a person. With `total` one turn of
    the main agent starts at most so many runs of sub-agents, directly or through others.
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
    """The limits of a tree, and the number of runs that each turn at its top has started, directly or through others.

    What a person starts, outside of turns, is not limited by that number.
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
        if caller is not None and limits.total is not None and self._runs[_top_id(caller)] >= limits.total:
            raise SubagentLimitReached(
                f"queue_full: this turn of the main agent has started {limits.total} sub-agents, the most that it may;"
                " work with what they found"
            )

    def count(self, above: Turn | None) -> None:
        """Count a run that begins below a turn."""
        if above is not None:
            self._runs[_top_id(above)] += 1


def _top_id(turn: Turn) -> str:
    while turn.context.parent is not None:
        turn = turn.context.parent
    return turn.id


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


class StatusQueries:
    """The queries of the agents of one tree."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._made: dict[str, _Queries] = {}

    def count(self, turn: Turn | None) -> None:
        """Count a query of a turn; raise `CallBlocked` if it is one too many or too early."""
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
