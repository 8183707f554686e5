"""Fixtures of the tool tests: a workspace, and a runner that assesses and calls tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agenticx.sandbox import SandboxOptions, find_sandbox
from agenticx.tools import Assessment, Tool, ToolContext, ToolOutput


@dataclass
class ToolRunner:
    """A caller of tools that proceeds as the engine does: validate, assess, run.

    `emitted` are the events that tools emitted, `background_tasks` the tasks that they added.
    """

    workspace: Path
    protected_roots: tuple[Path, ...] = ()
    sandbox: SandboxOptions = field(default_factory=SandboxOptions)
    emitted: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    background_tasks: list[asyncio.Task[None]] = field(default_factory=list)
    context: ToolContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = ToolContext(
            workspace=self.workspace,
            call_id="call_1",
            emit=lambda type_, payload: self.emitted.append((type_, payload)),
            add_background_task=lambda work: self.background_tasks.append(asyncio.ensure_future(work)),
            protected_roots=self.protected_roots,
            sandbox=self.sandbox,
        )

    def assess(self, tool: Tool, **arguments: Any) -> Assessment:
        return tool.assess(tool.validate(arguments), self.context)

    async def call(self, tool: Tool, **arguments: Any) -> Any:
        result = await tool.run(tool.validate(arguments), self.context)
        return result.text if isinstance(result, ToolOutput) else result

    def files(self) -> dict[str, str]:
        """Return the texts of all files of the workspace by path."""
        return {
            str(path.relative_to(self.workspace)): path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(self.workspace.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def runner(workspace: Path) -> ToolRunner:
    return ToolRunner(workspace)


@pytest.fixture
def sandbox(tmp_path: Path) -> SandboxOptions:
    """Return options with the sandbox on; skip the test where bubblewrap does not work."""
    options = SandboxOptions(home=tmp_path / "agx-home")
    if (status := find_sandbox(options)).kind != "bubblewrap":
        pytest.skip(status.reason)
    return options


@pytest.fixture
def landlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxOptions:
    """Return options with the sandbox on, on a machine whose bubblewrap is broken; skip without Landlock."""
    programs = tmp_path / "broken"
    programs.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    options = SandboxOptions(home=tmp_path / "agx-home")
    if (status := find_sandbox(options)).kind != "landlock":
        pytest.skip(status.reason)
    return options


@pytest.fixture(params=["off", "auto"])
def both_worlds(request: pytest.FixtureRequest, workspace: Path) -> ToolRunner:
    """Return a runner without and one with the sandbox."""
    if request.param == "auto":
        return ToolRunner(workspace, sandbox=request.getfixturevalue("sandbox"))
    return ToolRunner(workspace, sandbox=SandboxOptions(mode="off"))


@pytest.fixture(params=["none", "bubblewrap", "landlock"])
def each_world(request: pytest.FixtureRequest, workspace: Path) -> ToolRunner:
    """Return a runner without a sandbox and one with each kind of sandbox."""
    fixture = {"bubblewrap": "sandbox", "landlock": "landlock"}.get(request.param)
    options = SandboxOptions(mode="off") if fixture is None else request.getfixturevalue(fixture)
    return ToolRunner(workspace, sandbox=options)


@pytest.fixture
def make_runner() -> type[ToolRunner]:
    """Return a factory of runners with a given workspace or given protected roots."""
    return ToolRunner
