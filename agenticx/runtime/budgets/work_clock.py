"""The clock that counts a turn's work time for its budgets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from agenticx.clocks import Clock
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.interrupts import InterruptReason

__all__ = ["CURRENT_CLOCK", "WorkClock"]

_MARGIN_SECONDS = 0.001

CURRENT_CLOCK: ContextVar[WorkClock | None] = ContextVar("agenticx_clock_around", default=None)
"""The innermost work clock of the running code that is not a turn's, for example an agent run's."""


class WorkClock:
    """The work time of one turn: from `start` to `end`, except while the turn waits for a person.

    While it waits, the clock of the `parent` turn and the `CURRENT_CLOCK` in which the turn began are paused too.
    `limits` are budgets by reason; if the time of one is used up, `on_expiry` is called with its reason on the event
    loop.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Mapping[InterruptReason, Budget | None],
        on_expiry: Callable[[InterruptReason], None],
        *,
        parent: WorkClock | None = None,
    ) -> None:
        self._clock = clock
        self._budgets: dict[InterruptReason, Budget] = {
            reason: budget for reason, budget in limits.items() if budget is not None
        }
        self._on_expiry = on_expiry
        self._around = [clock for clock in (parent, CURRENT_CLOCK.get()) if clock is not None]
        self._waiting = 0
        self._timers: dict[InterruptReason, asyncio.TimerHandle] = {}
        self._is_running = self._has_ended = False

    def start(self) -> None:
        """Start counting."""
        if self._is_running or self._has_ended or self._waiting:
            return
        self._is_running = True
        for reason, budget in self._budgets.items():
            budget.start_work(self._clock)
            self._check(reason, budget)

    def end(self) -> None:
        """Stop counting, for good."""
        self._has_ended = True
        self._pause()

    def _pause(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        for budget in self._budgets.values():
            budget.end_work(self._clock)
        for timer in self._timers.values():
            timer.cancel()

    @contextmanager
    def waiting_for_person(self) -> Generator[None]:
        """Pause this clock and those around it while the block runs."""
        self._waiting += 1
        self._pause()
        try:
            with ExitStack() as stack:
                for around in self._around:
                    stack.enter_context(around.waiting_for_person())
                yield
        finally:
            self._waiting -= 1
            self.start()

    def _check(self, reason: InterruptReason, budget: Budget) -> None:
        """Report that the budget's time is used up, or check again when it would be."""
        left = budget.seconds_left()
        if left <= 0:
            self._on_expiry(reason)
        elif math.isfinite(left):
            seconds = self._clock.real(left) + _MARGIN_SECONDS
            self._timers[reason] = asyncio.get_running_loop().call_later(seconds, self._check, reason, budget)
