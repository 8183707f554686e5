"""What model calls used: sums by session, day and model, and sums of those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

__all__ = ["Counts", "Spent", "counted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a number of calls used.

    `uncounted` calls are those whose provider did not say how many tokens went in or came out, `unpriced` ones those
    whose cost is not known: what they used is in no sum. `cost_usd` is None if no call's cost is known.
    """

    calls: int = 0
    uncounted: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = None

    def __add__(self, other: Counts) -> Counts:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Counts(
            calls=self.calls + other.calls,
            uncounted=self.uncounted + other.uncounted,
            unpriced=self.unpriced + other.unpriced,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=sum(costs, Decimal(0)) if costs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one session used on one day (`YYYY-MM-DD`, UTC) of one model."""

    session_id: str
    day: str
    model: str
    counts: Counts

    @staticmethod
    def summed(rows: Iterable[Spent]) -> list[Spent]:
        """One row for each session, day and model, by day."""
        sums: dict[tuple[str, str, str], Spent] = {}
        for row in rows:
            key = (row.day, row.session_id, row.model)
            known = sums.get(key)
            sums[key] = row if known is None else replace(known, counts=known.counts + row.counts)
        return sorted(sums.values(), key=lambda row: row.day)


def counted(usage: Mapping[str, Any]) -> Counts:
    """The data of one `usage` event as the use of one call."""
    cost = usage.get("cost_usd")
    both_known = usage["input_tokens"] is not None and usage["output_tokens"] is not None
    return Counts(
        calls=1,
        uncounted=0 if both_known else 1,
        unpriced=1 if cost is None else 0,
        input_tokens=usage["input_tokens"] or 0,
        output_tokens=usage["output_tokens"] or 0,
        cached_tokens=usage.get("cached_tokens") or 0,
        reasoning_tokens=usage.get("reasoning_tokens") or 0,
        cost_usd=None if cost is None else Decimal(cost),
    )
