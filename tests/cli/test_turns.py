"""The processes that a turn started, after it is stopped by a signal."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.timeouts import PATIENCE


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("presses", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
@pytest.mark.cases(quick=1)
def test_a_stopped_command_leaves_no_process(agx: Any, presses: list[signal.Signals]) -> None:
    process = agx.start("run", "run echo $$ > pid; sleep 300 & sleep 301", "--yes", "--model", "demo")
    pid = _wait_for_pid(agx.folder / "pid")
    for press in presses:
        process.send_signal(press)
        if press is not presses[-1]:
            process.stderr.readline()
    output = process.communicate(timeout=PATIENCE)
    assert process.returncode in (130, -signal.SIGINT), output  # to a shell both are 130
    _wait_until_gone(pid)


def _wait_for_pid(file: Path) -> int:
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.02)
    return int(file.read_text())


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)
