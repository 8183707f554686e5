"""A running server stays responsive while its model writes a megabyte at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.linear.polling import MEASURED
from tests.linear.server import REPLIES, wait_during
from tests.support.forked import ROOT

pytestmark = pytest.mark.anyio

MOST_CPU = 0.1
"""The most CPU seconds between a request and its response; they do not depend on the machine's load."""

ENDS = {"an answer in words": ["answer"], "many calls": ["ok", "answer"], "a file": ["ok", "answer"]}


@pytest.mark.skipif(not MEASURED, reason="this system has no /proc/self/schedstat to tell CPU time by")
@pytest.mark.cases(quick=0)
async def test_a_megabyte_of_input_delays_no_response(tmp_path: Path) -> None:
    home = tmp_path / "home"
    waits = [one async for one in wait_during(home, list(REPLIES), 1_000_000)]
    assert {one.name: max(one.cpu) for one in waits if max(one.cpu) > MOST_CPU} == {}
    assert {one.name: one.outcomes for one in waits if one.name in ENDS} == ENDS


@pytest.mark.cases(quick=0)
def test_the_benchmark_prints_a_row_for_each_function_and_the_longest_hold() -> None:
    command = [sys.executable, "-m", "tests.linear", "estimate_fragment_bytes", "sessions.hub.session_fields"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[:2] for line in printed[1:3]] == [
        ["llms.memory_estimate.estimate_fragment_bytes", "loop"],
        ["sessions.hub.session_fields.derive_name", "loop"],
    ]
    assert printed[-1].startswith("longest hold of the event loop by a megabyte: ")
