"""Benchmarks of the store in PostgreSQL, written by workers in processes of their own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import asyncpg

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Commit, PostgresStore, SessionRecord, TurnRecord
from agenticx.sessions.store.postgres.schema import PARTITIONS
from tests.benchmarks.rows import Row, Scale
from tests.support.postgres.cluster import Cluster, cluster

__all__ = ["postgres_rows"]

MICRO, MILLI, KILO = 1e6, 1e3, 1e-3
SESSIONS = 50
REPEATS = 3
LEASE_SECONDS = 10.0
TURN_TOKENS = 1_000
_BEGIN_SECONDS = 0.1  # from an order to its start
_NOTICE_PART = 0.5  # of a lease: by then workers know of one that is new
_COLUMNS = ("session", "rev", "commit_id", "last_seq", "position", "body")
_TABLE = (
    "CREATE TABLE bare (LIKE commits INCLUDING ALL)",
    *(f"ALTER TABLE bare ALTER COLUMN {name} SET STATISTICS {0 if name == 'body' else 10}" for name in _COLUMNS),
)
"""The floor's table, which costs ANALYZE as much as that of the commits."""


async def postgres_rows(scale: Scale) -> list[Row]:
    """Measure the store on a server of its own, whose files are on disk: CPU time, and the wall clock for ms.

    Per worker 50 sessions commit 20 tokens a second each. The floor inserts the same number of rows, of the same
    length, into a table of the same columns and indexes, in groups of what comes within 20 ms, as the store does.
    The turns end at the end, one after another at each worker: their logs are packed then, which is a row of its own.
    """
    async with cluster() as server:
        rows = list[Row]()
        for count in scale.workers:
            rows += await _workers(server, scale, count)
        rows += await _old_snapshot(server, scale)
        rows += await _size(server, scale)
        return rows


@dataclass(frozen=True, slots=True)
class Run:
    """One job's commits, seconds, CPU seconds of the workers and of the server, and waits in ms."""

    commits: int
    seconds: float
    client: float
    server: float
    waits: Sequence[float]

    @property
    def rate(self) -> float:
        return self.commits / self.seconds

    @property
    def client_each(self) -> float:
        return self.client * MICRO / self.commits

    @property
    def server_each(self) -> float:
        return self.server * MICRO / self.commits


@dataclass(eq=False)
class Child:
    """A process of `postgres_worker`."""

    process: Process

    @classmethod
    async def begin(cls, order: dict[str, Any]) -> Child:
        arguments = ("-m", "tests.benchmarks.postgres_worker", json.dumps(order))
        made = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, limit=1 << 26)
        return cls(made)

    async def ask(self, order: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker of the benchmark has ended, see above")
        return json.loads(line)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


@dataclass(eq=False)
class Bench:
    """Workers of one database."""

    server: Cluster
    url: str
    lease: float
    workers: list[Child]
    session_ids: list[str]

    async def run(self, job: str, seconds: float) -> Run:
        begin = time.monotonic() + _BEGIN_SECONDS
        used = self.server.cpu_seconds()
        order = {"job": job, "begin": begin, "seconds": seconds}
        done = await asyncio.gather(*(worker.ask(order) for worker in self.workers))
        used = self.server.cpu_seconds() - used
        return Run(
            commits=sum(len(one["waits"]) for one in done),
            seconds=max(one["seconds"] for one in done),
            client=sum(one["cpu"] for one in done),
            server=used,
            waits=[wait / MILLI for one in done for wait in one["waits"]],
        )

    async def end_turns(self) -> tuple[float, float]:
        """End all turns; return the CPU µs of the workers and of the server per commit, for the packing."""
        used = self.server.cpu_seconds()
        done = await asyncio.gather(*(worker.ask({"job": "end"}) for worker in self.workers))
        await _execute(self.url, "VACUUM commits")
        used = self.server.cpu_seconds() - used
        commits = sum(one["commits"] for one in done)
        return sum(one["cpu"] for one in done) * MICRO / commits, used * MICRO / commits

    async def rounds(self, count: int, seconds: float, *jobs: str) -> dict[str, list[Run]]:
        """Run the jobs in turn, so that a temporary load slows them all."""
        runs: dict[str, list[Run]] = {job: [] for job in jobs}
        for number in range(count):
            for job in jobs if number % 2 == 0 else reversed(jobs):
                runs[job].append(await self.run(job, seconds))
        return runs

    @asynccontextmanager
    async def reader(self) -> AsyncGenerator[Child]:
        """Run one more worker, which follows all sessions."""
        made = await Child.begin({"url": self.url, "lease": self.lease, "follows": self.session_ids})
        try:
            await made.answer()
            yield made
        finally:
            await made.end()


@asynccontextmanager
async def _bench(server: Cluster, scale: Scale, count: int) -> AsyncGenerator[Bench]:
    url = await server.fresh_database()
    is_full = scale.job_seconds >= 1
    lease = LEASE_SECONDS if is_full else 1.0
    await asyncio.to_thread(lambda: PostgresStore(url, partitions=PARTITIONS if is_full else 1))  # creates the tables
    await _execute(url, *_TABLE)
    order = {"url": url, "lease": lease, "sessions": min(SESSIONS, scale.sessions)}
    async with AsyncExitStack() as stack:
        workers = list[Child]()
        for _ in range(count):
            workers.append(await Child.begin(order))
            stack.push_async_callback(workers[-1].end)
        ids = [id_ for worker in workers for id_ in await worker.answer()]
        bench = Bench(server, url, lease, workers, ids)
        for job in ("store", "bare"):  # not counted: plans are made, and the workers notice each other
            await bench.run(job, _NOTICE_PART * lease / 2)
        yield bench


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def _workers(server: Cluster, scale: Scale, count: int) -> list[Row]:
    repeats, seconds = min(scale.repeats, REPEATS), scale.job_seconds
    async with _bench(server, scale, count) as bench:
        alone = await bench.rounds(repeats, seconds, "store", "bare", "harness")
        async with bench.reader() as reader:
            first = await bench.run("store", _NOTICE_PART * bench.lease)
            read = [await reader.ask({"count": first.commits})][1:]
            followed = list[Run]()
            floors = list[Run]()
            for _ in range(repeats):
                followed.append(await bench.run("store", seconds))
                read.append(await reader.ask({"count": followed[-1].commits}))
                floors.append(await bench.run("bare", seconds))
        packing_client, packing_server = await bench.end_turns()
    store, bare, harness = alone["store"], alone["bare"], alone["harness"]
    waits = [wait for run in store for wait in run.waits]
    late = [wait / MILLI for one in read for wait in one["waits"]]
    clients = [run.client_each - idle.client_each for run, idle in zip(store, harness, strict=True)]
    name = f"{count} PostgreSQL worker{'s' if count > 1 else ''}"
    return [
        Row(
            name=f"{name}, stored",
            value=median(run.rate for run in store),
            unit="commits/s",
            floor=median(run.rate for run in bare),
            goal=0.97,
            at_least=True,
        ),
        Row(name=f"{name}, client CPU per commit", value=median(clients), unit="µs", goal=50),
        _server_row(f"{name}, server CPU per commit", store, bare, 1.3),
        Row(name=f"{name}, commit, p50", value=median(waits), unit="ms"),
        Row(name=f"{name}, commit, p99", value=quantiles(waits, n=100)[-1], unit="ms"),
        _server_row(f"{name}, server CPU per commit with a reader", followed, floors, 2),
        Row(name=f"{name}, reader, p50", value=median(late), unit="ms"),
        Row(name=f"{name}, reader, p99", value=quantiles(late, n=100)[-1], unit="ms", goal=100),
        Row(name=f"{name}, client CPU of packing per commit, after its turn", value=packing_client, unit="µs"),
        Row(name=f"{name}, server CPU of packing per commit, after its turn", value=packing_server, unit="µs"),
    ]


def _server_row(name: str, runs: Sequence[Run], floors: Sequence[Run], goal: float) -> Row:
    return Row(
        name=name,
        value=median(run.server_each for run in runs),
        unit="µs",
        floor=median(run.server_each for run in floors),
        goal=goal,
    )


async def _old_snapshot(server: Cluster, scale: Scale) -> list[Row]:
    """Measure the server's CPU time while a transaction keeps it from removing what was deleted since it began.

    The figure and its floor, that without the transaction, are ratios to bare inserts of the same seconds.
    """
    repeats, seconds = min(scale.repeats, REPEATS), scale.job_seconds
    async with _bench(server, scale, 1) as bench:
        before = await bench.rounds(repeats, seconds, "store", "bare")
        connection = await asyncpg.connect(bench.url)
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch("SELECT count(*) FROM commits")
            await bench.run("store", scale.snapshot_seconds)
            after = await bench.rounds(repeats, seconds, "store", "bare")
        await connection.close()

    def ratio(runs: dict[str, list[Run]]) -> float:
        pairs = zip(runs["store"], runs["bare"], strict=True)
        return median(run.server_each / floor.server_each for run, floor in pairs)

    name = f"server CPU per commit under a snapshot of {scale.snapshot_seconds:g} s"
    return [Row(name=name, value=ratio(after), unit="× bare", floor=ratio(before), goal=1.2)]


async def _size(server: Cluster, scale: Scale) -> list[Row]:
    """Measure the database before and after a turn of many tokens in each of its sessions, without free space."""
    count, tokens = max(scale.sessions // 20, 1), min(scale.tokens, TURN_TOKENS)
    words = Path(__file__, "../../../README.md").resolve().read_text("utf-8").split()
    url = await server.fresh_database()
    store = await PostgresStore.open(url, partitions=1)

    async def speak(session_id: str, place: int) -> None:
        lease = await store.ownership.claim(session_id)
        turn = TurnRecord(session_id=session_id, input="x")
        await lease.commit(Commit(turn_id=turn.id, begins=turn))
        offset = 0
        for number in range(tokens):
            text = words[(place * tokens + number) % len(words)] + " "
            data = {"text": text, "message_id": "msg_0123456789abcdef0123", "offset": offset}
            offset += len(text)
            events = [RuntimeEvent(EventType.TOKEN, data)]
            await lease.commit(Commit(turn_id=turn.id, events=events, sync=False))
        final = RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "msg", "reason": "answer", "usage": {}})
        await lease.commit(Commit(turn_id=turn.id, events=[final]))
        await lease.release()

    records = [SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z") for _ in range(count)]
    for record in records:
        await store.create(record)
    before = await _bytes(url)
    await asyncio.gather(*(speak(record.id, place) for place, record in enumerate(records)))
    after = await _bytes(url)
    await store.aclose()
    size = (after - before) * KILO * TURN_TOKENS / (count * tokens)
    return [Row(name="1,000 token events in PostgreSQL", value=size, unit="kB", goal=30)]


async def _bytes(url: str) -> int:
    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM FULL")
    size: int = await connection.fetchval(
        """SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
           WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""
    )
    await connection.close()
    return size
