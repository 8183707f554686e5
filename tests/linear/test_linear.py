"""Every function of the table costs in proportion to what it is given, and the table has every function."""

from __future__ import annotations

import pytest

from tests.linear.case import Case
from tests.linear.measure import spent
from tests.linear.table import CASES, EXCUSED, unlisted
from tests.patience import slowdown
from tests.support.lanes import Count

TIMES = 16
MOST = 5 * TIMES
LEAST_SECONDS = 0.0005
"""What a timer tells from noise."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.cases(quick=20)
def test_16_times_as_much_takes_at_most_80_times_as_long(case: Case, count: Count) -> None:
    """Squared, it takes 256 times as long. `python -m tests.linear` measures closer, and larger inputs."""
    size = count(32_000, 64_000, 128_000)
    for family, make in case.inputs.items():
        quickest = max(spent(case, make, size // TIMES), LEAST_SECONDS)
        assert any(spent(case, make, size) < MOST * slowdown() * quickest for _ in range(3)), family


def test_every_public_function_has_a_row_or_an_excuse() -> None:
    assert list(unlisted()) == []


def test_no_excuse_is_left_over() -> None:
    names = {f"{case.of.__module__}.{case.of.__qualname__}" for case in CASES}
    assert names.isdisjoint(EXCUSED)
