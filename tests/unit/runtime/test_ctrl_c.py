"""A real Ctrl-C while a tool runs ends the program, whatever the tool is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")

PROGRAM = """
import asyncio, os, sys, threading
from agenticx.runtime import AgentRuntime, Session
from agenticx.testing import ScriptedModel, call
from agenticx.tools import tool

@tool(risk="read")
def plain() -> None:
    os.write(1, b"running\\n")  # a daemon thread in the middle of a print would abort the interpreter at its end
    threading.Event().wait()

@tool(risk="read")
async def later() -> None:
    os.write(1, b"running\\n")
    await asyncio.Event().wait()

@tool(risk="read")
async def deaf() -> None:
    os.write(1, b"running\\n")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("no") from None

async def main() -> None:
    runtime = AgentRuntime(ScriptedModel([call(sys.argv[1]), "went on"]))
    async for event in runtime.run_turn("go", Session(), tools=[plain, later, deaf]):
        if event.type in ("final", "error"):
            print(event.type.value, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["plain", "later", "deaf"])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_ctrl_c_while_a_tool_runs_ends_the_program(kind: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"AGX_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == -signal.SIGINT
    assert out == ""
    assert err.splitlines()[-1] == "KeyboardInterrupt"
