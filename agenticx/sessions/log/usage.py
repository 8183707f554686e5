"""Usage of model calls, summed by session, day, model and agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from agenticx.messages import MAIN_AGENT
from agenticx.runtime.events import UsageEvent
from agenticx.runtime.events.payloads import UsageData
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import StoredEvent, decode

__all__ = ["DailyUsage", "UsageCounts", "UsageItem"]


class UsageItem(TypedDict):
    """The usage of model calls; the last two fields count the calls without token counts and without a cost."""

    calls: Annotated[int, Field(description="The number of model calls.")]
    input_tokens: Annotated[int, Field(description="The tokens of the requests, cached ones included.")]
    output_tokens: Annotated[int, Field(description="The tokens of the replies.")]
    cached_tokens: Annotated[int, Field(description="The tokens of the requests that the provider had in its cache.")]
    reasoning_tokens: Annotated[int, Field(description="The tokens of the replies that are reasoning.")]
    cost_usd: Annotated[str | None, Field(description="The cost in USD; null if no cost is known.")]
    calls_without_counts: Annotated[int, Field(description="The calls whose tokens are not known.")]
    calls_without_cost: Annotated[int, Field(description="The calls whose cost is not known.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """The usage of a number of calls.

    `uncounted` calls are those whose provider did not report both input and output tokens, `unpriced` ones those whose
    cost is unknown: their usage is in no sum. `cost_usd` is None if no call's cost is known.
    """

    calls: int = 0
    uncounted: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = None

    @property
    def has_tokens(self) -> bool:
        """False if the calls were made without a count of any token, so that a sum of 0 says nothing."""
        return self.uncounted < self.calls or bool(self.input_tokens or self.output_tokens)

    @classmethod
    def of_columns(cls, columns: Sequence[Any]) -> UsageCounts:
        """Return the counts in the columns of a table, in the order of the fields; raises `DamagedData`."""
        *numbers, cost = columns
        with map_decode_errors("the usage of a session"):
            calls, uncounted, unpriced, into, out, cached, reasoning = (int(number or 0) for number in numbers)
            return cls(
                calls=calls,
                uncounted=uncounted,
                unpriced=unpriced,
                input_tokens=into,
                output_tokens=out,
                cached_tokens=cached,
                reasoning_tokens=reasoning,
                cost_usd=None if cost is None else Decimal(cost),
            )

    def __add__(self, other: UsageCounts) -> UsageCounts:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageCounts(
            calls=self.calls + other.calls,
            uncounted=self.uncounted + other.uncounted,
            unpriced=self.unpriced + other.unpriced,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=sum(costs, Decimal(0)) if costs else None,
        )

    def to_json(self) -> UsageItem:
        """Return the counts as reports have them."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cost_usd": None if self.cost_usd is None else f"{self.cost_usd:f}",
            "calls_without_counts": self.uncounted,
            "calls_without_cost": self.unpriced,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage:
    """The usage of one model by one agent of a session on one day (`YYYY-MM-DD`, UTC)."""

    session_id: str
    day: str
    model: str
    agent_id: str = MAIN_AGENT
    counts: UsageCounts

    @classmethod
    def of_call(cls, stored: StoredEvent) -> DailyUsage:
        """Return the usage of the one call that an event `usage` reports; raises `DamagedData`."""
        entry = decode(stored)
        event = entry.event
        assert isinstance(event, UsageEvent)
        with map_decode_errors(f"event {stored.seq} of session {stored.session_id!r}"):
            return cls(
                session_id=stored.session_id,
                day=entry.ts[:10],
                model=event.data["model"],
                agent_id=event.agent_id,
                counts=_counts_of_call(event.data),
            )

    @staticmethod
    def total(rows: Iterable[DailyUsage]) -> UsageCounts:
        """Return the sum of the rows."""
        return sum((row.counts for row in rows), UsageCounts())

    @staticmethod
    def merged(rows: Iterable[DailyUsage]) -> list[DailyUsage]:
        """Return one row for each session, day, model and agent, ordered by day."""
        sums: dict[tuple[str, ...], DailyUsage] = {}
        for row in rows:
            key = (row.day, row.session_id, row.model, row.agent_id)
            known = sums.get(key)
            sums[key] = row if known is None else replace(known, counts=known.counts + row.counts)
        return sorted(sums.values(), key=lambda row: row.day)


def _counts_of_call(usage: UsageData) -> UsageCounts:
    """Return the data of one `usage` event as the counts of one call."""
    cost = usage.get("cost_usd")
    both_known = usage["input_tokens"] is not None and usage["output_tokens"] is not None
    return UsageCounts(
        calls=1,
        uncounted=0 if both_known else 1,
        unpriced=1 if cost is None else 0,
        input_tokens=usage["input_tokens"] or 0,
        output_tokens=usage["output_tokens"] or 0,
        cached_tokens=usage.get("cached_tokens") or 0,
        reasoning_tokens=usage.get("reasoning_tokens") or 0,
        cost_usd=None if cost is None else Decimal(cost),
    )
