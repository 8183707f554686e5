"""The life cycle of `agx serve` for a program that starts it: first line, discovery file, end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from agenticx import __version__
from agenticx.cli.client.discovery import find_studio
from agenticx.cli.client.studio_file import StudioAddress
from agenticx.sessions import OwnedElsewhere
from agenticx.sessions.store.owner import OwnerLock
from studio import parent_watch, single_instance
from tests.support.forked import Process
from tests.support.server.agx_processes import agx, agx_serve, environment, outcome
from tests.support.server.running_studio import frames_of, until
from tests.support.timeouts import PATIENCE, patient_client, wait_until

pytestmark = pytest.mark.anyio

SERVE = ["serve", "--json", "--port", "0"]


@asynccontextmanager
async def turn_running_at(url: str, token: str) -> AsyncGenerator[list[str]]:
    """Yield the types of the events of a turn that runs, and the reason of the server's end, once it has ended."""
    async with patient_client(url, headers={"Authorization": f"Bearer {token}"}) as client:
        path = f"/api/sessions/{(await client.post('/api/sessions', json={})).json()['id']}"
        await client.post(f"{path}/turns", json={"input": "count to 9999"})
        async with client.stream("GET", f"{path}/events") as answer:
            frames = frames_of(answer)
            types = [frame.type for frame in await until(frames, "token")]
            yield types
            async for frame in frames:
                types += [frame.type] if frame.type != "comment" else []
                if frame.type == "server_closing":
                    types.append(frame.data["data"]["reason"])


async def test_serve_prints_one_line_of_json_with_a_ticket_and_writes_the_rest_to_its_discovery_file(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with agx_serve(home, "--json") as served:
        line = json.loads(await served.process.stdout.readline())
        found = json.loads((home / "studio.json").read_text())
        assert line == {
            "url": served.url,
            "port": served.port,
            "token_file": str(home / "token"),
            "ticket": served.ticket,
            "pid": served.process.pid,
            "version": __version__,
            "api": 1,
            "instance": line["instance"],
        }
        assert {**found, "ticket": line["ticket"]} == line
        assert (home / "studio.json").stat().st_mode & 0o777 == 0o600
        async with patient_client(served.url) as stranger:
            health = (await stranger.get("/api/health")).json()
            assert health == {"status": "ok", "version": __version__, "api": 1, "instance": line["instance"]}
            answer = await stranger.post("/api/ticket", json={"ticket": line["ticket"]})
            assert answer.json() == {"token": Path(line["token_file"]).read_text().strip()}
        served.process.send_signal(signal.SIGTERM)
        assert await outcome(served.process) == (0, "", "")
    assert not (home / "studio.json").exists()


async def test_a_server_goes_on_when_nobody_reads_its_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    reading, writing = os.pipe()
    os.close(reading)
    process = Process("agenticx.cli", SERVE, cwd=tmp_path, env=environment(home), stdout=writing)
    os.close(writing)
    with process:
        assert process.stderr is not None
        url = process.stderr.readline().rpartition(" ")[2].partition("/#")[0]
        async with patient_client(url) as stranger:
            assert (await stranger.get("/api/health")).status_code == 200
        process.terminate()
        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")


async def test_other_commands_find_the_studio_by_its_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for _ in range(2):  # the second one replaces the file that the first one left
        async with agx_serve(home) as served:
            found = await find_studio(home)
            assert found is not None
            assert (found.url, found.pid) == (served.url, served.process.pid)
            served.process.kill()
            await outcome(served.process)
        assert (home / "studio.json").exists()
        assert await find_studio(home) is None


async def open_beside_program(home: Path, answered: bytes | None) -> tuple[tuple[int | None, str, str], list[bytes]]:
    """Run `agx open` where another program has the port of a killed studio and gives requests this answer, or none.

    Return the outcome of the command and the requests, none of which has the token.
    """
    requests = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        if answered is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answered), answered))
            await writer.drain()
        writer.close()

    home.mkdir()
    (home / "token").write_text("secret" * 10)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as program:
        port = program.sockets[0].getsockname()[1]
        StudioAddress("127.0.0.1", port, "of a killed run", home / "token", os.getpid()).write_file(home)
        opened = await outcome(await agx(home, "open", "--print"))
    assert b"secret" not in b"".join(requests)
    return opened, requests


@pytest.mark.parametrize("health", [b'{"instance": "of another run"}', b"{}", b"[" * 99_999, b"nothing", b"", None])
async def test_a_program_on_the_port_of_a_killed_studio_gets_no_token(tmp_path: Path, health: bytes | None) -> None:
    (code, out, err), requests = await open_beside_program(tmp_path / "home", health)
    assert (code, out) == (1, "")
    assert err == "agx: no studio is running for this AGX_HOME; `agx serve` starts one\n"
    assert [request.split()[1] for request in requests] == [b"/api/health"]


async def test_a_program_that_knows_the_instance_of_a_killed_studio_gets_no_token(tmp_path: Path) -> None:
    home, answered = tmp_path / "home", b'{"instance": "of a killed run", "proof": "00"}'
    (code, out, err), requests = await open_beside_program(home, answered)
    assert (code, out) == (1, "")
    assert f"what answers there does not have the token in {str(home / 'token')!r}" in err
    assert [request.split()[1].partition(b"=")[0] for request in requests] == [
        b"/api/health",
        b"/api/identity?challenge",
    ]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"url": "http://127.0.0.1:1", "pid": 1}', json.dumps({"url": "http://example.com"})],
)
async def test_an_unreadable_discovery_file_is_that_of_no_studio(tmp_path: Path, content: str) -> None:
    (tmp_path / "studio.json").write_text(content)
    assert await find_studio(tmp_path) is None


# --- one studio per AGX_HOME ------------------------------------------------------------------------------------------


async def test_a_studio_with_another_store_is_refused_and_names_the_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        other = f"sqlite:///{tmp_path / 'other.db'}"
        code, out, err = await outcome(await agx(home, *SERVE, AGX_STORE_URL=other))
        assert (code, out) == (1, "")
        assert err.startswith(f"agx: the studio at {first.url} (process {first.process.pid}) has the sessions of this")
        assert "`agx open`" in err


async def test_a_newcomer_takes_over_once_the_turns_of_the_first_studio_have_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        async with turn_running_at(first.url, first.token) as types, agx_serve(home, "--take-over") as second:
            assert (first.process.returncode or await first.process.wait()) == 0
            found = await find_studio(home)
            assert found is not None
            assert (found.url, found.pid) == (second.url, second.process.pid)
            async with second.client() as client:
                (session,) = (await client.get("/api/sessions")).json()["sessions"]
                assert session["running_turn_id"] is None
        assert types[-3:] == ["error", "server_closing", "stopped"]


@pytest.mark.ci_lane
async def test_of_many_newcomers_that_take_over_at_once_one_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        async with turn_running_at(first.url, first.token) as types:
            newcomers = [await agx(home, *SERVE, "--take-over") for _ in range(4)]
            lines = [json.loads(await newcomer.stdout.readline() or b"null") for newcomer in newcomers]
        assert types[-3:] == ["error", "server_closing", "stopped"]
        assert await outcome(first.process) == (0, "", "")
        await wait_until(lambda: sum(newcomer.returncode is None for newcomer in newcomers) == 1)
        (left,) = (newcomer for newcomer in newcomers if newcomer.returncode is None)
        assert json.loads((home / "studio.json").read_text())["pid"] == left.pid
        assert left.pid in [line["pid"] for line in lines if line is not None]
        left.terminate()
        assert {(await outcome(newcomer))[0] for newcomer in newcomers} <= {0, 1}  # 1: a slow machine, ten seconds over


@pytest.mark.ci_lane
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
@pytest.mark.parametrize("is_suspended", [True, False])
async def test_take_over_says_why_a_studio_cannot_be_asked_to_end(tmp_path: Path, is_suspended: bool) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        pid, file = first.process.pid, home / "studio.json"
        if is_suspended:
            first.process.send_signal(signal.SIGSTOP)
        else:
            file.unlink()
        code, out, err = await outcome(await agx(home, *SERVE, "--take-over"))
        first.process.send_signal(signal.SIGCONT)
        assert (code, out) == (1, "")
        if is_suspended:
            hint = f"if it is suspended, `kill -CONT {pid}` resumes it"
            assert err == f"agx: the server at {first.url} (process {pid}) does not answer; {hint}\n"
        else:
            reason = f"{str(file)!r} does not have its address: it is starting, or the file was removed"
            assert err == f"agx: the studio (process {pid}) cannot be asked to end; {reason}; `kill {pid}` ends it\n"


async def test_a_token_file_that_was_replaced_is_named_until_a_newcomer_takes_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as first:
        (home / "token").write_text("x" * 43)
        code, out, err = await outcome(await agx(home, "sessions", "list"))
        assert (code, out) == (1, "")
        problem = f"{str(home / 'token')!r} was replaced and no longer has the token of the server at {first.url}"
        assert err == f"agx: {problem}; restart that: `agx serve --take-over`\n"
        async with agx_serve(home, "--take-over"):
            assert (await outcome(await agx(home, "sessions", "list")))[0] == 0


@pytest.mark.parametrize("health", [b'{"instance": "of another run"}', None])
def test_a_studio_that_does_not_confirm_its_instance_gets_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, health: bytes | None
) -> None:
    monkeypatch.setattr(single_instance, "_TAKE_OVER_SECONDS", PATIENCE if health is None else 0.3)
    monkeypatch.setattr(single_instance, "_ANSWER_SECONDS", 0.2 if health is None else 5.0)
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    lock = OwnerLock(tmp_path / "studio.json")  # by this process, which the discovery file names too
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = StudioAddress("127.0.0.1", listening.getsockname()[1], "of a run", tmp_path / "token")
            address.write_file(tmp_path)
            threading.Thread(target=answer_health, args=(listening, health), daemon=True).start()
            named = f"at {address.url} \\(process {os.getpid()}\\)"
            sentence = f"{named} did not end within 0.3 seconds" if health else f"{named} does not answer"
            with pytest.raises(OwnedElsewhere, match=sentence):
                single_instance.lock_home(tmp_path, take_over=True)
    finally:
        lock.release()
        signal.signal(signal.SIGTERM, before)
    assert signals == []


def answer_health(listening: socket.socket, health: bytes | None) -> None:
    """Answer requests with this body, or accept connections without an answer, until the socket is closed."""
    with suppress(OSError), ExitStack() as accepted:
        while True:
            connection = accepted.enter_context(listening.accept()[0])
            if health is not None:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(health), health))


# --- the end of the parent --------------------------------------------------------------------------------------------

PARENT = """
import subprocess, sys, time
command = [sys.executable, "-m", "agenticx.cli", *sys.argv[1:]]
subprocess.Popen(command, stdin=subprocess.DEVNULL)
while True:
    time.sleep(1000)
"""


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.cases(quick=1)
async def test_the_server_ends_cleanly_when_the_pipe_to_its_stdin_ends(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    if kind == "pipe":
        theirs, ours = os.pipe()
    else:
        ours, theirs = (end.detach() for end in socket.socketpair())
    arguments, env = [*SERVE, "--exit-with-parent"], environment(home)
    process = Process("agenticx.cli", arguments, cwd=tmp_path, env=env, stdin=theirs)
    os.close(theirs)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = json.loads(process.stdout.readline())["url"]
        process.stderr.readline()
        async with turn_running_at(url, (home / "token").read_text().strip()) as types:
            os.write(ours, b"what is written is dropped\n")
            os.close(ours)
        assert types[-3:] == ["error", "server_closing", "parent_ended"]
        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")
    assert not (home / "studio.json").exists()


async def test_the_server_ends_cleanly_when_its_parent_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *SERVE, "--exit-with-parent"],
        cwd=tmp_path,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        url = json.loads(parent.stdout.readline())["url"]
        parent.stderr.readline()
        async with turn_running_at(url, (home / "token").read_text().strip()) as types:
            parent.kill()
        assert types[-3:] == ["error", "server_closing", "parent_ended"]
        assert parent.stderr.read() == ""  # to its end, which is that of the server
    assert not (home / "studio.json").exists()


@pytest.mark.ci_lane
@pytest.mark.parametrize("kind", ["null", "file", "terminal"])
async def test_a_stdin_that_is_no_pipe_may_end(tmp_path: Path, kind: str) -> None:
    home, given = tmp_path / "home", list[int]()
    if kind == "terminal":
        given += os.openpty()
        os.write(given[0], b"\x04")  # the end of the input
    else:
        given.append(os.open(os.devnull if kind == "null" else __file__, os.O_RDONLY))
        os.lseek(given[0], 0, os.SEEK_END)
    arguments, env = [*SERVE, "--exit-with-parent"], environment(home)
    process = Process("agenticx.cli", arguments, cwd=tmp_path, env=env, stdin=given[-1])
    with process:
        assert process.stdout is not None
        async with patient_client(json.loads(process.stdout.readline())["url"]) as stranger:
            until_then = time.monotonic() + 0.5  # it looks ten times a second whether it has to end
            while time.monotonic() < until_then:
                assert (await stranger.get("/api/health")).status_code == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
    for descriptor in given:
        os.close(descriptor)


def test_the_end_of_the_parent_is_seen_without_what_only_some_systems_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_watch, "_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open("/nonexistent", os.O_RDONLY), raising=False)
    parents = [7, 7, 7, 1]
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    ended, reasons = threading.Event(), list[str]()

    def on_end(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    monkeypatch.setattr(parent_watch, "_STDIN", -1)
    parent_watch.watch_parent(on_end)
    assert ended.wait(PATIENCE)
    assert (reasons, parents) == (["parent"], [1])
