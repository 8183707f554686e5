"""Tools that fork: no worker keeps a dead program locked, and no child goes on with its parent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from agenticx import open_hub
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub
from agenticx.sessions.store.owner import OwnerLock
from agenticx.settings import load_settings
from agenticx.testing import call
from agenticx.tools import tool
from studio.single_instance import lock_home
from tests.support.faults.killed_process import kill_this_process
from tests.support.forked import ROOT, Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
]

Fork = Literal["multiprocessing", "os.fork"]
FOREVER = 600.0


def run_until_killed(function: Callable[..., Awaitable[None]], folder: Path, *arguments: object) -> None:
    """Run a coroutine function of this module in a process of its own, and check that this is killed."""
    names = f"from pathlib import PosixPath\nfrom {function.__module__} import {function.__name__}"
    source = f"import asyncio\n{names}\nasyncio.run({function.__name__}(*{(folder, *arguments)!r}))"
    with (folder / "output").open("w+") as output:  # not a pipe, which a worker would keep open
        null = subprocess.DEVNULL
        with Process(
            PROGRAM, [source], cwd=ROOT, env=os.environ, stdin=null, stdout=null, stderr=output.fileno()
        ) as process:
            process.wait(PATIENCE)
        output.seek(0)
        assert process.returncode == -signal.SIGKILL, output.read()


@asynccontextmanager
async def opened(folder: Path, script: list[Any], tools: list[Any]) -> AsyncGenerator[Hub]:
    settings = load_settings({"home": folder / "home"}, environ={})
    url, model = f"sqlite:///{folder}/sessions.db", ScriptedModel(script)
    async with open_hub(url, model=model, tools=tools, workspace=folder, settings=settings) as hub:
        yield hub


async def run_turn(hub: Hub) -> list[str]:
    """Run a turn of a new session and return the results of its calls, and its text."""
    session = await hub.create(permission_mode="auto")
    events = [event async for event in hub.run_turn(session.id, "go")]
    last: Any = events[-1].data
    return [*(event.data["result"] for event in events if event.type == "tool_result"), last["text"]]


def start_worker(folder: Path, how: Fork) -> None:
    """Fork a process that outlives this one, and write its id to a file."""
    if how == "multiprocessing":
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=[FOREVER])
        worker.start()
        pid = worker.pid
    else:
        pid = os.fork()
        if pid == 0:
            time.sleep(FOREVER)
    (folder / "worker").write_text(str(pid))


def kill_worker(folder: Path) -> None:
    with suppress(ProcessLookupError):
        os.kill(int((folder / "worker").read_text()), signal.SIGKILL)


async def run_with_worker(folder: Path, how: Fork, closes: bool) -> None:
    """Run a turn whose tool starts a worker, close all and open it again if it `closes`; the process is killed."""

    @tool(risk="read")
    def work() -> str:
        """Work."""
        start_worker(folder, how)
        return "started"

    studio = lock_home(folder / "home")
    async with opened(folder, [call("work"), "Done."], [work]) as hub:
        assert await run_turn(hub) == ["started", "Done."]
        if not closes:
            kill_this_process()
    studio.release()
    lock_home(folder / "home")
    async with opened(folder, ["Again."], []) as hub:
        assert await run_turn(hub) == ["Again."]
        kill_this_process()


@pytest.mark.promise("A5")
@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(("how", "closes"), [("multiprocessing", False), ("os.fork", False), ("os.fork", True)])
async def test_a_worker_of_a_killed_program_keeps_nothing_locked(tmp_path: Path, how: Fork, closes: bool) -> None:
    run_until_killed(run_with_worker, tmp_path, how, closes)
    try:
        os.kill(int((tmp_path / "worker").read_text()), 0)  # it lives
        lock_home(tmp_path / "home").release()
        async with opened(tmp_path, ["Hello."], []) as hub:
            assert await run_turn(hub) == ["Hello."]
            assert len(await hub.store.catalog.sessions()) == (3 if closes else 2)
    finally:
        kill_worker(tmp_path)


async def run_with_children(folder: Path) -> None:
    """Run tools whose children leave them in several ways, then another turn; the process is killed."""

    @tool(risk="read")
    async def leave(how: str) -> str:
        """Leave the tool in a child."""
        pid = os.fork()
        if pid:
            return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if how == "exit":
            sys.exit(3)
        if how == "raise":
            raise LookupError("of the child")
        return "from the child"

    @tool(risk="read")
    def leave_thread(how: str) -> str:
        """Leave the tool in a child, from a thread."""
        pid = os.fork()
        if pid:
            return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return "from the child" if how == "return" else sys.exit(4)

    script = [[call("leave", {"how": how}) for how in ("return", "exit", "raise")]]
    script += [[call("leave_thread", {"how": how}) for how in ("return", "exit")]]
    async with opened(folder, [*script, "Done.", "Again."], [leave, leave_thread]) as hub:
        (folder / "results").write_text(" ".join([*await run_turn(hub), *await run_turn(hub)]))
    kill_this_process()


@pytest.mark.ci_lane
async def test_a_child_that_leaves_the_tool_ends_and_changes_nothing_of_its_parent(tmp_path: Path) -> None:
    run_until_killed(run_with_children, tmp_path)
    assert (tmp_path / "results").read_text() == "0 3 1 0 4 Done. Again."


async def write_in_child(folder: Path) -> None:
    """Use the store in a child of the application's own, outside of a tool; the process is killed."""
    async with opened(folder, ["Hello.", "Again."], []) as hub:
        await run_turn(hub)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                await asyncio.wait_for(run_turn(hub), 10)
            os._exit(5)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        (folder / "results").write_text(" ".join([str(code), *await run_turn(hub)]))
    kill_this_process()


async def test_a_child_of_the_application_cannot_write_to_the_store_of_its_parent(tmp_path: Path) -> None:
    run_until_killed(write_in_child, tmp_path)
    assert (tmp_path / "results").read_text() == "5 Again."
    async with opened(tmp_path, [], []) as hub:
        assert len(await hub.store.catalog.sessions()) == 2


async def test_a_lock_is_free_once_it_is_released_also_where_a_child_shares_it(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "file")
    shared = os.dup(cast(Any, lock)._file)  # as in a child that was forked by other means than `os.fork`
    lock.release()
    OwnerLock(tmp_path / "file").release()
    os.close(shared)
