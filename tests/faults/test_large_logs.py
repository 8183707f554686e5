"""Promise A6: a session of very many events opens and resumes as quickly as a small one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.faults.log_cost import large_log_figures
from tests.support.forked import ROOT, AsyncProcess
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.promise("A6")
async def test_a_session_of_very_many_events_opens_and_resumes_within_limits(tmp_path: Path, count: Count) -> None:
    figures = await large_log_figures(tmp_path / "home", count(20_000, 200_000, 1_000_000))
    print(figures)
    assert figures.findings() == []


EVENTS, MOST_GROWTH_MB = 100_000, 16  # the events alone take 25 MB in memory


@pytest.mark.ci_lane
async def test_rewinds_forks_and_teams_hold_no_more_than_a_page_of_very_many_events(tmp_path: Path) -> None:
    process = await AsyncProcess.start(
        "tests.support.faults.measured_history", [str(tmp_path), str(EVENTS)], cwd=ROOT, env=os.environ
    )
    out, err = await process.communicate()
    assert not err, err.decode()
    figures = json.loads(out)
    print(figures)
    assert figures["copied"] == EVENTS * 9 // 10  # the last turn was rewound away
    assert max(figures["rewind"], figures["fork"], figures["talk"]) < MOST_GROWTH_MB
