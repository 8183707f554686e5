"""Servers that are killed under sub-agents, teams, questions, queued messages and steering."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.faults.checker import report_findings
from tests.support.faults.kill_loop import split_cycles
from tests.support.faults.killed_agents import KilledAgents
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.promise("A1", "B7")
async def test_kills_under_agents_double_no_end_and_lose_no_message(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for number, cycles in enumerate(split_cycles(count(2, 20, 200), most=20)):
        async with server_forker() as forker:
            loop = KilledAgents(forker, RecordedFolder(tmp_path / str(number) / "home"), rng)
            found = await loop.run(cycles)
        assert found == [], report_findings(found)
        print(loop.figures)
