"""Promise F2: commands whose server, guardian and supervisor were killed are ended at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agenticx.tools.processes import StartedProcess, kill_leftovers
from tests.support.faults.servers import Commands, KillableStudio, RecordedFolder
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = pytest.mark.anyio


@pytest.mark.promise("F2")
@pytest.mark.parametrize(("command", "sleepers"), [("sleep N & setsid sleep N & wait", 2), ("exec env -i sleep N", 1)])
@pytest.mark.cases(quick=1)
async def test_orphaned_commands_are_terminated_at_the_next_start(tmp_path: Path, command: str, sleepers: int) -> None:
    recorded, seconds = RecordedFolder(tmp_path / "home"), f"{sleepers}0{os.getpid()}"
    async with started(recorded) as server, server.client() as client:
        (session,) = await recorded.make_sessions(client, ["auto"])
        assert await recorded.start(client, session, f"run {command.replace('N', seconds)}") == 202
        await wait_until(
            lambda: any(True for _ in recorded.log().facts_of("process_started")) and len(sleeping(seconds)) == sleepers
        )
        (process,) = recorded.log().facts_of("process_started")
        supervisor = parent(process.data["pid"])
        kill_at_once(server.pid, parent(supervisor), supervisor)
    assert len(sleeping(seconds)) == sleepers, "they outlive all that watched over them"

    async with started(recorded):
        assert sleeping(seconds) == []
    results = [event for event in recorded.log().events[session] if event.type in {"tool_result", "error"}]
    assert [event.data.get("outcome", event.data.get("code")) for event in results] == ["unknown", "interrupted"]


@asynccontextmanager
async def started(recorded: RecordedFolder) -> AsyncGenerator[KillableStudio]:
    """Yield `agx serve`, which is killed in the end if it still runs."""
    server = await Commands().serve(recorded.home)
    try:
        yield server
    finally:
        await server.end(signal.SIGKILL)


def test_an_unrelated_process_with_a_recorded_pid_is_not_terminated() -> None:
    stranger = subprocess.Popen(["sleep", "6000"], start_new_session=True)
    fields = Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19])
    kill_leftovers(StartedProcess(stranger.pid, started - 1, "call_0.run_of_somebody"))
    assert stranger.poll() is None
    kill_leftovers(StartedProcess(stranger.pid, started, "call_0.run_of_somebody"))
    assert stranger.wait(PATIENCE) == -signal.SIGKILL


def kill_at_once(*pids: int) -> None:
    """Kill the processes so that none of them notices the death of another."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def sleeping(seconds: str) -> list[int]:
    """Return the living processes that sleep so long."""
    wanted = [b"sleep", seconds.encode()]
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _arguments(entry)[:2] == wanted and alive(int(entry.name))
    ]


def _arguments(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
