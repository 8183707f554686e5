"""PostgreSQL servers of the tests' own: started, killed, replicated and promoted.

The binaries may be Debian's, the clusters are not. A server listens on a port of 127.0.0.1 and on a Unix socket in its
folder; anyone may connect as `USER`, a superuser, without a password. As root, it runs as the user `postgres`, since
PostgreSQL refuses root. Servers end with the process that started them, also if that is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal

import pytest

from tests.support.timeouts import PATIENCE, explained_timeout

__all__ = [
    "USER",
    "Cluster",
    "ClusterError",
    "cluster",
    "find_binaries",
    "free_port",
    "is_alive",
    "multi_host_url",
    "requires_postgres",
    "why_unavailable",
]

# asyncpg first asks for TLS; if it is cancelled then and the server ends, it leaves a future whose error nobody reads.
os.environ["PGSSLMODE"] = "disable"

USER = "agx"
_ACCOUNT = "postgres"  # the system user that servers run as where the tests run as root
_PREFIX = "agx-pg-"
_CONFIG: Mapping[str, object] = {
    "max_connections": 500,
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that nothing of a killed server stays
    "log_line_prefix": "'%m [%p] %a '",
}
_PROGRAMS = ("initdb", "postgres", "pg_basebackup", "pg_isready", "psql")
_MEMORY = Path("/dev/shm")
_MIN_FREE = 4 << 30  # bytes of a file system in memory
_POLL_SECONDS = 0.01
_PORTS = range(20_000, 32_000)  # below those of outgoing connections, so that none takes a stopped server's port
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class ClusterError(Exception):
    """An error for a command or a statement that failed, with its output."""


# --- what is there ----------------------------------------------------------------------------------------------------


@cache
def find_binaries() -> Path | None:
    """Return the folder of the server's binaries: the first on PATH that has them, else Debian's newest."""
    debian = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if folder.parent.name.isdecimal()]
    debian.sort(key=lambda folder: int(folder.parent.name), reverse=True)
    for folder in [*map(Path, os.get_exec_path()), *debian]:
        found = (folder / "initdb").resolve().parent  # there may be links to some of the binaries
        if all((found / program).exists() for program in _PROGRAMS):
            return found
    return None


@cache
def why_unavailable() -> str | None:
    """Return a sentence if no server can be started or used here, else None."""
    if find_spec("asyncpg") is None:
        return "needs asyncpg, of the extra postgres"
    if find_binaries() is None:
        return "needs PostgreSQL, such as Debian's package postgresql"
    if os.geteuid() == 0 and not _account():
        return f"needs a system user {_ACCOUNT!r}, since PostgreSQL refuses root"
    return None


@cache
def _account() -> dict[str, Any]:
    """Return the arguments of `subprocess` with which a program runs as the user of servers; none if not as root."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        return {}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


requires_postgres = pytest.mark.skipif(why_unavailable() is not None, reason=why_unavailable() or "")
"""A mark for tests that begin a `cluster`; the fixture `postgres` skips by itself."""


# --- servers ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Cluster:
    """A PostgreSQL server with a data folder of its own."""

    folder: Path
    name: str
    port: int = 0
    _lock: IO[bytes] | None = field(default=None, repr=False)
    _server: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _standbys: list[Cluster] = field(default_factory=list["Cluster"], repr=False)
    _synchronous: list[str] = field(default_factory=list[str], repr=False)
    _databases: list[str] = field(default_factory=list[str], repr=False)
    _templates: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @classmethod
    def begin(
        cls, *, fsync: bool = True, in_memory: bool = False, config: Mapping[str, object] | None = None
    ) -> Cluster:
        """Return a new server that runs, as `cluster` does; blocks for half a second. `end` removes it."""
        folder, lock = _new_folder(_memory_folder() if in_memory else _temporary_folder())
        made = cls(folder, "primary", _lock=lock)
        try:
            made._run("initdb", "-D", made.data, "--no-sync", "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C")
            values = {**_CONFIG, "fsync": "on" if fsync else "off", **(config or {})}
            with (made.data / "postgresql.conf").open("a") as file:
                file.writelines(f"{name} = {value}\n" for name, value in values.items())
            made._start_on_a_free_port()
        except BaseException:
            made.end()
            raise
        return made

    def end(self) -> None:
        """Kill the server and its standbys, and remove their folders; blocks."""
        for standby in self._standbys:
            standby.end()
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()

    @property
    def data(self) -> Path:
        """The data folder, with the write-ahead log in `pg_wal`."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The file of the server's log."""
        return self.folder / "log"

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of the server's databases."""
        return multi_host_url([self.port], database)

    # --- its processes

    async def start(self) -> None:
        """Start the server on its port, after `stop` or `kill`, and wait until it accepts connections."""
        self._launch()
        await asyncio.to_thread(self._wait_until_ready)

    async def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the server as `pg_ctl stop -m MODE` does."""
        server = self._running()
        server.send_signal(_STOP_SIGNALS[mode])
        await asyncio.to_thread(server.wait, PATIENCE)
        self._server = None

    async def kill(self) -> None:
        """Kill all processes of the server by SIGKILL, and wait until they have ended."""
        self._running()
        await asyncio.to_thread(self._kill)

    async def restart(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the server and start it again."""
        await self.stop(mode)
        await self.start()

    async def is_ready(self) -> bool:
        """Return whether the server accepts connections."""
        return await asyncio.to_thread(self._is_ready)

    def processes(self) -> list[int]:
        """Return the process ids of the server, its main process first; none if it does not run."""
        if self._server is None or self._server.poll() is not None:
            return []
        pid = self._server.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())]

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server's processes, those that have ended included; of these in ticks of 10 ms."""
        seconds = 0.0
        for number, pid in enumerate(self.processes()):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                seconds += int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9
                if number == 0:
                    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
                    seconds += sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
        return seconds

    # --- replication

    async def standby(self, *, synchronous: bool = False) -> Cluster:
        """Return a new streaming standby; with `synchronous`, a commit waits for it from now on.

        It ends with this cluster, also if it was promoted. Commits wait without end while the only synchronous standby
        is not there.
        """
        folder, lock = _new_folder(self.folder.parent)
        made = Cluster(folder, f"standby_{next(self._numbers)}", _lock=lock)
        self._standbys.append(made)
        source = f"host=127.0.0.1 port={self.port} user={USER} application_name={made.name}"
        await asyncio.to_thread(
            *(made._run, "pg_basebackup", "-D", made.data, "-d", source, "-c", "fast", "-X", "stream", "--no-sync"),
            *("-R", "-C", "-S", made.name),
        )
        changed = made.data / "postgresql.auto.conf"  # without the primary's names of standbys, which are not its own
        lines = changed.read_text().splitlines(keepends=True)
        changed.write_text("".join(line for line in lines if not line.startswith("synchronous_standby_names")))
        made._launch()
        await asyncio.to_thread(made._wait_until_ready)
        if synchronous:
            await self._change_synchronous([*self._synchronous, made.name])
        await self._wait_for_standby(made.name, "sync" if synchronous else None)
        return made

    async def release_standbys(self) -> None:
        """Let commits wait for no standby from now on; those that wait already end too."""
        await self._change_synchronous([])

    async def promote(self) -> None:
        """Make a standby a primary; returns when it accepts writes."""
        await self.sql(f"SELECT pg_promote(true, {PATIENCE:.0f})")

    async def _change_synchronous(self, names: list[str]) -> None:
        self._synchronous = names
        value = f"FIRST 1 ({', '.join(names)})" if names else ""
        await self.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{value}'")
        await self.sql("SELECT pg_reload_conf()")

    async def _wait_for_standby(self, name: str, sync_state: str | None) -> None:
        replication = "SELECT application_name, state, sync_state FROM pg_stat_replication"
        async with explained_timeout(lambda: self.sql(replication)):
            while True:
                found = await self.sql(
                    "SELECT sync_state FROM pg_stat_replication"
                    f" WHERE application_name = '{name}' AND state = 'streaming'"
                )
                if found and sync_state in (None, found):
                    return
                await asyncio.sleep(_POLL_SECONDS)

    # --- databases

    async def activity(self, database: str) -> str:
        """Return the statements of a database as lines: process, state, event that it waits for, and statement."""
        return await self.sql(
            "SELECT pid, state, wait_event_type, wait_event, left(query, 200) FROM pg_stat_activity"
            f" WHERE datname = '{database}'"
        )

    async def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement with psql and return its rows as lines, fields separated by `|`; raise `ClusterError`."""
        return await asyncio.to_thread(self._sql, statement, database)

    async def fresh_database(self, template: str = "template0") -> str:
        """Create a database, a copy of `template`, and return its URL."""
        name = f"agx_{next(self._numbers)}"
        await self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        self._databases.append(name)
        return self.url(name)

    async def prepared_database(self, key: str, prepare: Callable[[str], Awaitable[None]]) -> str:
        """Create a database as `prepare` leaves one, and return its URL.

        `prepare` gets the URL of an empty database the first time that `key` is given, and must close its connections;
        later databases are copies of that one.
        """
        if key not in self._templates:
            name = f"agx_template_{next(self._numbers)}"
            await self.sql(f"CREATE DATABASE {name} TEMPLATE template0")
            await prepare(self.url(name))
            self._templates[key] = name
        return await self.fresh_database(self._templates[key])

    def drop_databases(self) -> None:
        """Drop the databases made so far, also if there are connections; blocks."""
        for name in self._databases:
            self._sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "postgres")
        self._databases.clear()

    # --- commands and processes, which block

    def _sql(self, statement: str, database: str) -> str:
        address = ("-h", self.folder, "-p", self.port, "-U", USER, "-d", database)
        return self._run("psql", *address, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement).strip()

    def _run(self, program: str, *arguments: object) -> str:
        command = [_binary(program), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, **_account()
        )
        if done.returncode != 0:
            raise ClusterError(f"{program} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _start_on_a_free_port(self) -> None:
        for attempt in itertools.count(1):
            self._launch()
            try:
                return self._wait_until_ready()
            except ClusterError as exc:
                if "Address already in use" not in str(exc) or attempt == 10:
                    raise
                self.port = 0

    def _launch(self) -> None:
        """Start the main process, from the main thread: PostgreSQL stops when the thread that started it ends."""
        assert self._server is None, "it runs already"
        self.port = self.port or free_port()
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        settings = (part for name, value in options.items() for part in ("-c", f"{name}={value}"))
        setpriv = shutil.which("setpriv")
        tied = () if setpriv is None else (setpriv, "--pdeathsig", "QUIT")
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [*tied, _binary("postgres"), "-D", str(self.data), *settings],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal reaches the tests only
                **_account(),
            )

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._server is not None, "it does not run"
        return self._server

    def _wait_until_ready(self) -> None:
        server, until = self._running(), time.monotonic() + PATIENCE
        while not self._is_ready():
            if server.poll() is not None or time.monotonic() > until:
                self._kill()
                raise ClusterError(f"the server did not start:\n{self.log.read_text()[-4_000:]}")
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        command = [
            _binary("pg_isready"),
            "-q",
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
            "-U",
            USER,
            "-d",
            "postgres",
        ]
        return subprocess.run(command, env=_environment(), cwd=self.folder, **_account()).returncode == 0

    def _kill(self) -> None:
        if self._server is None:
            return
        until = time.monotonic() + PATIENCE
        if self._server.poll() is None:
            self._server.send_signal(signal.SIGSTOP)  # so that it starts no other process meanwhile
            while _state(self._server.pid) not in "TZX":  # it may run on until the signal has reached it
                assert time.monotonic() < until, "the server does not stop"
                time.sleep(_POLL_SECONDS / 10)
        pids = self.processes()
        for pid in reversed(pids):  # the main process last: without it the others would tell their clients
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.wait()
        while any(map(is_alive, pids[1:])):
            assert time.monotonic() < until, "a process of the server survives SIGKILL"
            time.sleep(_POLL_SECONDS)
        self._server = None


@asynccontextmanager
async def cluster(
    *, fsync: bool = True, in_memory: bool = False, config: Mapping[str, object] | None = None
) -> AsyncGenerator[Cluster]:
    """Run a new server, which is removed at the end.

    With `in_memory` its files are in a file system in memory, if there is one with 4 GiB free: syncs cost nothing then.
    `config` has further lines for postgresql.conf.
    """
    made = Cluster.begin(fsync=fsync, in_memory=in_memory, config=config)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.end)


def multi_host_url(ports: list[int], database: str = "postgres") -> str:
    """Return the URL of a database on servers at these ports of 127.0.0.1; of several, the one that can be written."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://{USER}@{hosts}/{database}" + ("?target_session_attrs=read-write" if len(ports) > 1 else "")


def _binary(program: str) -> str:
    folder = find_binaries()
    assert folder is not None, why_unavailable()
    return str(folder / program)


def _environment() -> dict[str, str]:
    """Return the environment of this process without what PostgreSQL's programs read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "AGX_"))}
    return {**kept, "LC_ALL": "C"}


def is_alive(pid: int) -> bool:
    """Return whether there is a process with that id that has not ended."""
    return _state(pid) not in "ZX"


def _state(pid: int) -> str:
    """Return the letter of a process's state, as /proc has it; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens, and which no outgoing connection takes."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


# --- folders ----------------------------------------------------------------------------------------------------------


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir())


def _memory_folder() -> Path:
    """Return a folder in memory if there is one with enough space, else one on disk."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MIN_FREE:
        return _MEMORY
    return _temporary_folder()


def _new_folder(parent: Path) -> tuple[Path, IO[bytes]]:
    """Return a new folder that belongs to the servers' user, and the locked file that says it is in use."""
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = (folder / "new").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "new").rename(folder / "lock")  # under this name it is always locked while it is in use
    if account := _account():
        os.chown(folder, account["user"], account["group"])
    return folder, lock


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for file in parent.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError), file.open("rb") as lock:  # in use, another user's, or removed by another process
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)
