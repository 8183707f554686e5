"""Promise A3: a server may die right before or after any operation; nothing is lost or run twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.faults.checker import findings, report_findings
from tests.support.faults.faulty_stores import POINTS
from tests.support.faults.kill_loop import KillLoop
from tests.support.faults.long_logs import append_long_turn
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio

EVENTS = 10_000
START_SECONDS = 2.0  # of work


@pytest.mark.promise("A3")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.cases(quick=1)
async def test_a_crash_before_or_after_any_operation_loses_nothing(
    tmp_path: Path, rng: random.Random, count: Count, point: str, when: str
) -> None:
    sessions = count(3, 25, 25)
    async with server_forker() as forker:
        options = {"crash": [point, when, rng.randint(1, 12)]}
        loop = KillLoop(
            forker, RecordedFolder(tmp_path / "home"), rng, sessions, sessions, kills=False, server_options=options
        )
        found = await loop.run(1)
    assert loop.figures.crashed, f"no server came to {options}"
    assert found == [], report_findings(found)


@pytest.mark.promise("A3")
async def test_a_long_interrupted_turn_is_ended_within_two_seconds_at_the_next_start(tmp_path: Path) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server_forker() as forker:
        studio = await forker.serve(recorded.home)
        async with studio.client() as client:
            await recorded.make_sessions(client, ["auto"])
        await studio.end()
        await append_long_turn(recorded, EVENTS, "turn_cut")
        assert recorded.log().running.values()
        studio = await forker.serve(recorded.home)
        took = studio.cpu_seconds
        await studio.end()
    found = findings(recorded.log(), recorded.seen, over=True)
    assert found == [], report_findings(found)
    (events,) = recorded.log().events.values()
    assert (len(events), events[-1].type) == (EVENTS + 3, "error")
    assert took < START_SECONDS
