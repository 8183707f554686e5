"""Promise A2: a power cut that tears unsynced writes loses nothing that was reported as done."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.faults.checker import report_findings
from tests.support.faults.kill_loop import KillLoop, split_cycles
from tests.support.faults.power_cuts import PowerCuts
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.promise("A2")
@pytest.mark.parametrize("part", range(2))
@pytest.mark.ci_lane
async def test_a_power_failure_loses_no_acknowledged_write(
    tmp_path: Path, rng: random.Random, count: Count, part: int
) -> None:
    for number, cycles in enumerate(split_cycles(count(1, 6, 2_500), 50)):
        folder = tmp_path / str(number)
        recorded, trace = RecordedFolder(folder / "home"), folder / "trace"
        cuts = PowerCuts(recorded, trace, rng)
        async with server_forker() as forker:
            options = {"disk": {"trace": str(trace)}}
            loop = KillLoop(forker, recorded, rng, sessions=count(8, 25, 25), server_options=options, after_kill=cuts)
            for _ in range(20):  # on a slow machine few servers get to write anything
                found = await loop.run(cycles)
                assert found == [], report_findings(found)
                if cuts.torn > cycles / 2:
                    break
                loop.max_uptime *= 2
        assert cuts.torn > cycles / 2
        print(loop.figures, cuts.images, "images", cuts.torn, "files torn")
