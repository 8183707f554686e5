"""Reading the log of all sessions from the file: in order, from any position, without delaying others."""

from __future__ import annotations

import asyncio
import sqlite3
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Position, SessionRecord, SqliteStore, StoredEvent
from tests.support.commits import append, delete

pytestmark = pytest.mark.anyio

STREAMING = 30


def tokens(count: int) -> list[RuntimeEvent]:
    return [RuntimeEvent(EventType.TOKEN, {"text": "word ", "message_id": "m", "offset": at}) for at in range(count)]


def final() -> RuntimeEvent:
    usage = {"input_tokens": None, "output_tokens": None}
    return RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "m", "reason": "answer", "usage": usage})


async def session_in(store: SqliteStore) -> str:
    made = SessionRecord(workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")
    await store.create(made)
    return made.id


async def streaming(store: SqliteStore) -> list[StoredEvent]:
    """Create sessions that stream at the same time, the turns of some being over; return the log."""
    ids = [await session_in(store) for _ in range(STREAMING)]
    log: list[StoredEvent] = []
    for round_ in range(30):
        for place, session_id in enumerate(ids):
            if round_ % (place % 3 + 1) == 0:
                events = tokens(place % 7 + 1)
                log += await append(store, session_id, "turn", events)
    for session_id in ids[::2]:
        log += await append(store, session_id, "turn", [final()])
    return log


async def pages(store: SqliteStore, after: int, at_once: int) -> list[StoredEvent]:
    return [event async for page in _pages(store, after, at_once) for event in page]


async def _pages(store: SqliteStore, after: int, at_once: int) -> AsyncIterator[Sequence[StoredEvent]]:
    while page := await store.log.read_all(Position(after), at_once):
        assert len(page) <= at_once
        yield page
        after = page[-1].position


async def far_apart(store: SqliteStore) -> tuple[str, list[StoredEvent]]:
    """Store a turn with one event at the log's beginning and more far behind it; return its session and the log."""
    slow, quick = await session_in(store), await session_in(store)
    log = list(await append(store, slow, "turn", tokens(1)))
    for _ in range(40):
        log += await append(store, quick, "turn", tokens(500))
    log += await append(store, slow, "turn", [*tokens(1), final()])
    return slow, log


@pytest.mark.parametrize(("at_once", "starts"), [(1, (-20,)), (100, (0, 1, -300, -1)), (10_000, (0, 1000))])
@pytest.mark.cases(quick=1)
async def test_the_log_of_all_sessions_is_read_in_order_from_any_position(
    tmp_path: Path, at_once: int, starts: tuple[int, ...]
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = await streaming(store)
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    for start in starts:
        assert await pages(again, log[start].position - 1, at_once) == log[start:]
    await again.aclose()


@pytest.mark.ci_lane
async def test_a_row_spans_a_bounded_range_of_positions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    _, log = await far_apart(store)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        (reach,) = connection.execute("SELECT max(last_position - first_position) FROM segments").fetchone()
    assert reach < 1_000
    again = SqliteStore(tmp_path / "sessions.db")
    assert await pages(again, 0, 512) == log
    assert await pages(again, log[20_000].position - 1, 512) == log[20_000:]
    await again.aclose()


@pytest.mark.ci_lane
async def test_rows_with_a_larger_span_are_read_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    slow, log = await far_apart(store)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        of_it = "session = (SELECT number FROM sessions WHERE id = ?)"
        bodies = connection.execute(
            f"SELECT body FROM segments WHERE {of_it} AND last_seq > 0 ORDER BY last_seq", (slow,)
        ).fetchall()
        one = zlib.compress(b"\n".join(zlib.decompress(body) for (body,) in bodies))
        connection.execute(f"DELETE FROM segments WHERE {of_it} AND last_seq = 1", (slow,))
        connection.execute(
            f"UPDATE segments SET body = ?, first_position = ? WHERE {of_it} AND last_seq > 0",
            (one, log[0].position, slow),
        )
        connection.commit()
    again = SqliteStore(tmp_path / "sessions.db")
    assert await pages(again, 0, 512) == log
    assert await pages(again, log[19_999].position - 1, 512) == log[19_999:]
    await again.aclose()


async def test_a_damaged_row_is_skipped_in_the_log_of_all_sessions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = await streaming(store)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        connection.execute("UPDATE segments SET body = x'00' WHERE session = 1")
        connection.commit()
    again = SqliteStore(tmp_path / "sessions.db")
    readable = [event for event in log if event.session_id != log[0].session_id]
    assert await pages(again, 0, 100) == readable
    assert await pages(again, 0, 512) == readable
    await again.aclose()


@pytest.mark.ci_lane
async def test_deleted_events_are_not_read_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = await streaming(store)
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    assert await pages(again, 0, 512) == log
    await delete(again, log[0].session_id)
    assert await pages(again, 0, 512) == [event for event in log if event.session_id != log[0].session_id]
    await again.aclose()


@pytest.mark.ci_lane
async def test_reading_a_session_does_not_wait_for_a_replay(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = await streaming(store)
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    answered: list[str] = []
    replays = [asyncio.create_task(again.log.read_all(Position(place % 100), 4_000)) for place in range(100)]
    for replay in replays:
        replay.add_done_callback(lambda _: answered.append("replay"))
    await asyncio.sleep(0)
    asked, listed = (
        asyncio.create_task(again.catalog.get(log[0].session_id)),
        asyncio.create_task(again.catalog.sessions(limit=5)),
    )
    for asking in (asked, listed):
        asking.add_done_callback(lambda _: answered.append("session"))
    assert ((await asked).id, len(await listed)) == (log[0].session_id, 5)
    assert {len(page) for page in await asyncio.gather(*replays)} <= set(range(1, 4_001))
    assert answered[-1] == "replay"
    await again.aclose()


@pytest.mark.ci_lane
async def test_a_replay_of_a_large_log_uses_little_memory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    ids = [await session_in(store) for _ in range(4)]
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * 100_000, "message_id": "m", "offset": 0})
    for _ in range(15):
        for session_id in ids:
            await append(store, session_id, "turn", [*[large] * 9, final()])
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    tracemalloc.start()
    try:
        sizes = [len(event.frame_json) async for page in _pages(again, 0, 512) for event in page]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sizes) == 600
    assert sum(sizes) > 50_000_000
    assert most < 30_000_000
    await again.aclose()
