"""The tables that are made of the log agree with it, whatever is stored, and a difference is named."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.messages import AssistantMessage
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Commit, MemoryStore, SqliteStore, StateChange, Store, TurnRecord
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.stores import USAGE, RandomSession, began, final, posted, record, started, token

pytestmark = pytest.mark.anyio


async def stored_in(store: Store, session_id: str) -> object:
    """Return all that the protocols tell of a session."""
    loaded = await (await store.ownership.claim(session_id)).load()
    events = await store.log.read(session_id, 0, 100_000)
    return (
        *(replace(loaded, record=replace(loaded.record, id="", created_at="")), [event.type for event in events]),
        *(await store.log.compacted_messages(session_id), [row.counts for row in await store.catalog.usage()]),
        sorted(found.matches[0].message_id or "" for found in await store.catalog.sessions(query="text")),
    )


@pytest.mark.cases(quick=10, full=100)
async def test_the_tables_of_random_sessions_agree_with_their_logs(tmp_path: Path, rng: random.Random) -> None:
    path, seed = tmp_path / "sessions.db", rng.random()
    stores = [SqliteStore(path), MemoryStore()]
    made, told = record(), []
    for store in stores:
        await store.create(made)
        session = RandomSession(random.Random(seed), await store.ownership.claim(made.id))
        for number in range(100):
            await session.commit(number)
        told.append(await stored_in(store, made.id))
        await store.aclose()
    assert told[0] == told[1]
    assert check_projections(path) == []


async def test_a_store_is_checked_beside_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store, kept, deleted = SqliteStore(path), record("one"), record("two")
    for made in (kept, deleted):
        await store.create(made)
    await store.delete(await store.ownership.claim(deleted.id))  # which empties the write-ahead log
    assert (tmp_path / "sessions.db-wal").stat().st_size == 0
    assert check_projections(path, has_owner=True) == []
    lease = await store.ownership.claim(kept.id)
    await lease.commit(Commit(events=[token("a")], facts=[posted("m")]))
    assert check_projections(path, has_owner=True) == []
    await store.aclose()


DAMAGES = {
    "its properties": "UPDATE sessions SET record = json_set(record, '$.name', 'other')",
    "the columns of the list": "UPDATE sessions SET pinned = 1",
    "the running turn": "UPDATE sessions SET running = 'turn_none'",
    "its turns": "DELETE FROM turns WHERE id = 'turn_2'",
    "the client_turn_ids of its turns": "UPDATE turns SET client_turn_id = NULL",
    "its open child turns": "UPDATE turns SET is_open_child = 1 WHERE id = 'turn_1'",
    "its messages": "DELETE FROM messages WHERE message_index = 1",
    "its compacted messages": "INSERT INTO compacted SELECT session, 0, rev, record_index FROM messages LIMIT 1",
    "its state": "DELETE FROM parts",
    "its facts": "DELETE FROM facts",
    "the texts of the search": "UPDATE texts SET text = 'other' WHERE role = 'user'",
    "the words of the search": "DELETE FROM found_docsize WHERE id = (SELECT max(number) FROM texts)",
    "its usage": "UPDATE usage SET calls = calls + 1",
    "the numbers of its commits": "UPDATE commits SET rev = rev + 1 WHERE rev = (SELECT max(rev) FROM commits)",
}


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM segments WHERE last_rev = 1",
        "UPDATE segments SET last_rev = last_rev + 5",
        "UPDATE segments SET first_rev = first_rev + 1",
    ],
)
async def test_a_commit_that_is_missing_among_packed_ones_is_noticed(tmp_path: Path, damage: str) -> None:
    path, made = tmp_path / "sessions.db", record("one")
    store = SqliteStore(path)
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[started()]))
    await lease.commit(Commit(turn_id=turn.id, events=[token("a")]))
    await lease.commit(Commit(turn_id=turn.id, events=[final()]))
    await store.aclose()
    assert check_projections(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(damage)
    assert check_projections(path) == [f"session {made.id!r} differs from its log in the numbers of its commits"]


SCHEMA_DAMAGES = {
    "the index 'message_records' is missing": "DROP INDEX message_records",
    "the index 'message_records' is not as in a new database": """DROP INDEX message_records;
        CREATE INDEX message_records ON records (session, key) WHERE kind = 'none'""",
    "the trigger 'more' is not one of this database": """
        CREATE TRIGGER more AFTER DELETE ON facts BEGIN DELETE FROM parts; END""",
    "the table 'usage' is missing": "DROP TABLE usage",
    "the table 'more' is not one of this database": "CREATE TABLE more (number)",
    "the table 'turns' is not as in a new database": "ALTER TABLE turns ADD COLUMN more",
    "the table 'meta' has no 'log_id'": "DELETE FROM meta WHERE key = 'log_id'",
    "the table 'meta' has no 'position'": "DELETE FROM meta WHERE key = 'position'",
    "the table 'meta' has no 'search'": "DELETE FROM meta WHERE key = 'search'",
    "in the table 'meta', 'position' is no number": "UPDATE meta SET value = 'x' WHERE key = 'position'",
    "in the table 'meta', 'log_id' is not the id of a log": "UPDATE meta SET value = '' WHERE key = 'log_id'",
}


@pytest.mark.parametrize("sentence", SCHEMA_DAMAGES)
async def test_damage_of_the_schema_and_of_the_values_about_the_file_is_named(tmp_path: Path, sentence: str) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    await store.create(record("one"))
    await store.aclose()
    assert check_projections(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(SCHEMA_DAMAGES[sentence])
    assert check_projections(path) == [sentence]


LOG_DAMAGES = [
    ("the positions of its commits", "UPDATE segments SET first_position = 0, last_position = 0"),
    ("the positions of its commits", "UPDATE segments SET last_position = last_position + 1 WHERE last_seq > 0"),
    ("the positions of its commits", "UPDATE segments SET first_position = first_position - 1 WHERE last_seq > 0"),
    ("the positions of its commits", "UPDATE segments SET first_position = 'x' WHERE last_seq > 0"),
    ("the positions of its commits", "UPDATE segments SET first_position = 70, last_position = 70 WHERE last_rev = 1"),
    ("the positions of its commits", "UPDATE commits SET position = position + 70"),
    ("the ids of its commits", "UPDATE segments SET commit_id = ''"),
    ("the ids of its commits", "UPDATE commits SET commit_id = ''"),
    ("the places of its records", "UPDATE records SET seq = seq + 1 WHERE kind = 'turn_accepted' AND rev = 5"),
    ("the places of its records", "UPDATE records SET seq = seq - 1 WHERE kind = 'message_posted'"),
    ("the places of its records", "UPDATE records SET seq = seq + 70 WHERE kind = 'call_began'"),
    ("the places of its records", "UPDATE records SET seq = 0 WHERE kind = 'message_added' AND rev = 4"),
]


@pytest.mark.parametrize(("what", "damage"), LOG_DAMAGES)
async def test_a_wrong_place_of_a_commit_or_record_is_named(tmp_path: Path, what: str, damage: str) -> None:
    path, made = tmp_path / "sessions.db", record("one")
    store = SqliteStore(path)
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[started()], facts=[began("k")]))
    await lease.commit(Commit(turn_id=turn.id, events=[token("a")]))
    said = [UserMessage(content="hi")]
    await lease.commit(Commit(turn_id=turn.id, events=[final()], state=StateChange(said)))
    second = TurnRecord(id="turn_2", session_id=made.id, input="y")
    await lease.commit(Commit(turn_id=second.id, begins=second, events=[started()], facts=[posted("m")]))
    await store.aclose()
    assert check_projections(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(damage).rowcount
    assert [one for one in check_projections(path) if what in one] == [
        f"session {made.id!r} differs from its log in {what}"
    ]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("UPDATE commits SET body = substr(body, 1, length(body) - 3) WHERE last_seq = 2", "event 2 of session"),
        (
            """UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), '"seq":2', '"seq":7') AS BLOB)
               WHERE last_seq = 2""",
            "event 2 of session",
        ),
        ("UPDATE records SET data = replace(data, 'secret', 'sekret') WHERE kind = 'message_added'", "not the one"),
        ("DELETE FROM commits WHERE last_seq = 2", "its log"),
    ],
)
async def test_a_log_with_other_content_is_noticed(tmp_path: Path, damage: str, sentence: str) -> None:
    path, made = tmp_path / "sessions.db", record("one")
    store = SqliteStore(path)
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="x")
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[started()]))
    said = [UserMessage(content="secret")]
    await lease.commit(Commit(turn_id=turn.id, events=[token("a")], state=StateChange(said)))
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(damage).rowcount == 1
    assert [one for one in check_projections(path) if sentence in one]


async def test_rows_of_no_session_are_noticed(tmp_path: Path) -> None:
    path, made = tmp_path / "sessions.db", record("one")
    store = SqliteStore(path)
    await store.create(made)
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM sessions")
    assert check_projections(path) == [
        "the table 'segments' has 1 rows of no session",
        "the table 'records' has 1 rows of no session",
        "the table 'texts' has 1 rows of no session",
    ]


@pytest.mark.parametrize("what", DAMAGES)
async def test_a_table_that_differs_from_the_log_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "sessions.db"
    store, made = SqliteStore(path), record("one")
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="x", client_turn_id="once")
    said = [UserMessage(content="hi"), AssistantMessage(content="hello")]
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[started()], facts=[began("k"), posted("m")]))
    used = RuntimeEvent(EventType.USAGE, USAGE)
    await lease.commit(Commit(turn_id=turn.id, events=[used, final()], state=StateChange(said, {"a": "1"})))
    second = TurnRecord(id="turn_2", session_id=made.id, input="y")
    await lease.commit(Commit(turn_id=second.id, begins=second, events=[started()]))
    await store.aclose()
    assert check_projections(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(DAMAGES[what])
    assert check_projections(path) == [f"session {made.id!r} differs from its log in {what}"]
