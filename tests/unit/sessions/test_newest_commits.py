"""The rows of the newest commits: when they are packed into segments, and which of them stay."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Commit, Lease, SqliteStore, TurnRecord
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.commits import delete
from tests.support.stores import session_in

pytestmark = pytest.mark.anyio

MANY = 2048


def token(text: str) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0})


def final() -> RuntimeEvent:
    usage = {"input_tokens": None, "output_tokens": None}
    return RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "m", "reason": "answer", "usage": usage})


async def open_turn(store: SqliteStore, session_id: str | None = None) -> tuple[Lease, str]:
    lease = await store.ownership.claim(session_id or await session_in(store))
    turn = TurnRecord(session_id=lease.session_id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn))
    return lease, turn.id


async def end(lease: Lease, turn_id: str) -> None:
    await lease.commit(Commit(turn_id=turn_id, events=[final()]))


async def stream(lease: Lease, turn_id: str, count: int) -> None:
    for number in range(count):
        await lease.commit(Commit(turn_id=turn_id, events=[token(f"{number} ")], sync=False))


def query(folder: Path, statement: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(folder / "sessions.db", isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


ROWS = "SELECT session, count(*) FROM commits GROUP BY session"


async def test_rows_stay_while_any_turn_is_open_and_are_packed_when_the_last_one_ends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    turns = [await open_turn(store) for _ in range(2)]
    await asyncio.gather(*(stream(*turn, 10) for turn in turns))
    assert query(tmp_path, ROWS) == [(1, 11), (2, 11)]
    await end(*turns[0])
    assert query(tmp_path, ROWS) == [(1, 12), (2, 11)]
    await end(*turns[1])
    assert query(tmp_path, ROWS) == []
    assert query(tmp_path, "SELECT session, first_rev, last_rev, last_seq FROM segments ORDER BY 1, 2") == [
        *[(1, 1, 1, 0), (1, 2, 13, 11)],
        *[(2, 1, 1, 0), (2, 2, 13, 11)],
    ]
    await store.aclose()
    assert check_projections(tmp_path / "sessions.db") == []


async def test_commits_of_no_turn_stay_rows_until_a_turn_ends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    lease = await store.ownership.claim(await session_in(store))
    for number in range(3):
        await lease.commit(Commit(events=[token(str(number))]))
    assert query(tmp_path, ROWS) == [(1, 3)]
    await end(*await open_turn(store))
    assert query(tmp_path, ROWS) == []
    assert query(tmp_path, "SELECT session, first_rev, last_rev FROM segments WHERE last_rev > 1") == [
        (1, 2, 4),
        (2, 2, 3),
    ]
    assert await store.log.head(lease.session_id) == 3
    await store.aclose()
    assert check_projections(tmp_path / "sessions.db") == []


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.ci_lane
async def test_many_rows_are_packed_while_turns_are_open(tmp_path: Path, reopened: bool) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    turns = [await open_turn(store) for _ in range(32)]
    await asyncio.gather(*(stream(*turn, MANY // 32 - 10) for turn in turns))
    assert query(tmp_path, "SELECT count(*) FROM commits") == [(MANY - 9 * 32,)]
    if reopened:
        await store.aclose()
        store = SqliteStore(tmp_path / "sessions.db")
        turns = [(await store.ownership.claim(lease.session_id), turn_id) for lease, turn_id in turns]
    await asyncio.gather(*(stream(*turn, 18) for turn in turns))
    assert query(tmp_path, "SELECT count(*) < 600 FROM commits") == [(1,)]
    assert [await store.log.head(lease.session_id) for lease, _ in turns] == [MANY // 32 + 8] * 32
    await store.aclose()
    assert check_projections(tmp_path / "sessions.db") == []


DAMAGES = {
    "a body": "UPDATE commits SET body = CAST('damaged' AS BLOB) WHERE session = 1 AND last_seq = 2",
    "rows of no session": "UPDATE commits SET session = 77 WHERE session = 1 AND last_seq > 1",
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_damaged_rows_stay_and_those_of_other_sessions_are_packed(tmp_path: Path, what: str) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    damaged, whole = [await open_turn(store) for _ in range(2)]
    await stream(*damaged, 3)
    await store.aclose()
    query(tmp_path, DAMAGES[what])
    kept = "SELECT position, body FROM commits WHERE session IN (1, 77) AND last_seq BETWEEN 2 AND 3"
    before = query(tmp_path, kept)
    store = SqliteStore(tmp_path / "sessions.db")
    await end(await store.ownership.claim(damaged[0].session_id), damaged[1])
    lease = await store.ownership.claim(whole[0].session_id)
    await end(lease, whole[1])
    await end(*await open_turn(store, lease.session_id))
    assert query(tmp_path, "SELECT count(*) FROM commits WHERE session = 2") == [(0,)]
    assert query(tmp_path, kept) == before
    assert await store.log.head(lease.session_id) == 2
    await store.aclose()


async def test_the_rows_of_a_deleted_session_are_not_packed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    one, two = [await open_turn(store) for _ in range(2)]
    await asyncio.gather(stream(*one, 10), stream(*two, 10))
    await delete(store, one[0].session_id)
    await end(*two)
    assert query(tmp_path, "SELECT DISTINCT session FROM segments") == [(2,)]
    assert query(tmp_path, ROWS) == []
    await store.aclose()
    assert check_projections(tmp_path / "sessions.db") == []
