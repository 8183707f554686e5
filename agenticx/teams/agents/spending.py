"""The tokens, the cost and the time of a run, reported by the code that runs for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from decimal import Decimal
from typing import TypeVar

from agenticx import user_code
from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import Usage
from agenticx.runtime import Budget
from agenticx.runtime.budgets.work_clock import CURRENT_CLOCK, WorkClock
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.context_scopes import scoped
from agenticx.teams.messages import RequestUsage, TeamRecord

__all__ = [
    "Spending",
    "collected_by",
    "current_budget",
    "report_uncounted",
    "report_usage",
    "request_usage",
    "waiting_for_person",
    "within_budgets",
]

T = TypeVar("T")


class Spending:
    """The tokens and the cost in USD of a run and of its nested teams; the cost is None if a price is unknown.

    `reports` is the number of calls; all of them count in `budget`. The time of the run counts, except while it waits
    for a person.
    """

    def __init__(self, budget: Budget | None = None, clock: Clock | None = None) -> None:
        self.budget = budget
        self._clock = clock or SystemClock()
        self._time = Budget()  # without limits: it only measures
        self.clock = self._started_clock(self._time, lambda: None)
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
        """The nominal seconds of the run so far; time spent waiting for a person does not count."""
        return self._time.spent.seconds

    @contextmanager
    def timed(self, on_expiry: Callable[[], None]) -> Generator[None]:
        """Count the time of the block in the budget; call `on_expiry` on the event loop once the budget is used up."""
        clock = self._started_clock(self.budget, on_expiry)
        try:
            with scoped(CURRENT_CLOCK, clock):
                yield
        finally:
            clock.end()

    def _started_clock(self, budget: Budget | None, on_expiry: Callable[[], None]) -> WorkClock:
        clock = WorkClock(self._clock, {"budget_exceeded": budget}, lambda _: on_expiry())
        clock.start()
        return clock

    def _add_cost(self, cost: Decimal | None) -> None:
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + float(cost)


_current: ContextVar[tuple[Spending, ...]] = ContextVar("agenticx_spending", default=())
"""The runs for which the code runs, the outermost first."""


@contextmanager
def collected_by(spending: Spending) -> Generator[None]:
    """Add the calls of the block to this run too."""
    with scoped(_current, (*_current.get(), spending)), scoped(CURRENT_CLOCK, spending.clock):
        yield


def waiting_for_person() -> AbstractContextManager[None]:
    """Do not count the time of the block for the runs; it may be closed in another context."""
    clock = CURRENT_CLOCK.get()
    return nullcontext() if clock is None else clock.waiting_for_person()


async def within_budgets(speech: Callable[[CancellationToken], Awaitable[T]], token: CancellationToken, what: str) -> T:
    """Return the result of a speech that is not a turn, and count its time in the budgets of the runs.

    Once the seconds of a budget are used up, the speech and its token are cancelled and `BudgetExceeded` is raised. The
    speech's own token is also cancelled by `token`.
    """
    budget = current_budget()
    if budget is None:
        return await speech(token)
    own, ended = CancellationToken(), asyncio.Event()

    async def speak() -> T:
        with user_code.translated_errors(what):
            return await speech(own)

    with ExitStack() as stack:
        stack.callback(token.add_callback(own.cancel))
        for spending in _current.get():
            stack.enter_context(spending.timed(ended.set))
        task = asyncio.create_task(speak(), name=f"agx {what}")
        task.add_done_callback(lambda _: ended.set())
        try:
            await ended.wait()
            if not task.done():
                budget.check_seconds()
            return await task
        finally:
            if not task.done():
                task.cancel()
                own.cancel()
                await user_code.await_end(task, what)


def current_budget(own: Budget | None = None) -> Budget | None:
    """Return the budget for calls made now: the budgets of the current runs joined with `own`."""
    return Budget.joined(own, *(spending.budget for spending in _current.get()))


def report_usage(usage: Usage) -> None:
    """Report one model call to the runs for which it was made."""
    for spending in _current.get():
        spending.add(usage)


def report_uncounted(messages: Sequence[TeamRecord]) -> None:
    """Report calls that an agent made by itself, with the tokens that its messages name, to the current runs."""
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
