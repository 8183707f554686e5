"""The event grammar of stored events: a whole demo turn, as `agx run --json` prints it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from agenticx.testing import check_grammar, outline
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.promise("B7")

WORDS = "think about it, then list the files and then write a.txt with the text hi"


def run_agx(folder, *words):
    """Run a command with a home of its own in `folder` and return the envelopes that it prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AGX_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "agenticx.cli", *words]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_a_demo_turn_in_the_terminal_follows_the_grammar(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    envelopes = run_agx(tmp_path, "run", WORDS, "--model", "demo", "--json", "--yes", "--cwd", str(work))
    check_grammar(envelopes)
    assert outline(envelopes, detail=True) == [
        *("turn_started", "round_start", "thinking", "token", "tool_call_delta", "tool_call:list_files"),
        *("tool_result:ok", "round_start", "token", "tool_call_delta", "tool_call:file_write", "confirm_required"),
        *("confirm_response:approved", "tool_result:ok", "round_start", "token", "final:answer"),
    ]
    assert (work / "a.txt").read_text() == "hi"
