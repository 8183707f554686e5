"""The processes that a turn started, after it is stopped by a signal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.timeouts import PATIENCE


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("presses", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
@pytest.mark.cases(quick=1)
def test_a_stopped_command_leaves_no_process(agx: Any, presses: list[signal.Signals]) -> None:
    seconds = f"300.{os.getpid()}"  # by which the processes are found: in a sandbox they have other pids
    process = agx.start("run", f"run sleep {seconds} & sleep {seconds}", "--yes", "--model", "demo")
    _wait_until(lambda: len(_processes_with(seconds)) > 1, "the command did not start")
    for press in presses:
        process.send_signal(press)
        if press is not presses[-1]:
            process.stderr.readline()
    output = process.communicate(timeout=PATIENCE)
    assert process.returncode in (130, -signal.SIGINT), output  # to a shell both are 130
    _wait_until(lambda: not _processes_with(seconds), "a process is still there")


def _wait_until(condition: Callable[[], object], problem: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, problem
        time.sleep(0.02)


def _processes_with(argument: str) -> list[str]:
    """Return the pids of the processes that have this argument."""
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if argument.encode() in Path("/proc", pid, "cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found
