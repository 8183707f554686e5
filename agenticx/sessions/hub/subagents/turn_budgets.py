"""The budgets of the turns of a session's main agent, which all their child turns share."""

from __future__ import annotations

from weakref import WeakValueDictionary

from agenticx.runtime import Budget
from agenticx.sessions.hub.subagents.spent import SpentCounter
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.settings import Settings

__all__ = ["TurnBudgets"]


class TurnBudgets:
    """The budgets of one session's turns by the settings, by the id of the turn at the top.

    Each is kept while a turn uses it. What the log has of a turn and those below it is spent when it is made again.
    `has_limits` is false if the settings set none.
    """

    def __init__(self, session_id: str, log: Log, settings: Settings) -> None:
        self._session_id = session_id
        self._log = log
        self._tokens = settings.turn_budget_tokens or None
        self._cost_usd = settings.turn_budget_usd or None
        self.has_limits = self._tokens is not None or self._cost_usd is not None
        self._kept = WeakValueDictionary[str, Budget]()

    async def of(self, turn_id: str) -> Budget | None:
        """Return the budget of a turn, which is that of the one at the top; None without a limit in the settings."""
        if not self.has_limits:
            return None
        top_id, after_seq = turn_id, None
        while (turn := await self._log.turn(self._session_id, top_id)) is not None:
            after_seq = turn.after_seq
            if turn.parent_turn_id is None:
                break
            top_id = turn.parent_turn_id
        if (kept := self._kept.get(top_id)) is not None:
            return kept
        budget = Budget(tokens=self._tokens, cost_usd=self._cost_usd)
        if after_seq is not None:
            counter = SpentCounter({top_id})
            async for page in read_log_pages(self._log, self._session_id, after_seq):
                for event in page:
                    counter.count(event)
            budget.add_spent(counter.spent)
        return self._kept.setdefault(top_id, budget)
