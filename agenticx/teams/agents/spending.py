"""The tokens and the cost of model calls, reported to the run for which they are made."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal

from agenticx.argument_types import check_type
from agenticx.llms.base import Usage
from agenticx.runtime import Budget
from agenticx.teams.messages import RequestUsage

__all__ = [
    "Collectors",
    "Spending",
    "checked_budget",
    "collected_by",
    "current_budget",
    "current_collectors",
    "report_usage",
    "request_usage",
]


class Spending:
    """The tokens and the cost in USD of a run, with those of the teams in it; the cost is None if a price is unknown.

    `reports` is the number of calls, all of which are made within `budget`.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        self.usage = RequestUsage()
        self.cost_usd: float | None = 0.0
        self.reports = 0

    def add(self, usage: Usage) -> None:
        """Add one model call."""
        self.reports += 1
        self.usage += request_usage(usage) or RequestUsage()
        self._add_cost(usage.cost_usd)

    def add_unreported(self, usage: RequestUsage) -> None:
        """Add calls that were not reported, so that their cost is unknown."""
        self.usage += usage
        self._add_cost(None)

    def _add_cost(self, cost: Decimal | None) -> None:
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + float(cost)


Collectors = tuple[Spending, ...]
"""The runs for which the code runs, the outermost first."""

_current: ContextVar[Collectors] = ContextVar("agenticx_spending", default=())


def current_collectors() -> Collectors:
    """Return the runs for which the code runs."""
    return _current.get()


@contextmanager
def collected_by(collectors: Collectors) -> Generator[None]:
    """Add the calls of the block, which runs in a task of its own, to these runs."""
    before = _current.get()
    _current.set(collectors)
    try:
        yield
    finally:
        _current.set(before)


def checked_budget(budget: Budget | None) -> Budget | None:
    """Return `budget`; raise TypeError if it is none."""
    if budget is not None:
        check_type("budget", budget, Budget, "a Budget")
    return budget


def current_budget(own: Budget | None = None) -> Budget | None:
    """Return the budget of calls that are made now: within those of the runs and within `own`."""
    return Budget.joined(own, *(spending.budget for spending in _current.get()))


def report_usage(usage: Usage) -> None:
    """Report one model call to the runs for which it was made."""
    for spending in _current.get():
        spending.add(usage)


def request_usage(usage: Usage | None) -> RequestUsage | None:
    """Return the tokens of a call, None if the provider reported none."""
    if usage is None or (usage.total_input_tokens is None and usage.total_output_tokens is None):
        return None
    return RequestUsage(usage.total_input_tokens or 0, usage.total_output_tokens or 0)
