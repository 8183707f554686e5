"""What happens to a turn that is stopped from outside or fails through a bug of ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest

from agenticx.cli.asking import Silent
from agenticx.cli.render import JsonLines
from agenticx.cli.turns import play
from agenticx.runtime import EventType, RuntimeEvent, StopSignal


def test_a_bug_of_ours_ends_the_turn_as_internal_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_stop: StopSignal) -> AsyncGenerator[RuntimeEvent]:
        yield RuntimeEvent(EventType.TURN_STARTED, {"input": "x", "model": "demo", "message_id": "m"})
        raise KeyError("lost")

    out = BytesIO()
    code = asyncio.run(play(broken, JsonLines("ses_1", out, StringIO()), Silent()))
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert code == 1
    assert [(row["type"], row["seq"]) for row in rows] == [("turn_started", 1), ("error", 2)]
    assert (rows[1]["data"]["code"], rows[1]["data"]["fatal"]) == ("internal", True)
    assert "KeyError" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("presses", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_a_stopped_command_leaves_no_process(agx: Any, presses: list[signal.Signals]) -> None:
    process = agx.start("run", "run echo $$ > pid; sleep 300 & sleep 301", "--yes", "--model", "demo")
    pid = _wait_for_pid(agx.folder / "pid")
    for press in presses:
        process.send_signal(press)
        if press is not presses[-1]:
            process.stderr.readline()
    process.communicate(timeout=10)
    assert process.returncode == 130
    _wait_until_gone(pid)


def _wait_for_pid(file: Path) -> int:
    deadline = time.monotonic() + 10
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.02)
    return int(file.read_text())


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 3
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)
