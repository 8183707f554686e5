"""A worker of the benchmarks in `postgres_rows`, which writes sessions or follows all of them.

It takes orders as lines of JSON and answers each with a line, the first one when it is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Commit, Lease, PostgresStore, SessionRecord, TurnRecord
from studio.server import freeze_startup_memory
from tests.support.timeouts import PATIENCE

__all__ = ["main"]

TOKENS_PER_SECOND = 20
TICK_SECONDS = 0.02
_INSERT = """INSERT INTO bare (session, rev, commit_id, last_seq, position, body)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[])"""
_SENT = re.compile(rb'"text":"(\d+)')
_PREFIX = os.urandom(6).hex()
_FINAL = RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "msg", "reason": "answer", "usage": {}})

Put = Callable[["Stream"], Awaitable[object]]
BareRow = tuple[int, int, str, int, int, bytes]


@dataclass(slots=True, eq=False)
class Stream:
    """A session with a turn that runs; `number` counts its commits."""

    lease: Lease
    turn_id: str
    place: int
    number: int = 1

    def commit(self) -> Commit:
        """Return its next commit: a token with the time at which it is made."""
        self.number += 1
        data = {"text": f"{time.monotonic_ns()} ", "message_id": "msg_0123456789abcdef0123", "offset": self.number * 6}
        event = RuntimeEvent(EventType.TOKEN, data)
        return Commit(id=f"{_PREFIX}-{self.place}-{self.number}", turn_id=self.turn_id, events=[event], sync=False)


@dataclass(slots=True, eq=False)
class BareWriter:
    """The floor: rows of one table that are inserted in groups, of what comes within a tick."""

    connection: asyncpg.Connection[Any]
    rows: list[BareRow] = field(default_factory=list[BareRow])
    waiting: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, row: BareRow) -> None:
        stored = asyncio.get_running_loop().create_future()
        self.rows.append(row)
        self.waiting.append(stored)
        self.wakeup.set()
        await stored

    async def run(self) -> None:
        while True:
            await self.wakeup.wait()
            await asyncio.sleep(TICK_SECONDS)
            self.wakeup.clear()
            (rows, self.rows), (waiting, self.waiting) = (self.rows, []), (self.waiting, [])
            await self.connection.fetch(_INSERT, *map(list, zip(*rows, strict=True)))
            for stored in waiting:
                stored.set_result(None)


async def _begin(store: PostgresStore, place: int) -> Stream:
    record = SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    lease = await store.ownership.claim(record.id)
    turn = TurnRecord(session_id=record.id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn))
    stream = Stream(lease, turn.id, place)
    await lease.commit(stream.commit())
    return stream


async def _run_paced(streams: Sequence[Stream], put: Put, begin: float, seconds: float) -> dict[str, Any]:
    """Commit on each stream so many times a second, and return what that took; none waits for another one."""
    waits = list[int]()
    until = begin + seconds
    interval = 1 / TOKENS_PER_SECOND

    async def run(stream: Stream) -> None:
        due = begin + interval * stream.place / len(streams)
        while (now := time.monotonic()) < until and due < until:
            if due > now:
                await asyncio.sleep(due - now)
            sent = time.monotonic()
            await put(stream)
            waits.append(round((time.monotonic() - sent) * 1e6))
            due += interval

    await asyncio.sleep(begin - time.monotonic())
    used = time.process_time()
    await asyncio.gather(*map(run, streams))
    used = time.process_time() - used
    return {"waits": waits, "cpu": used, "seconds": max(time.monotonic() - begin, seconds)}


async def _end_turns(streams: Sequence[Stream]) -> dict[str, Any]:
    """End the turns one after another, and return the CPU time of that and their commits, which are packed then."""
    used, count = time.process_time(), 0
    for stream in streams:
        (final,) = await stream.lease.commit(Commit(turn_id=stream.turn_id, events=[_FINAL]))
        await stream.lease.release()  # waits for the packing
        count += final.seq  # each commit has an event
    return {"commits": count, "cpu": time.process_time() - used}


async def _write(order: dict[str, Any], orders: asyncio.StreamReader) -> None:
    store = await PostgresStore.open(order["url"], lease=order["lease"])
    connection = await asyncpg.connect(order["url"])
    bare = BareWriter(connection)
    inserting = asyncio.create_task(bare.run())
    count = order["sessions"]
    streams = await asyncio.gather(*(_begin(store, place) for place in range(count)))
    session_ids = [stream.lease.session_id for stream in streams]
    rows = await connection.fetch("SELECT id, number FROM sessions WHERE id = ANY ($1)", session_ids)
    numbers: dict[str, int] = {row[0]: row[1] for row in rows}
    length: int = await connection.fetchval("SELECT max(length(body)) FROM commits WHERE last_seq > 0")
    body = b"x" * length

    async def store_commit(stream: Stream) -> None:
        await stream.lease.commit(stream.commit())

    async def insert(stream: Stream) -> None:
        commit = stream.commit()
        position = time.monotonic_ns()
        number = numbers[stream.lease.session_id]
        await bare.put((number, stream.number, commit.id, stream.number, position, body))

    async def make(stream: Stream) -> None:
        stream.commit()

    puts: dict[str, Put] = {"store": store_commit, "bare": insert, "harness": make}
    _answer(session_ids)
    while line := await orders.readline():
        todo = json.loads(line)
        if todo["job"] == "end":
            _answer(await _end_turns(streams))
        else:
            _answer(await _run_paced(streams, puts[todo["job"]], todo["begin"], todo["seconds"]))
    inserting.cancel()
    await connection.close()
    await store.aclose()


async def _follow(order: dict[str, Any], orders: asyncio.StreamReader) -> None:
    """Read all sessions, each as a reader of it does; an order is the number of events to wait for."""
    store = await PostgresStore.open(order["url"], lease=order["lease"])
    waits = list[int]()
    more = asyncio.Event()
    ready = list[str]()

    async def follow(session_id: str) -> None:
        wakeup = asyncio.Event()
        with store.log.subscribe(session_id, wakeup):
            after = await store.log.head(session_id)
            ready.append(session_id)
            more.set()
            while True:
                await wakeup.wait()
                wakeup.clear()
                while events := await store.log.read(session_id, after, 512):
                    now = time.monotonic_ns()
                    for event in events:
                        if (sent := _SENT.search(event.frame_json)) is not None:
                            waits.append((now - int(sent[1])) // 1000)
                    after = events[-1].seq
                    more.set()

    async def reach(found: Sequence[object], count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                more.clear()
                await more.wait()

    following = [asyncio.create_task(follow(id_)) for id_ in order["follows"]]
    await reach(ready, len(following))
    _answer([])
    used = time.process_time()
    while line := await orders.readline():
        await reach(waits, json.loads(line)["count"])
        _answer({"waits": waits, "cpu": time.process_time() - used})
        waits.clear()
        used = time.process_time()
    for task in following:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await store.aclose()


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def main(order: dict[str, Any]) -> None:
    """Serve the orders on standard input to its end."""
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    freeze_startup_memory()
    await (_follow if "follows" in order else _write)(order, orders)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
