"""The tables that are made of the log agree with it, whatever is stored, and a difference is named."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import Commit, Lease, MemoryStore, SqliteStore, StateChange, Store, TurnRecord
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.stores import began, final, posted, question, record, started, taken, token

pytestmark = pytest.mark.anyio

USAGE = {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1}


class RandomSession:
    """Random commits of one session: turns and child turns, conversations, compaction, rewinds, state and facts."""

    def __init__(self, rng: random.Random, lease: Lease) -> None:
        self._rng = rng
        self._lease = lease
        self._open: list[TurnRecord] = []
        self._messages: list[Message] = []
        self._stored: list[Message] = []
        self._compacted = 0
        self._parts = list[str]()
        self._made = record()

    async def commit(self, number: int) -> Commit:
        """Make a random commit and return it."""
        rng, turn, begins = self._rng, None, None
        if not self._open or rng.random() < 0.2:
            above = self._open[-1].id if self._open else None
            id_ = f"turn_{number}"
            begins = TurnRecord(id=id_, session_id=self._lease.session_id, input="x", parent_turn_id=above)
            self._open.append(begins)
            turn, events = begins, [started()]
        else:
            turn = rng.choice(self._open)
            usage = RuntimeEvent(EventType.USAGE, USAGE)
            events = rng.choice([[], [token(f"{number}")], [token("a"), usage], [final()]])
            if events and events[-1].terminal:
                if any(one.parent_turn_id == turn.id for one in self._open):
                    events = []
                else:
                    self._open.remove(turn)
        key = f"{self._lease.session_id} {rng.randrange(5)}"
        some = [began(key, turn.id), posted(key), taken(key), question(key, turn.id)]
        commit = Commit(
            turn_id=turn.id,
            begins=begins,
            events=events,
            state=self._change(number) if rng.random() < 0.6 else None,
            facts=rng.sample(some, rng.randrange(3)),
            record=replace(self._made, id=self._lease.session_id, name=f"n{number}") if rng.random() < 0.1 else None,
        )
        await self._lease.commit(commit)
        return commit

    def _change(self, number: int) -> StateChange:
        rng, keep, compacted, ids = self._rng, len(self._messages), list[Message](), None
        keep_compacted = self._compacted if self._compacted else None
        kind = rng.choice([UserMessage, AssistantMessage])
        new: list[Message] = [kind(content=f"text {number} {rng.random()}", message_id=f"m{number}")]
        what = rng.random()
        if what < 0.2 and keep > 2:  # a summary takes the place of the first ones
            compacted, new, keep = self._messages[:2], [*new, *self._messages[2:]], 0
            keep_compacted = self._compacted
            self._compacted += 2
        elif what < 0.4 and self._stored:  # back to some that were there before
            keep = rng.randrange(keep + 1)
            new = rng.sample(self._stored, min(3, len(self._stored)))
            self._compacted, keep_compacted = 0, 0
            ids = frozenset(message.message_id for message in [*self._messages[:keep], *new])
        self._messages[keep:] = new
        self._stored += new
        parts = {name: str(number) for name in rng.sample("abc", rng.randrange(3))}
        removed = rng.sample(self._parts, rng.randrange(len(self._parts) + 1))  # some of which are added again
        self._parts = [*dict.fromkeys([*(name for name in self._parts if name not in removed), *parts])]
        return StateChange(
            new, parts, keep, ids, compacted=compacted, keep_compacted=keep_compacted, removed_parts=removed
        )


async def stored_in(store: Store, session_id: str) -> object:
    """Return all that the protocols tell of a session."""
    loaded = await (await store.ownership.claim(session_id)).load()
    events = await store.log.read(session_id, 0, 100_000)
    return (
        *(replace(loaded, record=replace(loaded.record, id="", created_at="")), [event.type for event in events]),
        *(await store.log.compacted_messages(session_id), [row.counts for row in await store.catalog.usage()]),
        sorted(found.matches[0].message_id or "" for found in await store.catalog.search("text")),
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
    for number in range(3):
        await lease.commit(Commit(events=[token(str(number))]))
    await store.aclose()
    assert check_projections(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(damage)
    assert check_projections(path) == [f"session {made.id!r} differs from its log in the numbers of its commits"]


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
