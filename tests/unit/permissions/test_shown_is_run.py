"""A call whose effect changed while its question waited is denied: only that runs which was shown."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agenticx import Session
from agenticx.runtime import AgentRuntime, AsyncConfirmGate, ConfirmAnswer
from agenticx.runtime.user_requests.confirm_digest import confirm_digest
from agenticx.testing import ScriptedModel, call
from agenticx.tools.builtin import bash_exec, file_edit, file_write
from tests.support.lanes import Count

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E1")]

CHANGED = "Not done: the effect of the call changed after the user was asked; ask again."


@dataclass
class Machine:
    """A workspace with scripts, and a folder of programs on the PATH before all others."""

    root: Path

    def __post_init__(self) -> None:
        for folder in (self.work / "sub/deep", self.programs, self.earlier):
            folder.mkdir(parents=True)
        for name in ("build.sh", "build it.sh", "sub/build.sh", "sub/deep/build.sh"):
            self.script(self.work / name)
        self.script(self.programs / "mytool")
        (self.work / "link.sh").symlink_to("build.sh")
        (self.work / "notes.txt").write_text("one\ntwo\n")

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def programs(self) -> Path:
        return self.root / "programs"

    @property
    def earlier(self) -> Path:
        return self.root / "earlier"

    def script(self, path: Path, text: str = "true") -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def replace_folder(self, folder: Path, *, by_link: bool = False) -> None:
        """Put a copy of a folder in its place, or a link to the copy."""
        away = folder.with_name("away")
        folder.rename(away)
        if by_link:
            folder.symlink_to(away)
        else:
            shutil.copytree(away, folder, symlinks=True)


Change = Callable[[Machine], object]


def run(command: str) -> Any:
    return call("bash_exec", {"command": command})


def write(path: str) -> Any:
    return call("file_write", {"path": path, "content": "new\n"})


def change_text(name: str) -> Change:
    return lambda machine: machine.script(machine.work / name, "touch evil")


def keep_size_and_time(machine: Machine) -> None:
    path = machine.work / "build.sh"
    status = path.stat()
    path.write_text(path.read_text().replace("true", "exit"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def exchange(name: str) -> Change:
    """Return a change that puts another file in the place of one, by renaming."""

    def replace(machine: Machine) -> None:
        machine.script(machine.work / "other", "touch evil")
        (machine.work / "other").rename(machine.work / name)

    return replace


def retarget(machine: Machine) -> None:
    (machine.work / "link.sh").unlink()
    (machine.work / "link.sh").symlink_to("sub/build.sh")


def make_link(name: str, target: str) -> Change:
    def link(machine: Machine) -> None:
        (machine.work / name).unlink()
        (machine.work / name).symlink_to(target)

    return link


OPERANDS = [
    "sh build.sh",
    "./build.sh",
    ". ./build.sh",
    "source build.sh",
    "bash -x build.sh",
    "A=1 sh build.sh",
    "true; sh build.sh",
    "true && sh build.sh || false",
    "(sh build.sh)",
    "{ sh build.sh; }",
    "sh < build.sh",
    "cat build.sh | sh",
    "echo $(sh build.sh)",
    "echo `sh build.sh`",
    "bash -c 'sh build.sh'",
    'bash -c "sh build.sh"',
    "env A=1 sh build.sh",
    "timeout 9 sh build.sh",
    "if true; then sh build.sh; fi",
    "sh $PWD/build.sh ./build.sh",
    f"true {' '.join(f'word{n}' for n in range(200))}; sh build.sh",
]
CASES: dict[str, tuple[Any, Change]] = {
    **{command[:60]: (run(command), change_text("build.sh")) for command in OPERANDS},
    "double quotes": (run('sh "build it.sh"'), change_text("build it.sh")),
    "single quotes": (run("sh './build it.sh'"), change_text("build it.sh")),
    "escaped blank": (run("sh build\\ it.sh"), change_text("build it.sh")),
    "after cd": (run("cd sub && sh build.sh"), change_text("sub/build.sh")),
    "after cd in a subshell": (run("(cd sub/deep; ./build.sh)"), change_text("sub/deep/build.sh")),
    "same size and time": (run("sh build.sh"), keep_size_and_time),
    "another file": (run("sh build.sh"), exchange("build.sh")),
    "another mode": (run("sh build.sh"), lambda machine: (machine.work / "build.sh").chmod(0o700)),
    "removed": (run("sh build.sh || touch evil"), lambda machine: (machine.work / "build.sh").unlink()),
    "created": (run("test ! -e made.sh || sh made.sh"), lambda machine: machine.script(machine.work / "made.sh")),
    "target of a link": (run("sh link.sh"), change_text("build.sh")),
    "another target": (run("sh link.sh"), retarget),
    "a program": (run("mytool"), lambda machine: machine.script(machine.programs / "mytool", "touch evil")),
    "an earlier program": (run("mytool"), lambda machine: machine.script(machine.earlier / "mytool", "touch evil")),
    "a program of a part": (run("true | mytool"), lambda machine: machine.script(machine.earlier / "mytool", "exit 1")),
    "another PATH": (run("mytool"), lambda _: os.environ.update(PATH=os.environ["PATH"] + ":/opt")),
    "another folder": (run("touch x"), lambda machine: machine.replace_folder(machine.work)),
    "another folder behind a link": (
        run("touch x"),
        lambda machine: machine.replace_folder(machine.work, by_link=True),
    ),
    "another subfolder": (run("cd sub && sh build.sh"), lambda machine: machine.replace_folder(machine.work / "sub")),
    "overwritten": (write("notes.txt"), lambda machine: (machine.work / "notes.txt").write_text("three\n")),
    "appended": (write("notes.txt"), lambda machine: (machine.work / "notes.txt").write_text("one\ntwo\nthree\n")),
    "made meanwhile": (write("new.txt"), lambda machine: (machine.work / "new.txt").touch()),
    "removed meanwhile": (write("notes.txt"), lambda machine: (machine.work / "notes.txt").unlink()),
    "link in its place": (write("notes.txt"), make_link("notes.txt", "build.sh")),
    "folder of the file": (
        write("sub/deep/new.txt"),
        lambda machine: machine.replace_folder(machine.work / "sub/deep", by_link=True),
    ),
    "edited file": (
        call("file_edit", {"path": "notes.txt", "old_text": "one", "new_text": "1"}),
        lambda machine: (machine.work / "notes.txt").write_text("one\nTWO\n"),
    ),
}


async def play(machine: Machine, made: Any, change: Change) -> tuple[str, str]:
    """Approve a call after a change; return the outcome and the text of its result."""
    gate = AsyncConfirmGate()
    runtime = AgentRuntime(ScriptedModel([made, "Done."]), gate, tools=[bash_exec, file_write, file_edit])
    result = None
    async for event in runtime.run_turn("Go.", Session(workspace=machine.work)):
        if event.type == "confirm_required":
            change(machine)
            gate.decide(event.data["id"], ConfirmAnswer(approved=True))
        elif event.type == "tool_result":
            result = event.data
    assert result is not None
    return result["outcome"], result["result"]


@pytest.mark.cases(quick=8)
@pytest.mark.parametrize("name", CASES)
async def test_a_call_whose_effect_changed_is_denied(tmp_path: Path, monkeypatch, count: Count, name: str) -> None:
    made, change = CASES[name]
    for number in range(count(1, 1, 25)):
        machines = [Machine(tmp_path / f"{number}-{kind}") for kind in ("same", "changed")]
        for machine, do in zip(machines, (lambda _: None, change), strict=True):
            monkeypatch.setenv("PATH", f"{machine.earlier}:{machine.programs}:{os.defpath}")
            outcome, text = await play(machine, made, do)
            assert outcome == ("ok" if machine is machines[0] else "denied"), text
            if outcome == "denied":
                assert text == CHANGED
            assert not (machine.work / "evil").exists()


# What a confirmation is not bound to in a broken engine, each with a change that then passes.
UNBOUND = {
    ("words",): "sh build.sh",
    ("search_path", "words"): "an earlier program",
    ("cwd",): "another folder",
    ("before",): "overwritten",
    ("path",): "folder of the file",
}


@pytest.mark.parametrize("parts", UNBOUND)
async def test_a_change_detects_a_confirmation_that_is_bound_to_less(tmp_path: Path, monkeypatch, parts) -> None:
    def bind_less(tool: str, arguments: Any, binding: Mapping[str, Any]) -> str:
        return confirm_digest(tool, arguments, {name: value for name, value in binding.items() if name not in parts})

    monkeypatch.setattr("agenticx.runtime.calls.assessing.confirm_digest", bind_less)
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{machine.earlier}:{machine.programs}:{os.defpath}")
    outcome, text = await play(machine, *CASES[UNBOUND[parts]])
    assert text != CHANGED, outcome


async def test_an_event_that_its_reader_changes_does_not_change_what_runs(tmp_path: Path) -> None:
    gate = AsyncConfirmGate()
    runtime = AgentRuntime(ScriptedModel([run("touch shown"), "Done."]), gate, tools=[bash_exec])
    async for event in runtime.run_turn("Go.", Session(workspace=tmp_path)):
        if event.type in ("tool_call", "confirm_required"):
            event.data.get("context", event.data)["arguments"]["command"] = "touch evil"
        if event.type == "confirm_required":
            gate.decide(event.data["id"], ConfirmAnswer(approved=True))
    assert [path.name for path in tmp_path.iterdir()] == ["shown"]
