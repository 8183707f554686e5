"""The queries for the states of sub-agents, of which a turn may make few, some time apart."""

from __future__ import annotations

from dataclasses import dataclass

from agenticx.clocks import Clock
from agenticx.errors import CallBlocked
from agenticx.runtime.turn import Turn
from agenticx.settings import Settings

__all__ = ["StatusQueries"]

_ADVICE = "wait_subagents waits without asking; endings are reported to you by themselves"


@dataclass(slots=True)
class _Queries:
    """The queries of one agent in one turn; `last` is the time of the latest one."""

    turn_id: str
    number: int = 0
    last: float = float("-inf")


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
