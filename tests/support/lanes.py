"""The three lanes of the test suite: quick (README's command), CI (`--ci`) and deep (`--deep`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

__all__ = ["Count", "Lane", "add_options", "lane_of"]

Lane = Literal["quick", "ci", "deep"]


@dataclass(frozen=True)
class Count:
    """The number of cases in the current lane: `count(quick, ci, deep)`, called by each randomised test."""

    lane: Lane

    def __call__(self, quick: int, ci: int, deep: int) -> int:
        if not 0 < quick <= ci <= deep:
            raise ValueError(f"counts must grow from lane to lane, not {quick}, {ci}, {deep}")
        return {"quick": quick, "ci": ci, "deep": deep}[self.lane]


def add_options(parser: pytest.Parser) -> None:
    """Add `--ci` and `--deep`."""
    group = parser.getgroup("lanes")
    group.addoption("--ci", action="store_true", help="run randomised tests at the counts of CI")
    group.addoption("--deep", action="store_true", help="run randomised tests at full counts, other cases each time")


def lane_of(config: pytest.Config) -> Lane:
    """Return the lane that the command line chose."""
    if config.getoption("--deep"):
        return "deep"
    return "ci" if config.getoption("--ci") else "quick"
