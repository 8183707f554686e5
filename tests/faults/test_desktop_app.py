"""A desktop app in node that starts the studio and survives its crashes; the studio ends with the app."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.server.agx_processes import environment
from tests.support.timeouts import PATIENCE

PROGRAM = Path(__file__).parent.parent / "node" / "electron_like.mjs"


@pytest.mark.parametrize("end", ["exit", "kill"])
@pytest.mark.cases(quick=0)
def test_a_desktop_app_starts_the_studio_resumes_after_its_crashes_and_leaves_none_behind(
    tmp_path: Path, end: str
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    workspace.mkdir()
    command = json.dumps([sys.executable, "-m", "agenticx.cli"])
    app = subprocess.Popen(
        [node, str(PROGRAM)],
        cwd=workspace,
        env=environment(home, AGX_COMMAND=command, PYTHONPATH=str(PROGRAM.parents[2])),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(PATIENCE, app.kill)
    watchdog.daemon = True
    watchdog.start()
    with app:
        assert app.stdin is not None
        assert app.stdout is not None
        assert app.stderr is not None
        assert app.stdout.readline() == "done\n", app.stderr.read()
        if end == "exit":
            app.stdin.close()
        else:
            app.kill()
        app.stderr.read()  # to its end, which is that of the studio too
        assert app.wait() == (0 if end == "exit" else -signal.SIGKILL)
    watchdog.cancel()
    assert not (home / "studio.json").exists()
