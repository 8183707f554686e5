"""Promise A6: a session of very many events opens and resumes as quickly as a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults.log_cost import large_log_figures
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.promise("A6")
async def test_a_session_of_very_many_events_opens_and_resumes_within_limits(tmp_path: Path, count: Count) -> None:
    figures = await large_log_figures(tmp_path / "home", count(20_000, 200_000, 1_000_000))
    print(figures)
    assert figures.findings() == []
