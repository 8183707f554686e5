"""Databases of other releases: older ones are migrated, newer ones refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.messages import SystemMessage, UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    Fact,
    SessionRecord,
    SqliteStore,
    StateChange,
    TurnRecord,
)
from agenticx.sessions.store.records import encode_events
from agenticx.sessions.store.sqlite._segments import encode_segments
from agenticx.sessions.store.sqlite.migrations import MIGRATIONS, migrate
from tests.support.commits import append, delete, load

pytestmark = pytest.mark.anyio


def record() -> SessionRecord:
    return SessionRecord(workspace="/tmp", tools=("file_read",), created_at="2026-01-01T00:00:00.000Z")


def token(number: int) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": f"word {number} ", "message_id": "m", "offset": number})


def final() -> RuntimeEvent:
    usage = {"input_tokens": None, "output_tokens": None}
    return RuntimeEvent(EventType.FINAL, {"text": "", "message_id": "m", "reason": "answer", "usage": usage})


async def test_a_database_from_before_search_is_indexed(tmp_path: Path) -> None:
    path, made, named = tmp_path / "sessions.db", record(), replace(record(), name="A name", pinned=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:1])
        for one in (named, made):
            connection.execute("INSERT INTO sessions (id, record) VALUES (?, ?)", (one.id, json.dumps(asdict(one))))
        said = (UserMessage(content="会议"), UserMessage(content="reminder", injected=True), SystemMessage(content="x"))
        for place, message in enumerate(said):
            connection.execute("INSERT INTO messages VALUES (2, ?, ?)", (place, message.model_dump_json()))
    store = SqliteStore(path)
    found = [[one.record.id for one in await store.catalog.search(query)] for query in ("议", "name", "reminder", "x")]
    assert found == [[made.id], [named.id], [], []]
    assert list(await store.catalog.sessions()) == [named, made]
    await delete(store, made.id)
    await store.aclose()


async def test_a_database_from_before_compacted_messages_stores_them_from_now_on(tmp_path: Path) -> None:
    path, made = tmp_path / "sessions.db", record()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:2])
        connection.execute("INSERT INTO sessions (id, record) VALUES (?, ?)", (made.id, json.dumps(asdict(made))))
        said = SystemMessage(content="[compacted] Summary of 9 earlier messages:\nx")
        connection.execute("INSERT INTO messages VALUES (1, 0, ?)", (said.model_dump_json(),))
    store = SqliteStore(path)
    assert list((await store.log.state(made.id)).messages) == [said]
    assert await store.log.compacted_messages(made.id) == ()
    kept = StateChange([], compacted=[said], keep_compacted=0)
    await append(store, made.id, None, [final()], state=kept)
    await store.aclose()
    again = SqliteStore(path)
    assert await again.log.compacted_messages(made.id) == (said,)
    await again.aclose()


def add_frame(
    connection: sqlite3.Connection, position: int, session: int, seq: int, turn: str, type_: str, data: dict[str, Any]
) -> None:
    """Store an event in a row of its own, as it is appended."""
    event = RuntimeEvent(EventType(type_), data)
    (stored,) = encode_events(f"ses_{session}", turn, [event], seq=seq - 1, position=position - 1, ts="2026-01-01")
    (segment,) = encode_segments([stored], compressed=False)
    connection.execute("INSERT INTO fresh VALUES (?, ?, ?, ?)", (position, session, seq, segment.body))


def write_journal_database(path: Path) -> None:
    """Write a database of the release before facts.

    In session 1 a turn waits for an answer, in session 2 one was claimed only, and session 3 is idle.
    """
    journal: list[tuple[int, str, str, str, dict[str, Any]]] = [
        (1, "turn_1", "asked", "cnf_1", {"id": "cnf_1", "digest": "d"}),
        (1, "turn_1", "answered", "cnf_1", {"approved": True}),
        (1, "turn_1", "closed", "cnf_1", {"approved": True, "by": "user"}),
        (1, "turn_1", "began", "turn_1 c", {"call_id": "c", "name": "note", "arguments": {}}),
        (1, "turn_1", "process", "turn_1 c", {"call_id": "c", "pid": 7}),
        (1, "turn_1", "asked", "cnf_2", {"id": "cnf_2", "digest": "d"}),
        (1, "turn_9", "posted", "ses_1 m", {"message": {}}),
        (2, "turn_2", "named", "turn_2", {"name": "x"}),
        (3, "turn_3", "taken", "ses_3 m", {"state": "started", "after_seq": 0}),
        (3, "turn_3", "told", "turn_3", {}),
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, "2026-01-01T00:00:00.000Z", MIGRATIONS[:3])
        for number in (1, 2, 3):
            made = replace(record(), id=f"ses_{number}")
            running = f"turn_{number}" if number < 3 else None
            connection.execute(
                "INSERT INTO sessions (id, record, running) VALUES (?, ?, ?)",
                (made.id, json.dumps(asdict(made)), running),
            )
        turns = [
            (1, "turn_1", "c1", "one", "", 1),
            (2, "turn_2", "c2", "two", "", None),
            (3, "turn_3", "c3", "x", "", 0),
        ]
        connection.executemany(
            "INSERT INTO turns (session, id, client_turn_id, input, attached, after_seq) VALUES (?, ?, ?, ?, ?, ?)",
            turns,
        )
        connection.executemany(
            "INSERT INTO journal (session, turn, kind, key, data) VALUES (?, ?, ?, ?, ?)",
            ((*entry, json.dumps(data)) for *entry, data in journal),
        )
        add_frame(connection, 1, 1, 1, "turn_0", "token", token(0).data)
        for seq, id_ in ((2, "cnf_1"), (3, "cnf_2")):
            add_frame(
                connection, seq, 1, seq, "turn_1", "confirm_required", {"id": id_, "question": "?", "context": {}}
            )


async def test_the_facts_of_a_journal_are_those_of_the_sessions(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    write_journal_database(path)
    store = SqliteStore(path)
    loaded = await load(store, "ses_1")
    assert loaded.running == TurnRecord(id="turn_1", session_id="ses_1", input="one", client_turn_id="c1", after_seq=1)
    assert [(fact.kind, fact.key) for fact in loaded.open_facts] == [
        ("question_asked", "cnf_1"),
        ("question_answered", "cnf_1"),
        ("question_closed", "cnf_1"),
        ("call_began", "turn_1 c"),
        ("process_started", "turn_1 c"),
        ("question_asked", "cnf_2"),
        ("message_posted", "ses_1 m"),
    ]
    assert (loaded.open_facts[3].data["name"], loaded.facts_damaged, loaded.last_seq) == ("note", False, 3)
    (question,) = await store.catalog.open_questions()  # its fact does not say where the event is
    assert (question.seq, json.loads(question.frame_json)["data"]["id"]) == (3, "cnf_2")
    assert await store.catalog.session_of("question_asked", "cnf_2") == "ses_1"
    assert await store.catalog.running_turns(["ses_1", "ses_2", "ses_3"]) == {"ses_1": "turn_1"}
    assert [session_id async for session_id in store.ownership.orphans()] == ["ses_2"]  # `load` has claimed `ses_1`

    claimed = await store.ownership.claim("ses_2")
    assert await claimed.turn(client_turn_id="c2") is None
    again = await claimed.load()
    assert (again.running, [fact.kind for fact in again.open_facts]) == (None, ["name_derived"])
    turn = TurnRecord(id="turn_5", session_id="ses_2", input="two", client_turn_id="c2")
    announced = Fact(kind="name_announced", key="turn_2", turn_id="turn_2")
    await claimed.commit(Commit(turn_id="turn_5", events=[token(0)], begins=turn, facts=[announced]))
    assert (await claimed.load()).open_facts == []
    idle = await store.ownership.claim("ses_3")
    assert await idle.fact("message_taken", "ses_3 m") is not None
    assert await idle.fact("name_announced", "turn_3") is not None
    await store.aclose()


async def test_a_database_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await SqliteStore(path).aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migrations VALUES ('9999 what is to come', '2027-01-01T00:00:00Z')")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer AgenticX"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"sessions.db", "sessions.db.owner"}
