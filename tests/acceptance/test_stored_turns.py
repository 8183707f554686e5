"""The event grammar of stored events: a whole demo turn, as `agx run --json` prints it."""

from __future__ import annotations

import json
import os

import pytest

from agenticx.testing import check_grammar, outline
from tests.support.forked import Process
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.promise("B7")

WORDS = "think about it, then list the files and then write a.txt with the text hi"


def run_agx(folder, *words):
    """Run a command with a home of its own in `folder` and return the envelopes that it prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AGX_HOME": str(folder / "home")}
    with Process("agenticx.cli", words, cwd=folder, env=environment) as process:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines()]


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
