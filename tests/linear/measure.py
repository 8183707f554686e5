"""CPU seconds of a case: what twice as much costs, and how long the event loop is held at a time."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, cast

from agenticx.threads import run_in_thread
from tests.linear.case import Case, Make
from tests.patience import longest_hold

__all__ = ["MEGABYTE", "MOST_HELD", "MOST_RATIO", "Figures", "figures", "spent"]

MEGABYTE = 1_000_000
MOST_HELD = 0.050
"""Seconds for which one function may hold the loop."""

MOST_RATIO = 2.5
"""How many times as much twice the input may cost."""

_SHORTEST = MEGABYTE // 256
_LONG_ENOUGH = 0.006  # seconds that can be told from noise
_LONG = 0.5  # seconds that need no second try
_HOPELESS = 20.0  # seconds that a megabyte is estimated at
_WORTH_TRYING = 10.0  # seconds that a megabyte is estimated at and tried all the same
_TRIES = 2
_MORE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """The cost of a case: of a megabyte of the `family` that holds the loop longest, and of twice as much at most.

    `held` is an estimate where a megabyte would take too long. `ratio` is None where nothing costs enough to tell.
    """

    case: Case
    family: str
    seconds: float
    held: float
    estimated: bool
    ratio: float | None
    steepest: str

    @property
    def missed(self) -> bool:
        """Whether a budget is exceeded; a program of its own holds nobody's loop."""
        too_long = self.held > MOST_HELD and self.case.where != "program"
        return too_long or (self.ratio or 0.0) > MOST_RATIO


@dataclass(frozen=True, slots=True)
class _Cost:
    """CPU seconds in all, and between two turns of the loop."""

    total: float
    longest: float


@dataclass(frozen=True, slots=True)
class _Growth:
    """What the largest input that was tried costs, of `size`; `peak` is the longest hold of any size."""

    family: str
    size: int
    cost: _Cost
    peak: float
    ratio: float | None

    @property
    def estimate(self) -> _Cost:
        """What a megabyte costs, by what the largest input does."""
        more = (MEGABYTE / self.size) ** (1 if (self.ratio or 0.0) <= MOST_RATIO else 2)
        return _Cost(self.cost.total * more, max(self.peak, self.cost.longest * more))


def figures(case: Case) -> Figures:
    """Measure every family of inputs, and the one that costs most at a megabyte."""
    growths = _growths(case)
    worst = max(growths, key=lambda growth: growth.estimate.longest)
    steepest = max(growths, key=lambda growth: growth.ratio or 0.0)
    estimate, estimated = worst.estimate, worst.size < MEGABYTE
    if estimate.total < _WORTH_TRYING:  # the function may have a bound of its own
        cost = _best(case, case.inputs[worst.family], MEGABYTE, _TRIES)
        estimate, estimated = _Cost(cost.total, max(cost.longest, worst.peak)), False
    held = estimate.longest
    if case.where in ("thread", "awaited"):
        sizes = {worst.size, MEGABYTE} if estimate.total < _WORTH_TRYING else {worst.size}
        held = max(_held_from_a_thread(case, worst.family, size) for size in sizes)
    return Figures(case, worst.family, estimate.total, held, estimated, steepest.ratio, steepest.family)


def _growths(case: Case) -> list[_Growth]:
    """Of every family, up to one that is hopeless: the others would only take as long."""
    growths: list[_Growth] = []
    for family, make in case.inputs.items():
        growths.append(_growth(case, family, make))
        if growths[-1].estimate.total > _HOPELESS:
            break
    return growths


def spent(case: Case, make: Make, size: int, tries: int = 1) -> float:
    """CPU seconds of the quickest of a few tries."""
    return _best(case, make, size, tries).total


def _growth(case: Case, family: str, make: Make) -> _Growth:
    """Double the input until its cost can be told from noise, or is none even if it grows with the square."""
    size, cost = _SHORTEST, _best(case, make, _SHORTEST, 1)
    peak = cost.longest
    while cost.total < _LONG_ENOUGH and cost.total * (MEGABYTE / size) ** 2 > _LONG_ENOUGH:
        size = min(2 * size if cost.total > _LONG_ENOUGH / 16 else 4 * size, MEGABYTE)
        cost = _best(case, make, size, 1)
        peak = max(peak, cost.longest)
    if cost.total < _LONG_ENOUGH / 4:
        return _Growth(family, size, cost, peak, None)
    if cost.total > _LONG:
        return _Growth(family, size, cost, peak, cost.total / _best(case, make, size // 2, 1).total)
    ratio, cost = _doubled(case, make, size, _TRIES)
    if ratio > MOST_RATIO:  # noise, a step up to a bound, or growth: only that goes on
        ratio = min(_doubled(case, make, place, _MORE_TRIES)[0] for place in (size, 2 * size, 4 * size))
    return _Growth(family, size, cost, max(min(peak, 4 * cost.longest), cost.longest), ratio)


def _doubled(case: Case, make: Make, size: int, tries: int) -> tuple[float, _Cost]:
    """How many times as much an input costs as its half, and what it costs."""
    half, whole = _best(case, make, size // 2, tries), _best(case, make, size, tries)
    return whole.total / half.total, whole


def _best(case: Case, make: Make, size: int, tries: int) -> _Cost:
    argument = make(size)
    costs = [_measured(case, argument) for _ in range(tries)]
    return _Cost(min(cost.total for cost in costs), min(cost.longest for cost in costs))


def _measured(case: Case, argument: Any) -> _Cost:
    gc.collect(0)  # what others left is not this one's to pay for
    if case.where == "awaited":
        return _awaited(case, argument)
    began = last = time.thread_time()
    longest = 0.0
    for _ in _steps(case.run(argument)):
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    ended = time.thread_time()
    return _Cost(ended - began, max(longest, ended - last))


def _awaited(case: Case, argument: Any) -> _Cost:
    """The cost to all threads together; for how much of it the loop is held is measured apart."""

    async def run() -> float:
        began = time.process_time()
        await cast("Awaitable[object]", case.run(argument))
        return time.process_time() - began

    seconds = asyncio.run(run())
    return _Cost(seconds, seconds)


def _steps(result: object) -> Iterator[object]:
    return cast("Iterator[object]", result) if isinstance(result, GeneratorType) else iter(())


def _held_from_a_thread(case: Case, family: str, size: int) -> float:
    argument = case.inputs[family](size)
    return min(asyncio.run(_held(case, argument)) for _ in range(_TRIES))


def _exhaust(case: Case, argument: Any) -> None:
    for _ in _steps(case.run(argument)):
        pass


async def _held(case: Case, argument: Any) -> float:
    """How long a loop does not go round while the work is done in a thread, or awaited."""
    async with longest_hold() as hold:
        if case.where == "awaited":
            await cast("Awaitable[object]", case.run(argument))
        else:
            await run_in_thread(_exhaust, case, argument)
    return hold.longest
