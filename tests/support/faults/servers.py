"""Servers to be killed, and recording clients: real processes, sockets and a stock SSE client."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import warnings
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
from httpx_sse import aconnect_sse

from tests.support.faults.checker import Observations, Transcript
from tests.support.faults.http_transport import LightTransport
from tests.support.faults.log_file import LogFile, read_log, snapshot
from tests.support.faults.projections import different_tables
from tests.support.forked import AsyncProcess
from tests.support.server.agx_processes import READY, agx
from tests.support.timeouts import PATIENCE, explained_timeout

ROOT = Path(__file__).parents[3]
READY_SECONDS = SETTLE_SECONDS = PATIENCE
TOKEN = "k" * 43


class ServerDied(Exception):
    """An error for a server that ended before it was ready."""


class Servers(Protocol):
    """A starter of servers."""

    async def serve(self, home: Path, **options: Any) -> KillableStudio:
        """Start a server over `home`; raise `ServerDied` if it ends before it is ready."""
        ...


class Commands:
    """A starter of servers as users start them: `agx serve` with the demo model."""

    async def serve(self, home: Path, **options: Any) -> KillableStudio:
        workspace = home.parent / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        process = await agx(home, "serve", "--port", "0", AGX_WORKSPACE_ROOT=str(workspace))
        ready = READY.search(line := await process.stderr.readline())
        if ready is None:
            raise ServerDied((line + await process.stderr.read()).decode())
        url, token = f"http://127.0.0.1:{int(ready[1])}", (home / "token").read_text().strip()
        return KillableStudio(process.pid, url, token, home, asyncio.ensure_future(_exit_status(process)))


async def _exit_status(process: AsyncProcess) -> int:
    await process.communicate()
    assert process.returncode is not None
    return process.returncode


class ServerForker:
    """A starter of servers by the program in `tests/support/faults/server_forker.py`."""

    def __init__(self, process: AsyncProcess) -> None:
        self._process = process
        self._ready: asyncio.Queue[dict[str, int]] = asyncio.Queue()
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._reading = asyncio.create_task(self._read())

    async def serve(self, home: Path, **options: Any) -> KillableStudio:
        """Start a server over `home`; raise `ServerDied` if it ends before it is ready."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (home / "token").exists():
            (home / "token").touch(0o600)
            (home / "token").write_text(TOKEN)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"home": str(home), **options}).encode() + b"\n")
        async with asyncio.timeout(READY_SECONDS):
            message = await self._ready.get()
        if "port" not in message:
            raise ServerDied((home / "stderr").read_text())
        return KillableStudio(
            message["pid"], f"http://127.0.0.1:{message['port']}", TOKEN, home, self._exit_of(message["pid"])
        )

    def _exit_of(self, pid: int) -> asyncio.Future[int]:
        return self._exits.setdefault(pid, asyncio.get_running_loop().create_future())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        served: set[int] = set()
        async for line in self._process.stdout:
            message = json.loads(line)
            if "port" in message:
                served.add(message["pid"])
                self._exits.pop(message["pid"], None)  # of an earlier process with that id
                self._ready.put_nowait(message)
            elif message["pid"] in served:
                served.remove(message["pid"])
                self._exit_of(message["pid"]).set_result(message["status"])
            else:
                self._ready.put_nowait(message)

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def server_forker() -> AsyncGenerator[ServerForker]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AGX_", "COV_"))}
    process = await AsyncProcess.start(
        "tests.support.faults.server_forker", [], cwd=ROOT, env=environment, stdin=subprocess.PIPE
    )
    made = ServerForker(process)
    with cut_connections():
        try:
            yield made
        finally:
            await made.close()
    errors = (await process.stderr.read()).decode()
    assert not errors, errors


@contextmanager
def cut_connections() -> Generator[None]:
    """Let connections to killed servers that httpx leaves open be collected without a warning.

    It would be an error in whatever test the garbage collector runs, which may be this one.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()


@dataclass
class KillableStudio:
    """A server in a process of its own."""

    pid: int
    url: str
    token: str
    home: Path
    exited: asyncio.Future[int]

    def client(self, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
        """Return a stock client, which records streams; or one that calls by `transport`."""
        headers = {"Authorization": f"Bearer {self.token}"}
        limits = httpx.Limits(max_connections=None)
        timeout = httpx.Timeout(SETTLE_SECONDS, pool=None)
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            limits=limits,
            timeout=timeout,
            trust_env=False,
            verify=False,
            transport=transport,
        )

    def caller(self) -> httpx.AsyncClient:
        """Return a client for many small calls."""
        return self.client(LightTransport())

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time of the server, which does not depend on other load of the machine."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def end(self, number: int = signal.SIGKILL) -> int:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        async with explained_timeout(lambda: f"process {self.pid} has not ended after signal {int(number)}"):
            return await asyncio.shield(self.exited)


@dataclass
class RecordedFolder:
    """A data folder, its sessions, and the records of its clients over any number of servers."""

    home: Path
    seen: Observations = field(default_factory=Observations)
    modes: dict[str, str] = field(default_factory=dict[str, str])
    """The permission modes of the sessions, which each message names: no turn asks because of a restart."""
    posts: int = 0

    def __post_init__(self) -> None:
        self.seen.marks = self.home.parent / "workspace" / "marks"

    @property
    def database(self) -> Path:
        return self.home / "sessions.db"

    def log(self) -> LogFile:
        """Return the log as stored now, read from a copy."""
        return read_log(snapshot(self.database, self.home / "copy"))

    def different_tables(self) -> list[str]:
        """Return the tables that differ from the log as stored now, read from a copy."""
        return different_tables(snapshot(self.database, self.home / "copy"))

    async def make_sessions(self, client: httpx.AsyncClient, modes: Iterable[str]) -> list[str]:
        """Create one session for each permission mode."""
        return [await self.make_session(client, mode) for mode in modes]

    async def make_session(self, client: httpx.AsyncClient, mode: str, team: str | None = None) -> str:
        """Create a session and return its id."""
        made = await client.post("/api/sessions", json={"permission_mode": mode, "team": team})
        id_ = made.json()["id"]
        self.seen.sessions[id_], self.modes[id_] = Transcript(), mode
        return id_

    async def start(self, client: httpx.AsyncClient, session: str, text: str) -> int:
        """Begin a turn and record the outcome; return the status, 0 if the server died before it answered."""
        self.posts += 1
        id_ = f"{session}-{self.posts}"
        body = {"input": text, "client_turn_id": id_, "permission_mode": self.modes[session]}
        try:
            answer = await client.post(f"/api/sessions/{session}/turns", json=body)
        except httpx.TransportError:
            return 0
        if answer.status_code == 202:
            self.seen.accepted.add(id_)
        elif answer.status_code == 409:
            self.seen.refused.add(id_)
        return answer.status_code

    async def answer(self, client: httpx.AsyncClient, question: dict[str, Any], approved: bool) -> int:
        """Answer a question and record the decision; return the status, 0 if the server died before it answered."""
        body = {"approved": approved, "digest": question["digest"]}
        try:
            answer = await client.post(f"/api/confirms/{question['id']}", json=body)
        except httpx.TransportError:
            return 0
        if answer.status_code == 200:
            self.seen.answers[question["id"]] = answer.json()["approved"]
        return answer.status_code

    async def follow(self, client: httpx.AsyncClient, session: str | None) -> None:
        """Record a stream (None: of all sessions) from the last cursor on, until the server ends."""
        transcript = self.seen.everything if session is None else self.seen.sessions[session]
        path = "/api/events" if session is None else f"/api/sessions/{session}/events"
        headers = {} if transcript.cursor is None else {"Last-Event-ID": transcript.cursor}
        with suppress(httpx.TransportError):
            async with aconnect_sse(client, "GET", path, headers=headers) as source:
                async for event in source.aiter_sse():
                    if not event.data:  # `retry` alone
                        continue
                    message = json.loads(event.data)
                    if "seq" in message:
                        transcript.frames.append(event.data.encode())
                        transcript.cursor = event.id
                    elif message["type"] != "server_closing":
                        transcript.unexpected.append(event.data)
