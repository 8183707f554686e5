"""A check that a function's cost grows linearly with its input, for tests of single functions."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["grows_linearly"]

SHORT, LONG = 10_000, 200_000
SLACK = 6


def grows_linearly(work: Callable[[int], object], short: int = SHORT, long: int = LONG) -> bool:
    """Return whether `work` grows linearly.

    CPU times are compared, the best of three each: an input 20 times as long may take 120 times as long, whereas
    quadratic work takes 400 times as long.
    """
    work(short // 10)
    quickest = max(min(_seconds(work, short) for _ in range(3)), 0.001)
    return any(_seconds(work, long) < long / short * SLACK * quickest for _ in range(3))


def _seconds(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
