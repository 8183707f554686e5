"""A loop of reading, editing, testing and committing: how often a person is asked."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenticx import ConfirmAnswer, open_hub
from agenticx.runtime.user_requests.requests import Remember
from agenticx.sandbox.options import SandboxOptions
from agenticx.sandbox.probe import find_sandbox
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, say

ROUNDS = 8


def script(day: int) -> list[Any]:
    """Return the replies of a model that makes five calls in each round, 40 in all."""
    replies = list[Any]()
    for number in range(ROUNDS):
        text = f"day {day}, round {number}"
        replies += [
            call("file_read", {"path": "src/notes.py"}),
            call("file_write", {"path": f"src/part_{number}.py", "content": f"TEXT = {text!r}\n"}),
            call("bash_exec", {"command": "pytest --version -q" if number else "pytest -q tests"}),
            call("bash_exec", {"command": f"git add src/part_{number}.py"}),
            call("bash_exec", {"command": f"git commit -q -m '{text}'"}),
            say("Done."),
        ]
    return replies


async def work(day: int, project: Path, home: Path, remember: Remember) -> dict[str, int]:
    """Return the numbers of questions, and of calls by outcome, of a day on which each question has that answer."""
    settings = load_settings({"home": home}, environ={})
    counts = Counter[str]()
    url = f"sqlite:///{home / 'sessions.db'}"
    async with open_hub(url, model=ScriptedModel(script(day)), settings=settings, workspace=project) as hub:
        session = await hub.create()
        for number in range(ROUNDS):
            async for event in hub.run_turn(session.id, f"Go on with part {number}"):
                if event.type == "confirm_required":
                    counts["asked"] += 1
                    answer = ConfirmAnswer(approved=True, remember=remember)
                    await hub.answer(event.data["id"], answer, digest=event.data["digest"])
                elif event.type == "tool_result":
                    counts[event.data["outcome"]] += 1
    return dict(counts)


def next_day(project: Path, home: Path) -> dict[str, int]:
    """Return the numbers of another day, in a process of its own."""
    command = [sys.executable, __file__, str(project), str(home)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def git(project: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a test."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "project"
    for name in ("src", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "src/notes.py").write_text("NOTES = []\n")
    (folder / "tests/test_notes.py").write_text("def test_notes() -> None:\n    assert 1 + 1 == 2\n")
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", "ann@example.com")
    return folder


@pytest.mark.promise("E5")
@pytest.mark.anyio
async def test_a_loop_of_forty_calls_asks_once_for_each_kind_and_not_at_all_on_the_second_day(
    project: Path, tmp_path: Path
) -> None:
    always = tmp_path / "always"
    assert await work(1, project, tmp_path / "session", "session") == {"asked": 4, "ok": 40}
    if find_sandbox(SandboxOptions()).kind == "bubblewrap":  # without it, a call that runs code would ask each time
        (project / "AGENTS.md").write_text("Be brief.\n")  # not trusted
    assert await work(2, project, always, "always") == {"asked": 4, "ok": 40}
    assert next_day(project, always) == {"ok": 40}
    subjects = git(project, "log", "--format=%s").splitlines()
    assert (len(subjects), subjects[-1], subjects[0]) == (3 * ROUNDS, "day 1, round 0", "day 3, round 7")


if __name__ == "__main__":
    here, place = map(Path, sys.argv[1:3])
    number = int(git(here, "rev-list", "--count", "HEAD")) // ROUNDS + 1
    print(json.dumps(asyncio.run(work(number, here, place, "once"))))
