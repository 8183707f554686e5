"""The time that a turn takes of its budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from agenticx.clocks import Clock
from agenticx.runtime.budgets.budget import Budget

__all__ = ["WorkClock"]

_MARGIN_SECONDS = 0.001


class WorkClock:
    """The time of one turn in its budgets: it runs from `start` to `end`, except while the turn waits for a person.

    Each of `limits` is a budget and a function that is called on the event loop if the budget's time is used up while
    the turn is at work.
    """

    def __init__(self, clock: Clock, limits: Sequence[tuple[Budget, Callable[[], None]]]) -> None:
        self._clock = clock
        self._limits = limits
        self._waiting = 0
        self._timers: dict[Budget, asyncio.TimerHandle] = {}
        self._is_running = False

    def start(self) -> None:
        """Start to count."""
        if self._is_running or self._waiting:
            return
        self._is_running = True
        for budget, on_expiry in self._limits:
            budget.start_work(self._clock)
            self._check(budget, on_expiry)

    def end(self) -> None:
        """Stop to count."""
        if not self._is_running:
            return
        self._is_running = False
        for budget, _ in self._limits:
            budget.end_work(self._clock)
        for timer in self._timers.values():
            timer.cancel()

    @contextmanager
    def waiting_for_person(self) -> Generator[None]:
        """Do not count the time of the block."""
        was_running = self._is_running
        self._waiting += 1
        self.end()
        try:
            yield
        finally:
            self._waiting -= 1
            if was_running:
                self.start()

    def _check(self, budget: Budget, on_expiry: Callable[[], None]) -> None:
        """Report that the time of the budget is used up, or check again when it would be."""
        left = budget.seconds_left()
        if left <= 0:
            on_expiry()
        elif math.isfinite(left):
            seconds = self._clock.real(left) + _MARGIN_SECONDS
            self._timers[budget] = asyncio.get_running_loop().call_later(seconds, self._check, budget, on_expiry)
