"""Every function of the table costs in proportion to what it is given, and the table has every function."""

from __future__ import annotations

import pytest

from tests.linear.case import Case
from tests.linear.measure import spent
from tests.linear.table import CASES, EXCUSED, unlisted

SHORT, LONG = 4_000, 64_000
MOST = 5 * LONG / SHORT
LEAST_SECONDS = 0.0005
"""What a timer tells; a cost that grows with the square and stays below it here is a few milliseconds at a megabyte."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_16_times_as_much_takes_at_most_80_times_as_long(case: Case) -> None:
    """Squared, it takes 256 times as long. `python -m tests.linear` measures closer, and larger inputs."""
    for family, make in case.inputs.items():
        quickest = max(spent(case, make, SHORT), LEAST_SECONDS)
        assert any(spent(case, make, LONG) < MOST * quickest for _ in range(3)), family


def test_every_public_function_has_a_row_or_an_excuse() -> None:
    assert list(unlisted()) == []


def test_no_excuse_is_left_over() -> None:
    names = {f"{case.of.__module__}.{case.of.__qualname__}" for case in CASES}
    assert names.isdisjoint(EXCUSED)
