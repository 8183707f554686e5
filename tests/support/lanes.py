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
UNMARKED_CASES = 1  # of each test without a number of its own, if the quick lane runs the whole suite


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


_LEFT_OUT: dict[str, tuple[str, ...]] = {"quick": ("ci_lane", "deep_lane"), "ci": ("deep_lane",), "deep": ()}


def sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases of tests marked `cases(quick, ci)`: each lane runs at most that many, `--deep` all of them.

    Of a test that is not marked, the quick lane runs `UNMARKED_CASES` if it runs the whole suite; the other lanes run
    all cases, and so does each lane if the command line names folders or tests. The same cases run in every run, and a
    new case displaces at most one other: those with the lowest CRC of their ids. Those marked `ci_lane` are left out
    of the quick lane before, and those marked `deep_lane` of that and of `--ci`. A test that is named on the command
    line with its case runs in any lane.
    """
    if lane_of(config) == "deep":
        return
    left_out = _LEFT_OUT[lane_of(config)]
    dropped = {item for item in items if any(map(item.get_closest_marker, left_out))}
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in dropped:
            groups[item.nodeid.partition("[")[0]].append(item)
    dropped |= {item for cases in groups.values() for item in _excess(config, cases)}
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
    if any(argument.endswith("]") for argument in metafunc.config.args):
        return
    left_out = _LEFT_OUT[lane_of(metafunc.config)]
    # without any case the test would run without parameters
    calls[:] = [call for call in calls if not any(mark.name in left_out for mark in call.marks)] or calls[:1]
    test = metafunc.definition.nodeid
    if limit and len(calls) > limit:
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
