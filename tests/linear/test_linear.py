"""Every function of the table has linear cost, and the table is complete."""

from __future__ import annotations

import pytest

from tests.linear.case import LinearCase
from tests.linear.measure import cpu_seconds
from tests.linear.table import CASES, EXEMPT, unlisted
from tests.support.lanes import Count
from tests.support.timeouts import slowdown

TIMES = 16
MOST = 5 * TIMES
LEAST_SECONDS = 0.0005
"""The least CPU time that is distinguishable from noise."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.cases(quick=4)
def test_16_times_the_input_takes_at_most_80_times_as_long(case: LinearCase, count: Count) -> None:
    """Quadratic work takes 256 times as long; `python -m tests.linear` measures more precisely, and larger inputs."""
    size = count(32_000, 64_000, 128_000)
    for family, make in case.inputs.items():
        quickest = max(cpu_seconds(case, make, size // TIMES), LEAST_SECONDS)
        assert any(cpu_seconds(case, make, size) < MOST * slowdown() * quickest for _ in range(3)), family


def test_every_public_function_has_a_row_or_an_exemption() -> None:
    assert list(unlisted()) == []


def test_no_function_has_both_a_row_and_an_exemption() -> None:
    names = {f"{case.of.__module__}.{case.of.__qualname__}" for case in CASES}
    assert names.isdisjoint(EXEMPT)
