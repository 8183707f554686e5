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
from agenticx.runtime import Remember
from agenticx.sandbox import SandboxOptions, find_sandbox
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, say
from tests.support.forked import Process
from tests.support.lanes import Count
from tests.support.timeouts import PATIENCE


def script(day: int, rounds: int) -> list[Any]:
    """Return the replies of a model that makes five calls in each round."""
    replies = list[Any]()
    for number in range(rounds):
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


async def work(day: int, rounds: int, project: Path, home: Path, remember: Remember) -> dict[str, int]:
    """Return the numbers of questions, and of calls by outcome, of a day on which each question has that answer."""
    settings = load_settings({"home": home}, environ={})
    counts = Counter[str]()
    url = f"sqlite:///{home / 'sessions.db'}"
    async with open_hub(url, model=ScriptedModel(script(day, rounds)), settings=settings, workspace=project) as hub:
        session = await hub.create()
        for number in range(rounds):
            async for event in hub.run_turn(session.id, f"Go on with part {number}"):
                if event.type == "confirm_required":
                    counts["asked"] += 1
                    answer = ConfirmAnswer(approved=True, remember=remember)
                    await hub.answer(event.data["id"], answer, digest=event.data["digest"])
                elif event.type == "tool_result":
                    counts[event.data["outcome"]] += 1
    return dict(counts)


def next_day(rounds: int, project: Path, home: Path) -> dict[str, int]:
    """Return the numbers of a third day, in a process of its own."""
    process = Process(__name__, [str(rounds), str(project), str(home)], cwd=project, env=os.environ)
    return json.loads(process.communicate(timeout=PATIENCE)[0])


def git(project: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a test."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time of pytest
    folder = tmp_path / "project"
    for name in ("src", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "src/notes.py").write_text("NOTES = []\n")
    (folder / "tests/test_notes.py").write_text("def test_notes() -> None:\n    assert 1 + 1 == 2\n")
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", "ann@example.com")
    return folder


@pytest.mark.ci_lane
@pytest.mark.promise("E5")
@pytest.mark.anyio
async def test_a_loop_of_calls_asks_once_for_each_kind_and_not_at_all_on_the_second_day(
    project: Path, tmp_path: Path, count: Count
) -> None:
    rounds, always = count(2, 8, 8), tmp_path / "always"
    numbers = {"asked": 4, "ok": 5 * rounds}
    assert await work(1, rounds, project, tmp_path / "session", "session") == numbers
    if find_sandbox(SandboxOptions()).kind == "bubblewrap":  # without it, a call that runs code would ask each time
        (project / "AGENTS.md").write_text("Be brief.\n")  # not trusted
    assert await work(2, rounds, project, always, "always") == numbers
    assert next_day(rounds, project, always) == {"ok": 5 * rounds}
    subjects = git(project, "log", "--format=%s").splitlines()
    assert (len(subjects), subjects[-1], subjects[0]) == (3 * rounds, "day 1, round 0", f"day 3, round {rounds - 1}")


if __name__ == "__main__":
    made, here, place = int(sys.argv[1]), *map(Path, sys.argv[2:4])
    print(json.dumps(asyncio.run(work(3, made, here, place, "once"))))
