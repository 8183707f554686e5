"""The time that a turn takes of its budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager

from agenticx.clocks import Clock
from agenticx.runtime.budgets.budget import Budget

__all__ = ["WorkClock"]


class WorkClock:
    """The time of one turn in its budget: it runs from `start` to `end`, except while the turn waits for a person.

    `on_expiry` is called on the event loop if the time of a budget is used up while the turn is at work.
    """

    def __init__(self, budget: Budget | None, clock: Clock, on_expiry: Callable[[], None]) -> None:
        self._budget = budget
        self._clock = clock
        self._on_expiry = on_expiry
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        """Start to count."""
        if self._budget is not None and not self._is_running:
            self._is_running = True
            self._budget.start_work(self._clock)
            self._check()

    def end(self) -> None:
        """Stop to count."""
        if self._budget is not None and self._is_running:
            self._is_running = False
            self._budget.end_work(self._clock)
            if self._timer is not None:
                self._timer.cancel()

    @contextmanager
    def waiting_for_person(self) -> Generator[None]:
        """Do not count the time of the block."""
        self._waiting += 1
        self.end()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.start()

    def _check(self) -> None:
        """End the turn if a budget's time is used up, else check again when it would be."""
        assert self._budget is not None
        left = self._budget.seconds_left()
        if left <= 0:
            self._on_expiry()
        elif math.isfinite(left):
            self._timer = asyncio.get_running_loop().call_later(self._clock.real(left) + 0.001, self._check)
