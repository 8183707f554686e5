"""The count of the tokens, cost and time that sub-agents have spent, from the log."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal

from agenticx.runtime.budgets.budget import Spent
from agenticx.runtime.budgets.usage_payload import spent_in_call
from agenticx.runtime.events import (
    ConfirmRequiredEvent,
    ConfirmResponseEvent,
    ErrorEvent,
    Event,
    QuestionAnsweredEvent,
    QuestionAskedEvent,
    TurnStartedEvent,
    UsageEvent,
)
from agenticx.sessions.store.entries import StoredEvent, decode

__all__ = ["SpentCounter"]


class SpentCounter:
    """The count of the tokens and cost of the turns `turn_ids` of an agent with those below, and of their own time.

    The time of waiting for a person does not count, nor that between the death of a process and the end of its turn.
    """

    def __init__(self, turn_ids: Collection[str]) -> None:
        self._own = turn_ids
        self._all = set(turn_ids)
        self._tokens = 0
        self._cost_usd = Decimal(0)
        self._seconds = 0.0
        self._last_step = 0.0
        self._since: datetime | None = None  # None between turns
        self._open_questions = set[str]()

    @property
    def spent(self) -> Spent:
        """The sum of all events so far."""
        return Spent(self._tokens, self._cost_usd, self._seconds)

    def count(self, event: StoredEvent) -> None:
        """Count an event; they come in the order of the log."""
        if event.turn_id is None or not (event.turn_id in self._all or event.type == "turn_started"):
            return
        entry = decode(event)
        match entry.event:
            case TurnStartedEvent(data=data) if data.get("parent_turn_id") in self._all:
                self._all.add(event.turn_id)
            case UsageEvent(data=data) if event.turn_id in self._all:
                spent = spent_in_call(data)
                self._tokens, self._cost_usd = self._tokens + spent.tokens, self._cost_usd + spent.cost_usd
            case _:
                pass
        if event.turn_id in self._own:
            self._count_time(entry.event, datetime.fromisoformat(entry.ts))

    def _count_time(self, event: Event, now: datetime) -> None:
        if self._since is not None and now > self._since and not self._open_questions:
            self._last_step = (now - self._since).total_seconds()
            self._seconds += self._last_step
        elif self._since != now:
            self._last_step = 0.0
        self._since = now
        if isinstance(event, ConfirmRequiredEvent | QuestionAskedEvent):
            self._open_questions.add(event.data["id"])
        elif isinstance(event, ConfirmResponseEvent | QuestionAnsweredEvent):
            self._open_questions.discard(event.data["id"])
        if event.terminal:
            if isinstance(event, ErrorEvent) and event.data["code"] == "interrupted":
                self._seconds -= self._last_step
            self._since, self._last_step = None, 0.0
            self._open_questions.clear()
