"""The counts of a run, and the organizations to which its model calls count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

from agenticx.core.agent import Agent
from agenticx.core.results import ExecutionStats
from agenticx.llms.base import Usage
from agenticx.runtime.budgets.usage_payload import usage_data, usage_from_data
from agenticx.runtime.events import Event
from agenticx.runtime.events.payloads import FinalUsageData

__all__ = ["RunUsage", "round_count"]


class RunUsage:
    """The agents that acted in each attempt of a run, to count model calls by organization.

    `first` is the agent with which each attempt begins.
    """

    def __init__(self, first: Agent[Any, Any]) -> None:
        self._first = first
        self._taken_over: dict[str | None, Sequence[Agent[Any, Any]]] = {}

    def begin_attempt(self, turn_id: str | None, taken_over: Sequence[Agent[Any, Any]]) -> None:
        """Keep the list of agents that take over in the attempt; it grows while the attempt runs."""
        self._taken_over[turn_id] = taken_over

    def stats(self, events: Sequence[Event], *, rounds: int, seconds: float) -> ExecutionStats:
        """Return the counts of the run; `events` are the events of its attempts and their child turns."""
        by_organization: dict[str, list[Usage]] = {}
        for organization, usage in self._usages(events):
            by_organization.setdefault(organization, []).append(usage)
        total = _sum(usage for usages in by_organization.values() for usage in usages)
        return ExecutionStats(
            rounds=rounds,
            tool_calls=sum(event.type == "tool_result" for event in events),
            usage=total,
            cost_usd=total.get("cost_usd"),
            seconds=round(seconds, 3),
            organization_id=self._first.organization_id,
            usage_by_organization={name: _sum(usages) for name, usages in by_organization.items()},
        )

    def _usages(self, events: Sequence[Event]) -> Iterator[tuple[str, Usage]]:
        """Yield the organization of each model call: the organization of the agent that acts in the attempt."""
        acting, coming = self._first, iter(())
        for event in events:
            if event.type == "turn_started" and event.turn_id in self._taken_over:
                acting, coming = self._first, iter(self._taken_over[event.turn_id])
            elif event.type == "handoff" and event.turn_id in self._taken_over:
                acting = next(coming, acting)
            elif event.type == "usage":
                yield acting.organization_id, usage_from_data(event.data)


def round_count(events: Sequence[Event]) -> int:
    """Return the number of model calls that these events begin."""
    return sum(event.type == "round_start" for event in events)


def _sum(usages: Iterable[Usage]) -> FinalUsageData:
    """Return the sum as in a `final` event."""
    first, *others = list(usages) or [Usage()]
    return cast("FinalUsageData", usage_data(reduce(add, others, first)))
