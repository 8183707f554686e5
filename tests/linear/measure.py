"""CPU seconds of a case: what twice as much costs, and how long the event loop is held at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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

_SHORTEST = MEGABYTE // 64
_LONG_ENOUGH = 0.008  # seconds that a timer tells from noise
_TOO_LONG = 0.4  # seconds: a larger input is not tried
_WORTH_TRYING = 4.0  # estimated seconds up to which a megabyte is tried all the same
_NOISE = 0.002
_TRIES = 3
_MORE_TRIES = 6


@dataclass(frozen=True, slots=True)
class Figures:
    """What the costliest of a case's inputs costs. `held` is an estimate where a megabyte would take too long."""

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
    total: float
    longest: float


@dataclass(frozen=True, slots=True)
class _Growth:
    family: str
    size: int
    cost: _Cost
    ratio: float | None

    def at_a_megabyte(self, seconds: float) -> float:
        """An estimate from the largest size that was tried."""
        doublings = MEGABYTE / self.size
        return seconds * (doublings if (self.ratio or 0.0) <= MOST_RATIO else doublings**2)


def figures(case: Case) -> Figures:
    """Measure every family of inputs, and the costliest one at a megabyte."""
    growths = [_growth(case, family, make) for family, make in case.inputs.items()]
    worst = max(growths, key=lambda growth: growth.at_a_megabyte(growth.cost.longest))
    steepest = max(growths, key=lambda growth: growth.ratio or 0.0)
    estimated = worst.size < MEGABYTE
    seconds, held = worst.at_a_megabyte(worst.cost.total), worst.at_a_megabyte(worst.cost.longest)
    if estimated and seconds < _WORTH_TRYING:  # the function may have a bound of its own
        cost = _best(case, case.inputs[worst.family], MEGABYTE, 2)
        seconds, held, estimated = cost.total, cost.longest, False
    if case.where == "thread":
        argument = case.inputs[worst.family](worst.size if estimated else MEGABYTE)
        held = min(asyncio.run(_held(partial(_exhaust, case, argument))) for _ in range(_TRIES))
    return Figures(case, worst.family, seconds, held, estimated, steepest.ratio, steepest.family)


def spent(case: Case, make: Make, size: int, tries: int = 1) -> float:
    """CPU seconds of the quickest of a few tries."""
    return _best(case, make, size, tries).total


def _growth(case: Case, family: str, make: Make) -> _Growth:
    """Double the input until its cost can be told from noise."""
    size = _SHORTEST
    before, cost = _best(case, make, size // 2, 2), _best(case, make, size, 2)
    while size < MEGABYTE and cost.total < (_TOO_LONG if cost.total < _LONG_ENOUGH or _is_linear(before, cost) else 0):
        if cost.total >= _LONG_ENOUGH and cost.total * (MEGABYTE / size) > _TOO_LONG:
            break
        size *= 2
        before, cost = cost, _best(case, make, size, 2)
    if cost.total < _NOISE:
        return _Growth(family, size, cost, None)
    if not _is_linear(before, cost):
        before, cost = _best(case, make, size // 2, _MORE_TRIES), _best(case, make, size, _MORE_TRIES)
    return _Growth(family, size, cost, cost.total / max(before.total, 1e-6))


def _is_linear(before: _Cost, cost: _Cost) -> bool:
    return cost.total <= MOST_RATIO * max(before.total, _NOISE / 4)


def _best(case: Case, make: Make, size: int, tries: int) -> _Cost:
    argument = make(size)
    costs = [_measured(case, argument) for _ in range(tries)]
    return _Cost(min(cost.total for cost in costs), min(cost.longest for cost in costs))


def _measured(case: Case, argument: Any) -> _Cost:
    began = last = time.thread_time()
    longest = 0.0
    for _ in _steps(case.run(argument)):
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    ended = time.thread_time()
    return _Cost(ended - began, max(longest, ended - last))


def _steps(result: object) -> Iterator[object]:
    return cast("Iterator[object]", result) if isinstance(result, GeneratorType) else iter(())


def _exhaust(case: Case, argument: Any) -> None:
    for _ in _steps(case.run(argument)):
        pass


async def _held(work: Any) -> float:
    """How long a loop does not go round while the work is done in a thread."""
    async with longest_hold() as hold:
        await run_in_thread(work)
    return hold.longest
