"""The tokens, the cost and the time of a run, reported by the code that runs for it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from decimal import Decimal

from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import Usage
from agenticx.runtime import Budget
from agenticx.runtime.budgets.work_clock import WorkClock
from agenticx.teams.context_scopes import scoped
from agenticx.teams.messages import RequestUsage, TeamRecord

__all__ = [
    "Spending",
    "collected_by",
    "current_budget",
    "report_uncounted",
    "report_usage",
    "request_usage",
    "timed_in_budgets",
    "waiting_for_person",
]


class Spending:
    """The tokens and the cost in USD of a run, with those of the teams in it; the cost is None if a price is unknown.

    `reports` is the number of calls, all of which are made within `budget`. The time runs from the beginning, except
    while the run waits for a person.
    """

    def __init__(self, budget: Budget | None = None, clock: Clock | None = None) -> None:
        self.budget = budget
        self._clock = clock or SystemClock()
        self._time = Budget()  # without limits: it only measures
        self.work_clocks = [self._started_clock(self._time)]
        self.usage = RequestUsage()
        self.cost_usd: float | None = 0.0
        self.reports = 0

    def add(self, usage: Usage) -> None:
        """Add one model call."""
        self.reports += 1
        self.usage += request_usage(usage) or RequestUsage()
        self._add_cost(usage.cost_usd)

    def add_uncounted(self, usage: RequestUsage) -> None:
        """Add calls of which only the tokens are known, not the cost."""
        self.reports += 1
        self.usage += usage
        self._add_cost(None)

    @property
    def seconds(self) -> float:
        """The nominal seconds of the run so far, without those in which it waits for a person."""
        return self._time.spent.seconds

    @contextmanager
    def timed(self) -> Generator[None]:
        """Count the time of the block in the budget."""
        clock = self._started_clock(self.budget)
        self.work_clocks.append(clock)
        try:
            yield
        finally:
            clock.end()
            self.work_clocks.remove(clock)

    def _started_clock(self, budget: Budget | None) -> WorkClock:
        clock = WorkClock(self._clock, {"budget_exceeded": budget}, lambda _: None)
        clock.start()
        return clock

    def _add_cost(self, cost: Decimal | None) -> None:
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + float(cost)


_current: ContextVar[tuple[Spending, ...]] = ContextVar("agenticx_spending", default=())
"""The runs for which the code runs, the outermost first."""


def collected_by(spending: Spending) -> AbstractContextManager[None]:
    """Add the calls of the block to this run too."""
    return scoped(_current, (*_current.get(), spending))


@contextmanager
def waiting_for_person() -> Generator[None]:
    """Do not count the time of the block for the runs; it may be closed in another context."""
    with ExitStack() as waits:
        for clock in [clock for spending in _current.get() for clock in spending.work_clocks]:
            waits.enter_context(clock.waiting_for_person())
        yield


@contextmanager
def timed_in_budgets() -> Generator[None]:
    """Count the time of the block, in which no turn does so, in the budgets of the runs."""
    with ExitStack() as clocks:
        for spending in _current.get():
            clocks.enter_context(spending.timed())
        yield


def current_budget(own: Budget | None = None) -> Budget | None:
    """Return the budget of calls that are made now: within those of the runs and within `own`."""
    return Budget.joined(own, *(spending.budget for spending in _current.get()))


def report_usage(usage: Usage) -> None:
    """Report one model call to the runs for which it was made."""
    for spending in _current.get():
        spending.add(usage)


def report_uncounted(messages: Sequence[TeamRecord]) -> None:
    """Report calls that an agent made by itself, of which its messages name the tokens, to the runs of the code."""
    used = [message.models_usage for message in messages if message.models_usage is not None]
    if (usage := sum(used, RequestUsage())) == RequestUsage():
        return
    for spending in _current.get():
        spending.add_uncounted(usage)


def request_usage(usage: Usage | None) -> RequestUsage | None:
    """Return the tokens of a call, None if the provider reported none."""
    if usage is None or (usage.total_input_tokens is None and usage.total_output_tokens is None):
        return None
    return RequestUsage(usage.total_input_tokens or 0, usage.total_output_tokens or 0)
