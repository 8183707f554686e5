"""Promises A1, D1 and F1: a server that is killed at any moment has lost nothing that was seen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.faults.checker import report_findings
from tests.support.faults.kill_loop import KillLoop, split_cycles
from tests.support.faults.servers import Commands, RecordedFolder, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.promise("A1", "D1", "F1")
@pytest.mark.parametrize("part", range(4))
@pytest.mark.cases(quick=1)
async def test_every_delivered_event_is_stored_once_and_unchanged_after_kills(
    tmp_path: Path, rng: random.Random, count: Count, part: int
) -> None:
    for number, cycles in enumerate(split_cycles(count(2, 50, 1_250))):
        recorded = RecordedFolder(tmp_path / str(number) / "home")
        async with server_forker() as forker:
            loop = KillLoop(forker, recorded, rng)
            found = await loop.run(cycles)
        assert found == [], report_findings(found)
        print(loop.figures)


class Demo(KillLoop):
    """A kill loop whose demo model is asked to run commands that leave the mark of their call."""

    def make_input(self, session: str, rng: random.Random) -> str:
        run = f"run echo {session} ${{AGX_CALL_MARK%.*}} >> marks"
        return rng.choice([f"{run} and then read nothing.txt", run, f"count to {rng.randint(1, 30)}"])


@pytest.mark.ci_lane
@pytest.mark.promise("A1", "F1")
async def test_kills_of_agx_serve_lose_no_delivered_event(tmp_path: Path, rng: random.Random, count: Count) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    loop = Demo(Commands(), recorded, rng, sessions=8, check_every=4, modes=["auto"], max_uptime=1.0)
    for _ in range(20):  # on a slow machine no server may live to run a command
        found = await loop.run(count(2, 8, 250))
        assert found == [], report_findings(found)
        if recorded.seen.executions():
            break
        loop.max_uptime *= 2
    assert recorded.seen.executions()
    print(loop.figures)
