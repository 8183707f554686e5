"""The count of the tokens, cost and time that sub-agents have spent, from the log."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any

from agenticx.runtime.budgets.budget import Spent
from agenticx.runtime.budgets.usage_payload import spent_in_call
from agenticx.sessions.store.records import ASKING_EVENTS, QUESTION_EVENTS, StoredEvent

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
        envelope = json.loads(event.frame_json)
        data: dict[str, Any] = envelope["data"]
        if event.type == "turn_started" and data.get("parent_turn_id") in self._all:
            self._all.add(event.turn_id)
        if event.type == "usage" and event.turn_id in self._all:
            spent = spent_in_call(data)
            self._tokens, self._cost_usd = self._tokens + spent.tokens, self._cost_usd + spent.cost_usd
        if event.turn_id in self._own:
            self._count_time(event, data, datetime.fromisoformat(envelope["ts"]))

    def _count_time(self, event: StoredEvent, data: dict[str, Any], now: datetime) -> None:
        if self._since is not None and now > self._since and not self._open_questions:
            self._last_step = (now - self._since).total_seconds()
            self._seconds += self._last_step
        elif self._since != now:
            self._last_step = 0.0
        self._since = now
        if event.type in ASKING_EVENTS:
            self._open_questions.add(data["id"])
        elif event.type in QUESTION_EVENTS:
            self._open_questions.discard(data["id"])
        if event.terminal:
            if data.get("code") == "interrupted":
                self._seconds -= self._last_step
            self._since, self._last_step = None, 0.0
            self._open_questions.clear()
