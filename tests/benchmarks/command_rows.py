"""Benchmarks of the assessment of commands, which every call of `bash_exec` waits for."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from agenticx.sandbox import SandboxOptions
from agenticx.tools import ToolContext
from agenticx.tools.builtin import bash_exec
from tests.benchmarks.rows import Row, Scale

__all__ = ["command_rows"]

MILLI = 1e3
_CALLS = 20


async def command_rows(scale: Scale) -> list[Row]:
    """Measure the assessment of a plain command, and of one of git beside the command itself."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        _git(workspace, "init", "--quiet")
        (workspace / "a.txt").write_text("a\n")
        _git(workspace, "add", ".")
        context = ToolContext(
            workspace=workspace,
            call_id="call_1",
            emit=lambda _type, _payload: None,
            add_background_task=lambda work: None,
            protected_roots=(),
            sandbox=SandboxOptions(),
        )

        def assess(command: str) -> None:
            bash_exec.assess(bash_exec.validate({"command": command}), context)

        assess("git status")
        return [
            Row(
                name="assessment of a command without git",
                value=_median(scale, lambda: assess("ls -l")) * MILLI,
                unit="ms",
                goal=2,
            ),
            Row(
                name="assessment of git status",
                value=_median(scale, lambda: assess("git status")) * MILLI,
                unit="ms",
                floor=_median(scale, lambda: _git(workspace, "status")) * MILLI,
                goal=8,
            ),
        ]


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _median(scale: Scale, call: Callable[[], object]) -> float:
    """Return the median time of a call, in seconds."""
    took = list[float]()
    for _ in range(scale.repeats * _CALLS):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return median(took)
