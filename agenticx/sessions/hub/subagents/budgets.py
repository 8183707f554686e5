"""The tokens, cost and time that turns have spent, from the log, and the budgets of a session's turns."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from weakref import WeakValueDictionary

from agenticx.runtime import Budget
from agenticx.runtime.budgets.budget import Spent, settings_budget
from agenticx.runtime.budgets.usage_payload import spent_in_call
from agenticx.runtime.events import (
    ErrorEvent,
    Event,
    UsageEvent,
)
from agenticx.runtime.events.types import AnsweringEvent, AskingEvent
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.log.turn_tree import TurnFilter
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.settings import Settings

__all__ = ["SpentCounter", "TurnBudgets", "read_spent"]


class TurnBudgets:
    """The budgets of one session's turns, with the limits of the settings: one for a root turn and its child turns.

    Each is kept while a turn uses it. A rebuilt budget starts with the usage in the log. `has_limits` is false if the
    settings set no limit.
    """

    def __init__(self, session_id: str, log: Log, settings: Settings) -> None:
        self._session_id = session_id
        self._log = log
        self._settings = settings
        self.has_limits = settings_budget(settings) is not None
        self._kept = WeakValueDictionary[str, Budget]()

    async def of(self, turn_id: str) -> Budget | None:
        """Return the budget of the root turn of a turn; None without a limit in the settings."""
        budget = settings_budget(self._settings)
        if budget is None:
            return None
        root_id, after_seq = turn_id, None
        while (turn := await self._log.turn(self._session_id, root_id)) is not None:
            after_seq = turn.after_seq
            if turn.parent_turn_id is None:
                break
            root_id = turn.parent_turn_id
        if (kept := self._kept.get(root_id)) is not None:
            return kept
        if after_seq is not None:
            budget.add_spent(await read_spent(self._log, self._session_id, {root_id}, after_seq))
        return self._kept.setdefault(root_id, budget)


async def read_spent(log: Log, session_id: str, turn_ids: Collection[str], after_seq: int) -> Spent:
    """Return the usage of turns, with their child turns, from the events after `after_seq`."""
    counter = SpentCounter(turn_ids)
    async for page in read_log_pages(log, session_id, after_seq):
        for event in page:
            counter.count(event)
    return counter.spent


class SpentCounter:
    """The tokens, the cost and the time of the turns `turn_ids` of an agent, with their child turns.

    Time of waiting for a person does not count, nor the time between the death of a process and the end of its turn.
    """

    def __init__(self, turn_ids: Collection[str]) -> None:
        self._own = turn_ids
        self._filter = TurnFilter(turn_ids)
        self._tokens = 0
        self._cost_usd = Decimal(0)
        self._seconds = 0.0
        self._last_step = 0.0
        self._since: datetime | None = None  # None between turns
        self._open_requests = set[str]()

    @property
    def spent(self) -> Spent:
        """The sum of all events so far."""
        return Spent(self._tokens, self._cost_usd, self._seconds)

    def count(self, event: StoredEvent) -> None:
        """Count an event; they come in the order of the log."""
        if not self._filter.includes(event):
            return
        entry = decode(event)
        if isinstance(entry.event, UsageEvent):
            spent = spent_in_call(entry.event.data)
            self._tokens, self._cost_usd = self._tokens + spent.tokens, self._cost_usd + spent.cost_usd
        if event.turn_id in self._own:
            self._count_time(entry.event, datetime.fromisoformat(entry.ts))

    def _count_time(self, event: Event, now: datetime) -> None:
        if self._since is not None and now > self._since and not self._open_requests:
            self._last_step = (now - self._since).total_seconds()
            self._seconds += self._last_step
        elif self._since != now:
            self._last_step = 0.0
        self._since = now
        if isinstance(event, AskingEvent):
            self._open_requests.add(event.data["id"])
        elif isinstance(event, AnsweringEvent):
            self._open_requests.discard(event.data["id"])
        if event.terminal:
            if isinstance(event, ErrorEvent) and event.data["code"] == "interrupted":
                self._seconds -= self._last_step
            self._since, self._last_step = None, 0.0
            self._open_requests.clear()
