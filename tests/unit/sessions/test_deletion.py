"""The deletion of a long session of the SQLite store, in many short transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound, StoreError
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Commit, OwnershipLost, Position, SqliteStore, StateChange, TurnRecord
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.stores import USAGE, asked, orphans, posted, question, record, session_in, started, token

pytestmark = pytest.mark.anyio

MESSAGES = 400  # of each a row in three tables
SECRET = "unforgettable"
LEAST_COMMITS = 20  # of another session; between two of them are three parts of 16 rows at most


async def make_long_session(path: Path) -> str:
    """Create a session with many messages, a turn that runs and waits for an answer, and a queued message."""
    store, made = SqliteStore(path), record(SECRET)
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input=SECRET)
    events = [started(), asked("r"), RuntimeEvent(EventType.USAGE, USAGE)]
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=events, facts=[question("r"), posted("p")]))
    messages = [UserMessage(content=f"{SECRET} {number}") for number in range(MESSAGES)]
    await lease.commit(Commit(turn_id=turn.id, events=[token(SECRET)] * 1000, state=StateChange(messages)))
    await lease.release(work_left=True)
    id_ = made.id
    assert await shown_of(store) == ([id_], [id_], [id_], {id_}, [id_], [id_], id_)
    await store.aclose()
    return id_


async def shown_of(store: SqliteStore, other: str = "") -> object:
    """Return the sessions but `other` that the store names in each list of all sessions, and in a lookup."""
    events = await store.log.read_all(Position(0), 10_000)
    return (
        [one.id for one in await store.catalog.sessions() if one.id != other],
        [one.id for one in await store.catalog.sessions(query=SECRET)],
        [usage.session_id for usage in await store.catalog.usage()],
        {event.session_id for event in events} - {other},
        [event.session_id for event in await store.catalog.open_requests()],
        await orphans(store),
        await store.catalog.session_of_request("r"),
    )


NOTHING = ([], [], [], set[str](), [], [], None)


def stored_sessions(path: Path) -> list[str | None]:
    """Return the ids of the sessions in the file: None for one that is being deleted."""
    with closing(sqlite3.connect(path)) as connection:
        return [id_ for (id_,) in connection.execute("SELECT id FROM sessions ORDER BY number")]


def files_with_secret(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()]


@pytest.mark.ci_lane
async def test_other_sessions_commit_between_the_parts_of_a_deletion(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session_id = await make_long_session(path)
    store = SqliteStore(path)
    other = await store.ownership.claim(await session_in(store))
    deleting = asyncio.create_task(store.delete(await store.ownership.claim(session_id)))
    commits = 0
    while len(left := stored_sessions(path)) == 2:
        await other.commit(Commit(events=[token("x")]))
        commits += None in left
    assert commits > LEAST_COMMITS
    await deleting
    assert files_with_secret(tmp_path) == []
    await store.aclose()
    assert check_projections(path) == []


async def test_nobody_sees_a_session_that_is_being_deleted_and_a_cancelled_caller_does_not_stop_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    session_id = await make_long_session(path)
    store = SqliteStore(path)
    other = await session_in(store)
    lease = await store.ownership.claim(session_id)
    deleting = asyncio.create_task(store.delete(lease))
    while session_id in stored_sessions(path):
        await store.catalog.sessions()
    assert None in stored_sessions(path)
    while None in stored_sessions(path):
        deleting.cancel()
        assert await shown_of(store, other) == NOTHING
        for asking in (store.catalog.get(session_id), store.log.read(session_id, 0, 10), lease.load()):
            with pytest.raises((SessionNotFound, OwnershipLost)):
                await asking
        assert check_projections(path, has_owner=True) == []
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert stored_sessions(path) == [other]
    await store.aclose()
    assert check_projections(path) == []


async def test_the_next_start_deletes_what_is_left_of_a_session(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session_id = await make_long_session(path)
    store = SqliteStore(path)
    deleting = asyncio.create_task(store.delete(await store.ownership.claim(session_id)))
    while session_id in stored_sessions(path):
        await store.catalog.sessions()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await deleting
    assert (stored_sessions(path), files_with_secret(tmp_path)) == ([None], ["sessions.db"])
    store = SqliteStore(path)
    assert stored_sessions(path) == []
    assert await shown_of(store) == NOTHING
    await store.aclose()
    assert (check_projections(path), files_with_secret(tmp_path)) == ([], [])
