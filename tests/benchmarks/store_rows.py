"""Benchmarks of the durable log: concurrent appends, size, reading back and opening."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from secrets import token_hex
from statistics import median, quantiles

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.messages import AssistantMessage, Message
from agenticx.runtime import EventType, Option, RuntimeEvent, Session
from agenticx.sessions import Commit, Lease, Position, SessionRecord, SqliteStore, StateChange, TurnRecord
from agenticx.sessions.hub.queue import MessageQueue
from agenticx.sessions.hub.state_tracker import load_session
from agenticx.sessions.hub.writer import SessionWriter
from agenticx.sessions.log.state import StoredSession
from agenticx.sessions.log.tool_state import encode_state
from agenticx.tools.artifacts.files import MemoryContents
from tests.benchmarks.floor import bare_group_commit, cpu_of
from tests.benchmarks.rows import Row, Scale
from tests.support.commits import must_sync

__all__ = ["store_rows"]

MICRO, MILLI = 1e6, 1e3
STREAMING, LATENCY_STREAMS = 50, 32
TOKEN_SECONDS = 0.01
TURN_TOKENS, TURNS = 300, 4
SEPARATE_CALLS = 100
DURABLE_EVERY = 100
MERGED, PAGE = 20, 512
CONVERSATIONS, REVISIONS = (10, 10_000), (10, 2_000)
FILES_OF_OPTION = 100


async def store_rows(scale: Scale) -> list[Row]:
    """Measure each figure on a database of its own: wall-clock time for ms or per second, else CPU time.

    The garbage collector is configured as in the server, here and in `studio_rows`.
    """
    return [
        *await _appends(scale),
        *[await _message(scale, length) for length in CONVERSATIONS],
        *[await _revision(scale, stored) for stored in REVISIONS],
        *await _latency(scale),
        await _answer(),
        await _size(scale),
        *await _reading_back(scale),
        *await _replaying_all(scale),
    ]


def token(number: int) -> RuntimeEvent:
    data = {"text": f"word{number} ", "message_id": "msg_0123456789abcdef0123", "offset": number}
    return RuntimeEvent(EventType.TOKEN, data)


def call(number: int) -> RuntimeEvent:
    data = {"tool_call_id": f"call_{number}", "name": "file_read", "arguments": {"path": "README.md"}}
    return RuntimeEvent(EventType.TOOL_CALL, data)


def final() -> RuntimeEvent:
    usage = {"input_tokens": 10, "output_tokens": 10}
    return RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "msg", "reason": "answer", "usage": usage})


@asynccontextmanager
async def database() -> AsyncGenerator[tuple[SqliteStore, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sessions.db")
        store = SqliteStore(path)
        try:
            yield store, path
        finally:
            await store.aclose()


async def sessions(store: SqliteStore, count: int) -> Sequence[Lease]:
    records = [SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z") for _ in range(count)]
    for record in records:
        await store.create(record)
    return [await store.ownership.claim(record.id) for record in records]


_commit_ids, _PREFIX = count(1), token_hex(6)


async def append(lease: Lease, events: Sequence[RuntimeEvent], turn_id: str) -> None:
    """Commit events as the writer of a session does, which counts its commits."""
    commit_id = f"{_PREFIX}-{next(_commit_ids)}"
    await lease.commit(Commit(id=commit_id, turn_id=turn_id, events=events, sync=must_sync(events)))


async def begin_turn(lease: Lease) -> str:
    """Begin a turn and return its id.

    Of an event of any other turn it is looked up whether that has ended.
    """
    turn = TurnRecord(session_id=lease.session_id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn))
    return turn.id


async def _appends(scale: Scale) -> list[Row]:
    """Measure concurrent sessions that each store token by token as fast as the log accepts them.

    Their turns are at different places, so that work which is due after so many tokens of one is not due for all at
    once. The budgets, 15 and 6 µs, were set on a machine where a bare group commit took 5 µs; it is measured for
    comparison.
    """
    each = scale.tokens // 10

    async def stream(lease: Lease, turn_id: str, count: int = each) -> None:
        for number in range(count):
            await append(lease, [token(number)], turn_id)

    async def once() -> float:
        async with database() as (store, _):
            leases = await sessions(store, STREAMING)
            turn_ids = [await begin_turn(lease) for lease in leases]
            await asyncio.gather(*map(stream, leases, turn_ids, range(0, 5 * STREAMING, 5)))
            return await cpu_of(lambda: asyncio.gather(*map(stream, leases, turn_ids)))

    spent = [await once() for _ in range(scale.repeats)]
    bare = [await bare_group_commit(STREAMING, each) for _ in range(scale.repeats)]
    return [
        Row(
            name=f"durable append at {STREAMING} streaming sessions, per event",
            value=median(spent) * MICRO / (STREAMING * each),
            unit="µs",
            first_light=15,
            goal=6,
        ),
        Row(
            name=f"a bare group commit of {STREAMING} streams, per row",
            value=median(bare) * MICRO / (STREAMING * each),
            unit="µs",
        ),
    ]


async def _message(scale: Scale, length: int) -> Row:
    """Measure a commit with one more message of a conversation of that length, as the writer of a session makes it."""
    said: list[Message] = [UserMessage(content=f"question {number}") for number in range(length)]

    async def add_message(session: Session, number: int) -> None:
        session.messages.append(AssistantMessage(content=f"answer {number}"))

    spent = [await _commits(scale, StateChange(said), add_message) for _ in range(scale.repeats)]
    return Row(name=f"commit of a message after {length:,} others", value=median(spent), unit="µs")


async def _revision(scale: Scale, stored: int) -> Row:
    """Measure a commit with one more revision of a file, where that many are stored: those of options, and its own.

    The floor is a group commit of one row, which is measured beside each.
    """
    first, contents = Session(), MemoryContents()
    for number in range(1, stored, FILES_OF_OPTION):
        option = Option(number, "demo", f"turn_{number}", "turn_1", first.artifacts.branch())
        for place in range(min(stored, FILES_OF_OPTION)):
            await option.artifacts.write(f"page{place}.html", b"<p>")
        first.options.append(option)
    assert len(first.artifacts.revisions) == stored

    async def add_revision(session: Session, number: int) -> None:
        session.artifacts.contents = contents
        await session.artifacts.write("index.html", b"<p>%d" % number)

    spent, floors, commits = list[float](), list[float](), scale.tokens // 10
    for _ in range(scale.repeats):
        spent.append(await _commits(scale, StateChange(parts=encode_state(first, (0, 0))), add_revision))
        floors.append(await bare_group_commit(1, commits) * MICRO / commits)
    return Row(
        name=f"commit of a file's revision after {stored:,} others",
        value=median(spent),
        unit="µs",
        floor=median(floors),
    )


async def _commits(scale: Scale, state: StateChange, change: Callable[[Session, int], Awaitable[None]]) -> float:
    """Return the CPU time in µs of a change of a session with that state and its commit, as its writer makes it."""
    commits = scale.tokens // 10
    async with database() as (store, _):
        made = SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")
        await store.create(made, state=state)
        lease = await store.ownership.claim(made.id)
        loaded = await lease.load()
        session = load_session(made, loaded.state)
        stored = StoredSession.of(loaded)
        writer = SessionWriter(lease, stored, session, MessageQueue(), SystemClock(), lambda *_: None)
        turn = TurnRecord(session_id=made.id, input="x")
        await writer.commit(turn.id, begins=turn, keeps_state=True)

        async def run() -> None:
            for number in range(commits):
                await change(session, number)
                await writer.commit(turn.id, [call(number)])

        return await cpu_of(run) * MICRO / commits


async def _latency(scale: Scale) -> list[Row]:
    """Measure how long an event waits for the disk; every hundredth event must survive a power cut."""
    waits: list[float] = []

    async def stream(lease: Lease, delay: float) -> None:
        turn_id = await begin_turn(lease)
        await asyncio.sleep(delay)
        for number in range(scale.paced_tokens):
            event = call(number) if number % DURABLE_EVERY == DURABLE_EVERY - 1 else token(number)
            began = time.perf_counter()
            await append(lease, [event], turn_id)
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(TOKEN_SECONDS)

    async with database() as (store, _):
        leases = await sessions(store, LATENCY_STREAMS)
        delays = [TOKEN_SECONDS * place / LATENCY_STREAMS for place in range(LATENCY_STREAMS)]
        await asyncio.gather(*(stream(*one) for one in zip(leases, delays, strict=True)))
    name = f"wait for the log at {LATENCY_STREAMS} streaming sessions"
    return [
        Row(name=f"{name}, median", value=median(waits) * MILLI, unit="ms", first_light=2),
        Row(name=f"{name}, 99 of 100", value=quantiles(waits, n=100)[-1] * MILLI, unit="ms", first_light=10),
    ]


async def _answer() -> Row:
    """Measure an answer of 2,000 tokens, stored one by one as a slow model sends them."""
    async with database() as (store, path):
        (lease,) = await sessions(store, 1)
        turn_id = await begin_turn(lease)
        for number in range(2_000):
            await append(lease, [token(number)], turn_id)
        await append(lease, [final()], turn_id)
        with closing(sqlite3.connect(path)) as connection:
            (rows,) = connection.execute("SELECT count(*) FROM segments").fetchone()
    return Row(name="rows of an answer of 2,000 tokens", value=rows, unit="rows", first_light=300)


async def _turn(lease: Lease) -> None:
    """Store a turn of tokens, several per append, and its end."""
    turn_id = await begin_turn(lease)
    for number in range(SEPARATE_CALLS):
        events = [token(number * 3 + place) for place in range(TURN_TOKENS // SEPARATE_CALLS)]
        await append(lease, events, turn_id)
    await append(lease, [final()], turn_id)


async def _size(scale: Scale) -> Row:
    """Measure the size of sessions of four turns with 300 tokens each."""
    count = max(scale.sessions // 20, 1)
    async with database() as (store, path):
        for lease in await sessions(store, count):
            for _ in range(TURNS):
                await _turn(lease)
        await store.aclose()
        size = path.stat().st_size
    return Row(name=f"sessions of {TURNS} turns in a GB", value=count * 1e9 / size, unit="sessions")


async def _reading_back(scale: Scale) -> list[Row]:
    """Measure one long session, opened and read from its first event."""
    events = scale.tokens * 25
    async with database() as (store, path):
        (lease,) = await sessions(store, 1)
        turn_id, seq = await begin_turn(lease), 0
        while seq < events:
            batch = [token(seq + place) for place in range(50)]
            await append(lease, batch, turn_id)
            seq += len(batch)
        await append(lease, [final()], turn_id)
        await store.aclose()
        began = time.perf_counter()
        again = SqliteStore(path)
        opened = time.perf_counter() - began
        began = time.perf_counter()
        await again.log.read(lease.session_id, seq - 100, 512)
        resumed = time.perf_counter() - began
        began, place = time.perf_counter(), 0
        while more := await again.log.read(lease.session_id, place, 512):
            place = more[-1].seq
        replayed = place / (time.perf_counter() - began)
        await again.aclose()
    return [
        Row(name=f"open a log of {events:,} events", value=opened * MILLI, unit="ms", first_light=2_000),
        Row(name=f"resume at the tail of {events:,} events", value=resumed * MILLI, unit="ms", first_light=200),
        Row(name="replay from the disk", value=replayed, unit="events/s"),
    ]


async def _replaying_all(scale: Scale) -> list[Row]:
    """Measure a replay of all sessions, and the time that listing them takes meanwhile."""
    calls = max(scale.sessions // 20, 1)
    async with database() as (store, path):
        turns = [(lease, await begin_turn(lease)) for lease in await sessions(store, STREAMING)]
        for number in range(calls):
            for lease, turn_id in turns:
                await append(lease, [token(number)] * MERGED, turn_id)
        for lease, turn_id in turns:
            await append(lease, [final()], turn_id)
        await store.aclose()
        again = SqliteStore(path)
        began, place, read = time.perf_counter(), Position(0), 0
        while more := await again.log.read_all(place, PAGE):
            place, read = more[-1].position, read + len(more)
        replayed = read / (time.perf_counter() - began)
        waited = await _lists_during_a_replay(again)
        await again.aclose()
    return [
        Row(name="replay of all sessions from the disk", value=replayed, unit="events/s"),
        Row(name="list of sessions during a replay, the longest of 20", value=waited * MILLI, unit="ms"),
    ]


async def _lists_during_a_replay(store: SqliteStore) -> float:
    async def replay() -> None:
        while True:
            place = Position(0)
            while more := await store.log.read_all(place, PAGE):
                place = more[-1].position

    waits: list[float] = []
    replaying = asyncio.create_task(replay())
    for _ in range(20):
        began = time.perf_counter()
        await store.catalog.sessions(limit=STREAMING)
        waits.append(time.perf_counter() - began)
    replaying.cancel()
    return max(waits)
