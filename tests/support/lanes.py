"""The three lanes of the test suite: quick (README's command), CI (`--ci`) and deep (`--deep`)."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

__all__ = ["Count", "Lane", "add_options", "lane_of", "sample", "sample_calls"]

Lane = Literal["quick", "ci", "deep"]
UNMARKED_CASES = 2  # of each test without a number of its own, if the quick lane runs the whole suite


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


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases of tests marked `cases(quick, ci)`: each lane runs at most that many, `--deep` all of them.

    Of a test that is not marked, the quick lane runs `UNMARKED_CASES` if it runs the whole suite; the other lanes run
    all cases, and so does each lane if the command line names folders or tests. The same cases run in every run, and a
    new case displaces at most one other: those with the lowest CRC of their ids. A test that is named on the command
    line with its case runs in any lane.
    """
    if lane_of(config) == "deep":
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    dropped = {item for cases in groups.values() for item in _excess(config, cases)}
    dropped -= {item for item in dropped if any(item.nodeid in argument for argument in config.args)}
    if dropped:
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = [item for item in items if item not in dropped]


def sample_calls(metafunc: pytest.Metafunc) -> None:
    """Leave out most cases that `sample` would deselect before pytest has made items of them, which takes longer.

    Where pytest stores them is its own affair; if it is elsewhere, `sample` deselects them all the same.
    """
    limit = _limit(metafunc.config, metafunc.definition)
    calls: list[Any] = getattr(metafunc, "_calls", [])
    if not limit or len(calls) <= limit:  # without any case the test would run without parameters
        return
    test = metafunc.definition.nodeid
    if not any(argument.endswith("]") for argument in metafunc.config.args):
        kept = sorted(calls, key=lambda call: zlib.crc32(f"{test}[{call.id}]".encode()))[:limit]
        chosen = {call.id for call in kept}
        calls[:] = [call for call in calls if call.id in chosen]


def _excess(config: pytest.Config, cases: list[pytest.Item]) -> Iterable[pytest.Item]:
    limit = _limit(config, cases[0])
    return () if limit is None else sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))[limit:]


def _limit(config: pytest.Config, test: pytest.Item) -> int | None:
    """Return how many cases of a test run, or None if all do."""
    lane = lane_of(config)
    marker = test.get_closest_marker("cases")
    if lane == "deep":
        return None
    if marker is not None:
        return marker.kwargs.get(lane)
    return UNMARKED_CASES if lane == "quick" and config.args == config.getini("testpaths") else None
