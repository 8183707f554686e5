"""Measurement of a case in CPU seconds: its growth and the longest hold of the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, cast

from agenticx.threads import run_in_thread
from tests.linear.case import LinearCase, Make
from tests.support.timeouts import longest_hold

__all__ = ["MAX_HOLD", "MAX_RATIO", "MEGABYTE", "Measurement", "cpu_seconds", "measure"]

MEGABYTE = 1_000_000
MAX_HOLD = 0.050
"""The seconds for which one function may hold the event loop."""

MAX_RATIO = 2.5
"""The factor by which the cost may grow when the input doubles."""

_MIN_SIZE = MEGABYTE // 256
_MIN_SECONDS = 0.006  # seconds that are distinguishable from noise
_SINGLE_RUN_SECONDS = 0.5  # seconds after which one measurement is enough
_SKIP_SECONDS = 20.0  # estimated seconds per megabyte at which the other families are skipped
_MEASURABLE_SECONDS = 10.0  # estimated seconds per megabyte up to which it is measured anyway
_TRIES = 2
_MORE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of a case: a megabyte of the `family` that holds the loop longest, and the steepest growth ratio.

    `hold` is an estimate if a megabyte would take too long. `ratio` is None if no input costs enough to measure one.
    """

    case: LinearCase
    family: str
    seconds: float
    hold: float
    estimated: bool
    ratio: float | None
    steepest: str

    @property
    def missed(self) -> bool:
        """True if a budget is exceeded; the budget of the loop does not apply to a program of its own."""
        too_long = self.hold > MAX_HOLD and self.case.where != "program"
        return too_long or (self.ratio or 0.0) > MAX_RATIO


@dataclass(frozen=True, slots=True)
class _Cost:
    """The CPU seconds in total, and the longest time between two iterations of the loop."""

    total: float
    longest: float


@dataclass(frozen=True, slots=True)
class _Growth:
    """The cost of the largest input tried, which has `size`; `peak` is the longest hold of any size."""

    family: str
    size: int
    cost: _Cost
    peak: float
    ratio: float | None

    @property
    def estimate(self) -> _Cost:
        """The cost of a megabyte, extrapolated from the largest input."""
        more = (MEGABYTE / self.size) ** (1 if (self.ratio or 0.0) <= MAX_RATIO else 2)
        return _Cost(self.cost.total * more, max(self.peak, self.cost.longest * more))


def measure(case: LinearCase) -> Measurement:
    """Measure every family of inputs, and the most costly one at a megabyte."""
    growths = _growths(case)
    worst = max(growths, key=lambda growth: growth.estimate.longest)
    steepest = max(growths, key=lambda growth: growth.ratio or 0.0)
    estimate, estimated = worst.estimate, worst.size < MEGABYTE
    if estimate.total < _MEASURABLE_SECONDS:  # the function may limit its own input
        cost = _best(case, case.inputs[worst.family], MEGABYTE, _TRIES)
        estimate, estimated = _Cost(cost.total, max(cost.longest, worst.peak)), False
    hold = estimate.longest
    if case.where in ("thread", "awaited"):
        sizes = {worst.size, MEGABYTE} if estimate.total < _MEASURABLE_SECONDS else {worst.size}
        hold = max(_hold_during_thread(case, worst.family, size) for size in sizes)
    return Measurement(case, worst.family, estimate.total, hold, estimated, steepest.ratio, steepest.family)


def _growths(case: LinearCase) -> list[_Growth]:
    """Measure the growth of every family, and stop after one that exceeds `_SKIP_SECONDS`, as others take as long."""
    growths: list[_Growth] = []
    for family, make in case.inputs.items():
        growths.append(_growth(case, family, make))
        if growths[-1].estimate.total > _SKIP_SECONDS:
            break
    return growths


def cpu_seconds(case: LinearCase, make: Make, size: int, tries: int = 1) -> float:
    """Return the CPU seconds of the fastest of a few tries."""
    return _best(case, make, size, tries).total


def _growth(case: LinearCase, family: str, make: Make) -> _Growth:
    """Double the input until its cost is distinguishable from noise, or is negligible even with quadratic growth."""
    size, cost = _MIN_SIZE, _best(case, make, _MIN_SIZE, 1)
    peak = cost.longest
    while cost.total < _MIN_SECONDS and cost.total * (MEGABYTE / size) ** 2 > _MIN_SECONDS:
        size = min(2 * size if cost.total > _MIN_SECONDS / 16 else 4 * size, MEGABYTE)
        cost = _best(case, make, size, 1)
        peak = max(peak, cost.longest)
    if cost.total < _MIN_SECONDS / 4:
        return _Growth(family, size, cost, peak, None)
    if cost.total > _SINGLE_RUN_SECONDS:
        return _Growth(family, size, cost, peak, cost.total / _best(case, make, size // 2, 1).total)
    ratio, cost = _doubled(case, make, size, _TRIES)
    if ratio > MAX_RATIO:  # noise, a step up to a limit, or growth: only growth continues at larger sizes
        ratio = min(_doubled(case, make, tried_size, _MORE_TRIES)[0] for tried_size in (size, 2 * size, 4 * size))
    return _Growth(family, size, cost, max(min(peak, 4 * cost.longest), cost.longest), ratio)


def _doubled(case: LinearCase, make: Make, size: int, tries: int) -> tuple[float, _Cost]:
    """Return the ratio of an input's cost to that of its half, and its cost."""
    half, whole = _best(case, make, size // 2, tries), _best(case, make, size, tries)
    return whole.total / half.total, whole


def _best(case: LinearCase, make: Make, size: int, tries: int) -> _Cost:
    argument = make(size)
    costs = [_measure_once(case, argument) for _ in range(tries)]
    return _Cost(min(cost.total for cost in costs), min(cost.longest for cost in costs))


def _measure_once(case: LinearCase, argument: Any) -> _Cost:
    gc.collect(0)  # so that garbage of earlier cases is not collected during this one
    if case.where == "awaited":
        return _measure_awaited(case, argument)
    began = last = time.thread_time()
    longest = 0.0
    for _ in _steps(case.run(argument)):
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    ended = time.thread_time()
    return _Cost(ended - began, max(longest, ended - last))


def _measure_awaited(case: LinearCase, argument: Any) -> _Cost:
    """Return the cost of all threads together; the hold of the loop is measured separately."""

    async def run() -> float:
        began = time.process_time()
        await cast("Awaitable[object]", case.run(argument))
        return time.process_time() - began

    seconds = asyncio.run(run())
    return _Cost(seconds, seconds)


def _steps(result: object) -> Iterator[object]:
    return cast("Iterator[object]", result) if isinstance(result, GeneratorType) else iter(())


def _hold_during_thread(case: LinearCase, family: str, size: int) -> float:
    argument = case.inputs[family](size)
    return min(asyncio.run(_longest_hold(case, argument)) for _ in range(_TRIES))


def _exhaust(case: LinearCase, argument: Any) -> None:
    for _ in _steps(case.run(argument)):
        pass


async def _longest_hold(case: LinearCase, argument: Any) -> float:
    """Return the longest hold of a loop while the work is done in a thread or awaited."""
    async with longest_hold() as hold:
        if case.where == "awaited":
            await cast("Awaitable[object]", case.run(argument))
        else:
            await run_in_thread(_exhaust, case, argument)
    return hold.longest
