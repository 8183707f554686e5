"""Limits of memory and open files: a turn or the process ends, and no valid request is called wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx.resource_exhaustion import OUT_OF_MEMORY_EXIT_CODE
from tests.support.faults.checker import findings, report_findings
from tests.support.faults.servers import RecordedFolder, cut_connections
from tests.support.server.agx_processes import ServedStudio, agx_serve, environment, outcome
from tests.support.timeouts import PATIENCE, explained_timeout

if not sys.platform.startswith("linux"):
    pytest.skip("limits of a running process are set with prlimit (Linux)", allow_module_level=True)

import resource

pytestmark = pytest.mark.anyio

MB = 1024 * 1024
LAST_WORDS = "agx: out of memory: the process ends; what was stored is kept, start it again\n"


@asynccontextmanager
async def server(recorded: RecordedFolder) -> AsyncGenerator[ServedStudio]:
    workspace = recorded.home.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    async with agx_serve(recorded.home, AGX_WORKSPACE_ROOT=str(workspace)) as served:
        yield served


def address_space(pid: int) -> int:
    found = re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def limit_memory(served: ServedStudio, spare: int) -> None:
    """Let the server have `spare` more bytes of address space than it has now."""
    pid = served.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
    resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid) + spare, hard))


def open_files(served: ServedStudio) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{served.process.pid}/fd")}


def use_up_files(served: ServedStudio, spare: int = 0) -> None:
    """Let the server open `spare` files beside those that are open."""
    used = open_files(served)
    most = next(number for number in count() if number not in used) + spare
    hard = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (most, hard))


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", [0, MB, 6 * MB, 20 * MB])
@pytest.mark.ci_lane
async def test_a_server_out_of_memory_loses_nothing(tmp_path: Path, spare: int) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    with cut_connections():
        await run_out_of_memory(recorded, spare)
    async with server(recorded) as served, served.client() as client:
        for session in recorded.seen.sessions:
            assert (await client.get(f"/api/sessions/{session}")).json()["running_turn_id"] is None
            assert (await client.get(f"/api/sessions/{session}/messages")).status_code == 200
    found = findings(recorded.log(), recorded.seen, over=True)
    assert found == [], report_findings(found)


async def run_out_of_memory(recorded: RecordedFolder, spare: int) -> None:
    """Run turns in a server with `spare` bytes of memory; it is killed if it has not ended within ten seconds.

    Python itself may hang without memory.
    """
    async with server(recorded) as served, served.client() as client:
        sessions = await recorded.make_sessions(client, ["auto"] * 8)
        following = [asyncio.create_task(follow(recorded, client, session)) for session in sessions]
        limit_memory(served, spare)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await run_growing_turns(recorded, served, client, sessions)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        if served.process.returncode is None:
            served.process.kill()
        code, _, errors = await outcome(served.process)
        assert code != OUT_OF_MEMORY_EXIT_CODE or LAST_WORDS in errors  # log lines that waited may follow


async def run_growing_turns(
    recorded: RecordedFolder, served: ServedStudio, client: httpx.AsyncClient, sessions: list[str]
) -> None:
    """Run turns in all sessions at once, each round longer, until the server ends or all rounds are over."""
    for size in (1000, 200_000, 800_000):
        posted = [recorded.start(client, session, f"say {'x' * size}") for session in sessions]
        statuses = await asyncio.gather(*posted)
        assert set(statuses) <= {0, 202, 409, 500, 503}, statuses
        await wait_until_turns_end(served, client)
        if served.process.returncode is not None:
            return


async def wait_until_turns_end(served: ServedStudio, client: httpx.AsyncClient) -> None:
    """Wait until no turn runs, as far as the server says, or it has ended."""
    while served.process.returncode is None and await turns_running(client):
        await asyncio.sleep(0.05)


async def turns_running(client: httpx.AsyncClient) -> str:
    """Return what the server says of its turns: empty if none runs."""
    try:
        answer = await client.get("/api/sessions")
    except httpx.TransportError as exc:
        return repr(exc)
    if answer.status_code != 200:
        return f"{answer.status_code}: {answer.text}"
    return ", ".join(id_ for session in answer.json()["sessions"] if (id_ := session["running_turn_id"]))


async def follow(recorded: RecordedFolder, client: httpx.AsyncClient, session: str) -> None:
    """Follow a stream as a client does, reconnecting after early ends, until the server is gone."""
    while True:
        await recorded.follow(client, session)
        await asyncio.sleep(0.05)


CALLBACK = "loop.call_soon(fail)"
THREAD = "threading.Thread(target=fail).start()"
TASK = "held = loop.create_task(coroutine()); loop.call_later(0.01, held.remove_done_callback, print); del held"


@pytest.mark.parametrize("where", [CALLBACK, THREAD, TASK])
@pytest.mark.cases(quick=1)
async def test_an_unhandled_memory_error_ends_the_process_with_one_line(where: str) -> None:
    program = f"""
import asyncio, threading
from agenticx.resource_exhaustion import exit_on_memory_error
def fail(*_): raise MemoryError
async def coroutine(): fail()
async def main():
    loop = asyncio.get_running_loop()
    {where}
    await asyncio.sleep({PATIENCE})
with asyncio.Runner() as runner, exit_on_memory_error(runner.get_loop()):
    runner.run(main())
"""
    assert await python(program) == (OUT_OF_MEMORY_EXIT_CODE, "", LAST_WORDS)


async def test_without_memory_for_a_thread_a_call_fails_and_the_event_loop_continues() -> None:
    program = """
import asyncio, resource
from agenticx.errors import ResourcesExhausted
from agenticx.threads import run_in_thread
async def main():
    resource.setrlimit(resource.RLIMIT_AS, (1, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        await run_in_thread(print, "never")
    except ResourcesExhausted as exc:
        print(exc)
asyncio.run(main())
"""
    code, out, errors = await python(program)
    assert (code, errors) == (0, "")
    assert out.startswith("no thread can be started")


async def test_a_server_starts_in_a_fraction_of_300_mb(tmp_path: Path) -> None:
    async with server(RecordedFolder(tmp_path / "home")) as served:
        assert address_space(served.process.pid) < 200 * MB


async def python(program: str) -> tuple[int | None, str, str]:
    pipe = asyncio.subprocess.PIPE
    return await outcome(await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe, stderr=pipe))


# --- open files -------------------------------------------------------------------------------------------------------


async def test_too_many_open_files_are_a_503_until_some_are_closed(tmp_path: Path) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server(recorded) as served, served.client(connections=1) as client:
        folder = tmp_path / "workspace" / ".agenticx"
        folder.mkdir()
        (folder / "settings.toml").write_text("turn_timeout_seconds = 60\n")
        (session,) = await recorded.make_sessions(client, ["auto"])
        limits = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
        use_up_files(served)
        refused = await client.post(f"/api/sessions/{session}/turns", json={"input": "say hi"})
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded"), refused.text
        assert "ulimit -n" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        assert (await client.get("/api/health")).status_code == 200
        for path in ("/", "/assets/main.js", "/api/models", "/api/usage", f"/api/sessions/{session}/export"):
            assert (await client.get(path)).status_code in (200, 503), path
        made = await client.post("/api/sessions", json={"workspace": str(tmp_path / "workspace")})
        assert made.status_code in (201, 503), made.text
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
        async with served.client() as another:
            assert (await another.get("/api/health")).status_code == 200
        assert await recorded.start(client, session, "say hi") == 202


async def test_a_command_without_free_file_descriptors_has_an_error_result(tmp_path: Path) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server(recorded) as served, served.client(connections=2) as client:
        (session,) = await recorded.make_sessions(client, ["auto"])
        following = asyncio.create_task(follow(recorded, client, session))
        async with explained_timeout(lambda: recorded.seen.sessions[session].frames[-5:]):
            assert await recorded.start(client, session, "say hi") == 202  # what the first turn loads is there then
            while not ends(recorded, session):
                await asyncio.sleep(0.01)
        before = len(open_files(served))
        use_up_files(served, spare=3)
        assert await recorded.start(client, session, "run echo hi") == 202
        async with explained_timeout(
            lambda: f"{len(open_files(served))} files are open, {before} before; ends: {ends(recorded, session)}"
        ):
            while len(ends(recorded, session)) < 2:
                await asyncio.sleep(0.01)
            # A leaked one never closes; others do just after the end.
            while len(open_files(served)) > before and not POPEN_LEAKS:
                await asyncio.sleep(0.01)
        following.cancel()
    (result,) = events(recorded, session, "tool_result")
    assert result["outcome"] == "error"
    assert POPEN_LEAKS or "open files" in result["result"]


POPEN_LEAKS = sys.version_info < (3, 11, 5)
"""True if `Popen` leaks the descriptors of its pipes when it fails (gh-87474), as in 3.11.2; more calls then fail."""


def ends(recorded: RecordedFolder, session: str) -> list[dict[str, Any]]:
    return events(recorded, session, "final", "error")


def events(recorded: RecordedFolder, session: str, *types: str) -> list[dict[str, Any]]:
    """Return the data of the events of these types that the client has received."""
    seen = [json.loads(frame) for frame in recorded.seen.sessions[session].frames]
    return [event["data"] for event in seen if event["type"] in types]


@pytest.mark.ci_lane
@pytest.mark.parametrize("files", [6, 8, 10, 12])
@pytest.mark.cases(quick=1)
async def test_agx_run_without_free_file_descriptors_prints_one_line_and_no_traceback(
    tmp_path: Path, files: int
) -> None:
    limited = f"ulimit -n {files}; exec {sys.executable} -m agenticx.cli run 'list the files'"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        limited,
        stdout=pipe,
        stderr=pipe,
        stdin=asyncio.subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
    )
    code, _, errors = await outcome(process)
    assert "Traceback" not in errors
    assert code == 0 or (code == 1 and "too many open files" in errors.splitlines()[-1].lower()), errors
