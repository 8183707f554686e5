"""Several `agx serve` processes over one store, to be killed and stopped, and a load balancer."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.forked import AsyncProcess
from tests.support.postgres.proxy import FaultyProxy
from tests.support.server.agx_processes import READY, agx
from tests.support.timeouts import explained_timeout, patient_client

__all__ = ["LoadBalancer", "StudioWorker", "StudioWorkers", "studio_workers"]

_SHOWN_CHARS = 2_000  # of a worker's log, in the note of an error


@dataclass(eq=False)
class StudioWorker:
    """A running `agx serve` process with an AGX_HOME of its own."""

    name: str
    home: Path
    process: AsyncProcess
    port: int
    ticket: str
    token_file: Path
    _reading: asyncio.Task[tuple[None, None]] = field(repr=False)
    is_balanced: bool = True
    """True if the load balancer passes new connections to it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """True until the process has ended, also while it is stopped."""
        return self.process.returncode is None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.token_file.read_text("ascii").strip()

    @property
    def log(self) -> str:
        """The text that it has written to stderr behind the ready line."""
        return (self.home.parent / "stderr").read_text("utf-8")

    @property
    def lost_leases(self) -> int:
        """The number of times that it was kept from renewing its lease in time; others may have taken its sessions."""
        return self.log.count("the lease of this worker had ended before it was renewed")

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def client(self, connections: int | None = None) -> httpx.AsyncClient:
        """Return a client of this worker with its token; one with a limit of `connections` keeps them."""
        return patient_client(self.url, headers={"Authorization": f"Bearer {self.token}"}, connections=connections)

    async def kill(self) -> None:
        """Kill the process by SIGKILL, and wait until it has ended."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> int:
        """End the process by SIGTERM, and return its exit code."""
        return await self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the process by SIGSTOP: its connections stay open, and connections are accepted by the kernel."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_balanced = False

    def thaw(self) -> None:
        """Let the process go on after `freeze`."""
        self.process.send_signal(signal.SIGCONT)
        self.is_balanced = True

    def describe(self) -> str:
        """Return its state and the last lines of its log."""
        state = "running" if self.is_running else f"ended with {self.process.returncode}"
        return f"{self.name}, process {self.pid}, {state}; its log ends:\n{self.log[-_SHOWN_CHARS:]}"

    async def _end(self, number: int) -> int:
        if self.is_running:
            self.process.send_signal(number)
        async with explained_timeout(self.describe):
            code = await self.process.wait()
            await self._reading
        return code


class StudioWorkers:
    """Studio workers over the store at `url`, with the same AGX_SECRET_FILE, and a load balancer.

    The balancer passes no new connection to a frozen worker, as if it had seen that it does not answer.
    `folder` has a folder for each worker, with its AGX_HOME and what it wrote to stderr, and the workspace that they
    share. `variables` are further ones of the environment; `mutant` is one of `tests.support.faults.broken.MUTANTS`.
    """

    def __init__(self, folder: Path, url: str | None, *, mutant: str | None = None, **variables: str) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.all: list[StudioWorker] = []
        self.balancer = LoadBalancer(lambda: [worker.port for worker in self.running if worker.is_balanced])
        self._mutant = mutant
        secret_file = folder / "secret"
        secret_file.touch(0o600)
        secret_file.write_text(secrets.token_hex(32))
        self._variables = {
            "AGX_SECRET_FILE": str(secret_file),
            "AGX_WORKSPACE_ROOT": str(self.workspace),
            "AGX_ALLOWED_HOSTS": f"127.0.0.1:{self.balancer.port}",
            **({} if url is None else {"AGX_STORE_URL": url}),
            **variables,
        }

    @property
    def running(self) -> list[StudioWorker]:
        """The workers that have not ended, those that were stopped among them."""
        return [worker for worker in self.all if worker.is_running]

    async def start(self, count: int = 1) -> list[StudioWorker]:
        """Start workers at once, and return them when all are ready."""
        numbers = range(len(self.all) + 1, len(self.all) + count + 1)
        # A group of tasks would cancel one that still reads what its process has said.
        found = await asyncio.gather(*(self._start(f"worker-{number}") for number in numbers), return_exceptions=True)
        started = [one for one in found if isinstance(one, StudioWorker)]
        self.all += started
        if errors := [one for one in found if isinstance(one, BaseException)]:
            raise BaseExceptionGroup("workers did not start", errors)
        return started

    async def restart(self, worker: StudioWorker) -> StudioWorker:
        """Start a worker in the AGX_HOME of one that has ended, in whose place it is in `all`."""
        assert not worker.is_running
        started = await self._start(worker.name)
        self.all[self.all.index(worker)] = started
        return started

    def client(self, connections: int | None = None) -> httpx.AsyncClient:
        """Return a client of the load balancer, each of whose connections goes to the next worker."""
        headers = {"Authorization": f"Bearer {self.all[0].token}"}
        return patient_client(f"http://127.0.0.1:{self.balancer.port}", headers=headers, connections=connections)

    async def kill_all(self) -> None:
        """Kill the workers that run."""
        await asyncio.gather(*(worker.kill() for worker in self.running))

    async def _start(self, name: str) -> StudioWorker:
        home = self.folder / name / "home"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = await agx(home, "serve", "--port", "0", mutant=self._mutant, **self._variables)
        try:
            lines: list[bytes] = []
            async with explained_timeout(lambda: f"{name} is not ready; it wrote {b''.join(lines).decode()!r}"):
                while not (ready := READY.search(line := await process.stderr.readline())):
                    lines.append(line)
                    assert line, b"".join(lines).decode()
        except BaseException:
            if process.returncode is None:
                process.kill()
            await process.communicate()
            raise
        reading = asyncio.ensure_future(
            asyncio.gather(_copy(process.stdout, home.parent / "stdout"), _copy(process.stderr, home.parent / "stderr"))
        )
        token_file = Path(self._variables.get("AGX_TOKEN_FILE") or home / "token")
        return StudioWorker(name, home, process, int(ready[1]), ready[2].decode(), token_file, reading)


async def _copy(stream: asyncio.StreamReader, path: Path) -> None:
    """Append a stream to a file until its end: a process waits when nobody reads what it writes."""
    with path.open("ab", buffering=0) as file:
        while piece := await stream.read(1 << 16):
            file.write(piece)


class LoadBalancer(FaultyProxy):
    """A proxy that passes each connection to the next of several ports; it skips those that do not accept."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        super().__init__(upstream=0)
        self._ports = ports
        self._next = 0

    async def connect_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ports = self._ports()
        first = self._next % len(ports) if ports else 0
        for number, port in enumerate([*ports[first:], *ports[:first]], self._next + 1):
            self.upstream, self._next = port, number
            try:
                return await super().connect_upstream()
            except OSError:
                continue
        raise ConnectionRefusedError("no worker accepts connections")


@asynccontextmanager
async def studio_workers(
    folder: Path, url: str | None, count: int = 3, *, mutant: str | None = None, **variables: str
) -> AsyncGenerator[StudioWorkers]:
    """Run so many workers with a load balancer, and kill at the end those that still run.

    An error of the body has a note with the ends of their logs.
    """
    workers = StudioWorkers(folder, url, mutant=mutant, **variables)
    async with workers.balancer.listening():
        try:
            await workers.start(count)
            yield workers
        except BaseException as exc:
            exc.add_note("\n".join(worker.describe() for worker in workers.all))
            raise
        finally:
            await workers.kill_all()
