"""Damage in the database that affects one session only."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound, StoreError
from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    DamagedData,
    Hub,
    Position,
    SessionRecord,
    SqliteStore,
    StateChange,
    TurnRecord,
    TurnRequest,
    fork,
    read_messages,
)
from agenticx.sessions.log.records import CallBegan, NameDerived
from agenticx.sessions.store.base import find_fact
from agenticx.sessions.store.sqlite.projections import check_projections
from agenticx.settings import load_settings
from tests.support.commits import add_fact, append, delete, load, update
from tests.support.stores import began, orphans, posted
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

STARTED = RuntimeEvent(EventType.TURN_STARTED, {"input": "hi", "model": "demo", "message_id": "u"})
FINAL = RuntimeEvent(
    EventType.FINAL,
    {
        "text": "",
        "message_id": "m",
        "reason": "answer",
        "usage": {"input_tokens": None, "output_tokens": None},
    },
)


def token(number: int) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": f"word {number} ", "message_id": "m", "offset": number})


def damage(home: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(home / "sessions.db", isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount == 1


def hub_of(store: SqliteStore, home: Path) -> Hub:
    settings = load_settings({"home": home}, environ={})
    return Hub(
        store, models=lambda _: ScriptedModel(["fine"] * 3), tools=lambda _: [], settings=settings, clock=PatientClock()
    )


async def left_running(home: Path, count: int) -> list[str]:
    """Create sessions whose process died in a turn, and a queued message in each."""
    store = SqliteStore(home / "sessions.db")
    ids: list[str] = []
    for number in range(count):
        record = SessionRecord(name=str(number), workspace=str(home), created_at="2026-01-01T00:00:00.000Z")
        await store.create(record)
        turn = TurnRecord(id=f"turn_{number}", session_id=record.id, input="hi")
        await append(store, record.id, turn.id, [STARTED, token(0)], begins=turn)
        await add_fact(store, record.id, began(f"b{number}", turn.id))
        ids.append(record.id)
    await store.aclose()
    return ids


SESSION = "(SELECT number FROM sessions WHERE id = ?)"
WRONG_PART = f"INSERT INTO parts VALUES ({SESSION}, 'todos', 100, 1, 0)"  # its record is of another kind
OF_SESSION = f"session = {SESSION}"
EVENTS = f"session = {SESSION} AND body <> x''"
FACTS = f"session = {SESSION} AND kind = 'call_began'"
DAMAGES = {
    "an event": f"UPDATE commits SET body = CAST(replace(body, '{{', '!') AS BLOB) WHERE {EVENTS}",
    "a row of the log": f"UPDATE commits SET body = x'78' WHERE {EVENTS}",
    "the facts": f"UPDATE records SET data = '{{}}' WHERE {FACTS}",
    "the facts' form": f"UPDATE records SET data = '{{' WHERE {FACTS}",
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_a_cut_turn_that_cannot_be_read_is_ended_and_all_others_are_too(tmp_path: Path, what: str) -> None:
    one, two, three = await left_running(tmp_path, 3)
    damage(tmp_path, DAMAGES[what], two)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    await hub.recover()
    for session_id in (one, three):
        events = await store.log.read(session_id, 2, 10)
        assert json.loads(events[-1].frame_json)["data"]["code"] == "interrupted"
    turn = await hub.start(two, TurnRequest(input="again"))
    assert turn.after_seq is not None
    before = await store.log.read(two, turn.after_seq - 1, 1)
    assert json.loads(before[0].frame_json)["type"] == "error"
    assert before[0].terminal
    await hub.close()
    await store.aclose()


async def test_a_conversation_that_cannot_be_read_refuses_messages_and_no_other_does(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, WRONG_PART, one)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    await hub.recover()
    with pytest.raises(StoreError, match="damaged"):
        await hub.start(one, TurnRequest(input="again"))
    await hub.start(two, TurnRequest(input="again"))
    await hub.close()
    await store.aclose()


async def test_a_record_that_cannot_be_read_is_left_out_of_lists(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, "UPDATE sessions SET record = '{' WHERE id = ?", one)
    store = SqliteStore(tmp_path / "sessions.db")
    assert [one.id for one in await store.catalog.sessions()] == [two]
    assert [found.id for found in await store.catalog.sessions(query="0")] == []
    with pytest.raises(StoreError, match="damaged"):
        await store.catalog.get(one)
    await store.aclose()


async def test_an_event_that_cannot_be_read_is_left_out_of_the_last_ones(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, DAMAGES["a row of the log"], one)
    store = SqliteStore(tmp_path / "sessions.db")
    assert list(await store.log.last_events([one, two])) == [two]
    await store.aclose()


async def test_reading_a_damaged_packed_row_raises_a_store_error(tmp_path: Path) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    store = SqliteStore(tmp_path / "sessions.db")
    await append(store, session_id, "turn_0", [FINAL])
    await store.aclose()
    damage(
        tmp_path,
        "UPDATE segments SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB) WHERE last_seq > 0",
    )
    store = SqliteStore(tmp_path / "sessions.db")
    for reading in (
        store.log.read(session_id, 0, 10),
        read_messages(store.log, session_id),
        fork(store, session_id, now="2026-01-01T00:00:00.000Z"),
    ):
        with pytest.raises(StoreError, match="damaged"):
            await reading
    await store.aclose()


FIRST_TURN = "session = 1 AND last_seq = 3"
POSITIONS = {
    "of a segment's first event": f"UPDATE segments SET first_position = first_position + 1 WHERE {FIRST_TURN}",
    "of a segment's last event": f"UPDATE segments SET last_position = last_position + 1 WHERE {FIRST_TURN}",
    "of a commit": "UPDATE commits SET position = position + 70 WHERE session = 1",
}


@pytest.mark.parametrize("what", POSITIONS)
async def test_a_row_with_other_positions_than_its_events_is_left_out_of_the_log_of_all_sessions(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    for number in range(2):
        made = SessionRecord(name=str(number), workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        turn = TurnRecord(id=f"turn_{number}", session_id=made.id, input="hi")
        await append(store, made.id, turn.id, [STARTED, token(0), FINAL], begins=turn)
        if "commit" in what:
            turn = TurnRecord(id=f"open_{number}", session_id=made.id, input="hi")
            await append(store, made.id, turn.id, [STARTED], begins=turn)
    await store.aclose()
    damage(tmp_path, POSITIONS[what])
    store = SqliteStore(tmp_path / "sessions.db")
    positions = [event.position for event in await store.log.read_all(Position(0), 100)]
    assert positions == sorted(positions)
    assert len(positions) == (7 if "commit" in what else 3)
    assert "corrupt row skipped" in caplog.text
    await store.aclose()


@pytest.mark.parametrize("positions", ["0, 0", "70, 1", "'x', 1"])
async def test_positions_that_no_segment_can_have_are_restored_by_the_next_start(
    tmp_path: Path, positions: str
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = SessionRecord(name="one", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(made)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="hi")
    await append(store, made.id, turn.id, [STARTED, token(0), FINAL], begins=turn)
    stored = await store.log.read_all(Position(0), 100)
    await store.aclose()
    damage(tmp_path, f"UPDATE segments SET (first_position, last_position) = ({positions}) WHERE last_seq > 0")
    assert len(check_projections(tmp_path / "sessions.db")) == 1
    store = SqliteStore(tmp_path / "sessions.db")
    assert list(await store.log.read_all(Position(0), 100)) == list(stored)
    assert await store.log.position() == stored[-1].position
    await store.aclose()
    assert check_projections(tmp_path / "sessions.db") == []


async def test_a_turn_ends_though_the_rows_before_it_cannot_be_packed(tmp_path: Path) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    damage(tmp_path, "UPDATE commits SET body = x'78' WHERE body <> x''")
    store = SqliteStore(tmp_path / "sessions.db")
    await append(store, session_id, "turn_0", [FINAL])
    (event,) = await store.log.read(session_id, 2, 10)
    assert event.terminal
    assert await store.log.turn(session_id) is None
    assert (await load(store, session_id)).main_turn is None
    await store.aclose()


async def test_an_undecodable_byte_stops_neither_search_nor_usage_and_no_text_is_logged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    used = {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1}
    for name in ("one", "two"):
        made = SessionRecord(name=name, workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        kept = StateChange([UserMessage(content=f"lorem secret {name}")])
        await append(store, made.id, None, [RuntimeEvent(EventType.USAGE, used), FINAL], state=kept)
    await store.aclose()
    damage(tmp_path, "UPDATE texts SET text = CAST(CAST(text AS BLOB) || x'ff' AS TEXT) WHERE text LIKE '%secret one'")
    damage(tmp_path, "UPDATE usage SET model = CAST(x'ff' AS TEXT) WHERE session = 1")
    store = SqliteStore(tmp_path / "sessions.db")
    assert [found.record.name for found in await store.catalog.sessions(query="lorem")] == ["two", "one"]
    assert sum(spent.counts.calls for spent in await store.catalog.usage()) == 2
    await store.aclose()
    damage(tmp_path, "UPDATE records SET data = data || ']' WHERE session = 1 AND kind = 'message_added'")
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(StoreError) as refused:
        await store.log.state((await store.catalog.sessions())[1].id)
    assert "damaged" in str(refused.value)
    assert "secret" not in str(refused.value)
    await store.aclose()


RECORDS = {
    "no object": "5",
    "no workspace": "json_remove(record, '$.workspace')",
    "a number for its model": "json_set(record, '$.model', 5)",
    "a list for its name": "json_set(record, '$.name', json('[1]'))",
    "an unknown mode": "json_set(record, '$.permission_mode', 'yolo')",
    "a text for its tools": "json_set(record, '$.tools', json('[1]'))",
    "a number for pinned": "json_set(record, '$.pinned', 5)",
    "a workspace that is no path": "json_set(record, '$.workspace', char(97, 0, 98))",
}


@pytest.mark.parametrize("what", RECORDS)
async def test_a_record_with_wrong_field_values_is_damaged(tmp_path: Path, what: str) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, f"UPDATE sessions SET record = {RECORDS[what]} WHERE id = ?", one)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    assert [one.id for one in await store.catalog.sessions()] == [two]
    for asking in (store.catalog.get(one), hub.start(one, TurnRequest(input="x")), fork(store, one, now="2026-01-01")):
        with pytest.raises(StoreError, match="damaged"):
            await asking
    await hub.close()
    await store.aclose()


PARTS = {
    "a list that is an object": ("todos", "{}"),
    "a version without a size": ('files:"/tmp/a"', "[1]"),
    "a count that is missing": ("front", "[1]"),
    "a key that is no JSON": ("files:", "[1,2]"),
    "a revision without its digest": ('revisions:["a.html",1]', "[5]"),
    "an option that is no row": ("options:1", "1"),
}


@pytest.mark.parametrize("what", PARTS)
async def test_a_part_of_the_state_with_another_value_is_damage_for_a_fork_too(tmp_path: Path, what: str) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    name, text = PARTS[what]
    record = json.dumps({"place": 100, "text": text})
    damage(tmp_path, "INSERT INTO records VALUES (1, 100, 0, 0, '', 'part_changed', ?, ?)", name, record)
    damage(tmp_path, "INSERT INTO parts VALUES (1, ?, 100, 100, 0)", name)
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(StoreError, match="damaged"):
        await fork(store, session_id, now="2026-01-01T00:00:00.000Z")
    await store.aclose()


async def test_a_read_after_one_of_damaged_data_sees_what_was_stored_since(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    made = SessionRecord(name="one", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(made)
    said = [UserMessage(content=f"word {number}") for number in range(3)]
    await append(store, made.id, None, [FINAL], state=StateChange(said))
    damage(tmp_path, "UPDATE records SET data = '5' WHERE record_index = 0 AND kind = 'message_added'")
    with pytest.raises(StoreError, match="damaged") as raised:
        await store.log.state(made.id)
    await update(store, replace(made, name="two"))
    assert raised.value is not None  # an error that is kept may keep its statement
    assert (await store.catalog.get(made.id)).name == "two"
    await store.aclose()


USAGES = {
    "a model that is no text": ("model = x'ff'", 2),
    "a count that is no number": ("calls = 'many'", 1),
    "a cost that is no number": ("cost_usd = 'dear'", 1),
}


@pytest.mark.parametrize("what", USAGES)
async def test_unreadable_usage_does_not_hide_the_rest(tmp_path: Path, what: str) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    used = RuntimeEvent(EventType.USAGE, {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1})
    ids: list[str] = []
    for name in ("one", "two"):
        made = SessionRecord(name=name, workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        await append(store, made.id, None, [used])
        ids.append(made.id)
    await store.aclose()
    change, calls = USAGES[what]
    damage(tmp_path, f"UPDATE usage SET {change} WHERE session = 1")
    store = SqliteStore(tmp_path / "sessions.db")
    assert sum(spent.counts.calls for spent in await store.catalog.usage()) == calls
    await append(store, ids[0], None, [used])
    assert sum(spent.counts.calls for spent in await store.catalog.usage()) == calls + 1
    await store.aclose()


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("DELETE FROM meta WHERE key = 'log_id'", "log_id"),
        ("UPDATE meta SET value = 'x' WHERE key = 'position'", "posi"),
    ],
)
async def test_a_database_with_damaged_metadata_is_refused_with_a_message(
    tmp_path: Path, statement: str, missing: str
) -> None:
    await left_running(tmp_path, 1)
    damage(tmp_path, statement)
    with pytest.raises(StoreError, match=f"damaged: .*{missing}"):
        SqliteStore(tmp_path / "sessions.db")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE segments SET last_position = 9223372036854775807 WHERE session = 1",
        "UPDATE meta SET value = '9223372036854775807' WHERE key = 'position'",
        "UPDATE sessions SET record = replace(printf('%03000d', 0), '0', '[') WHERE number = 1",
        "UPDATE records SET data = replace(printf('%0100000d', 0), '0', '[') WHERE session = 1",
        "UPDATE segments SET last_rev = 9223372036854775807 WHERE session = 1",
        "UPDATE usage SET input_tokens = 9223372036854775807 WHERE session = 1",
    ],
)
async def test_values_without_measure_stop_one_session_only(tmp_path: Path, statement: str) -> None:
    one, two = await left_running(tmp_path, 2)
    store = SqliteStore(tmp_path / "sessions.db")
    used = {"input_tokens": 1, "output_tokens": 1, "model": "m", "round": 1}
    for session_id in (one, two):
        await append(store, session_id, None, [RuntimeEvent(EventType.USAGE, used), FINAL])
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount >= 1
    store = SqliteStore(tmp_path / "sessions.db")
    with suppress(DamagedData):
        await append(store, one, None, [RuntimeEvent(EventType.USAGE, used), FINAL])
    assert await append(store, two, None, [RuntimeEvent(EventType.USAGE, used), FINAL])
    assert two in [listed.id for listed in await store.catalog.sessions()]
    await delete(store, one)
    assert await append(store, two, None, [FINAL])
    await store.aclose()


async def test_a_completely_unreadable_session_can_be_deleted(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    for statement in (
        "UPDATE sessions SET record = '{' WHERE id = ?",
        WRONG_PART,
        f"UPDATE commits SET body = x'78' WHERE {EVENTS}",
        f"UPDATE records SET data = '{{' WHERE {FACTS}",
        f"UPDATE records SET data = '{{' WHERE session = {SESSION} AND kind = 'turn_accepted'",
        f"UPDATE texts SET text = x'ff' WHERE session = {SESSION}",
    ):
        damage(tmp_path, statement, one)
    store = SqliteStore(tmp_path / "sessions.db")
    await delete(store, one)
    with pytest.raises(SessionNotFound):
        await store.catalog.get(one)
    assert [found.id for found in await store.catalog.sessions(query="1")] == [two]
    await store.aclose()


UNREADABLE = {
    "its record": "UPDATE sessions SET record = '{' WHERE id = ?",
    "its record's fields": "UPDATE sessions SET record = json_set(record, '$.model', 5) WHERE id = ?",
    "its state": WRONG_PART,
    "its messages": f"INSERT INTO messages VALUES ({SESSION}, 0, 1, 0)",
    "its log": DAMAGES["a row of the log"],
    "its facts": DAMAGES["the facts' form"],
    "its last commit": f"DELETE FROM commits WHERE position = (SELECT max(position) FROM commits WHERE {OF_SESSION})",
    "its first commit": f"DELETE FROM segments WHERE {OF_SESSION}",
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_session_that_cannot_be_read_can_be_deleted(tmp_path: Path, what: str) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, UNREADABLE[what], one)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    await hub.recover()
    await hub.delete(one)
    with pytest.raises(SessionNotFound):
        await store.log.head(one)
    with pytest.raises(SessionNotFound):
        await hub.delete(one)
    assert [one.id for one in await store.catalog.sessions()] == [two]
    await hub.close()
    await store.aclose()


async def test_a_log_without_its_last_commit_takes_no_message_and_says_why(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, UNREADABLE["its last commit"], one)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    await hub.recover()
    for refused in (hub.start(one, TurnRequest(input="again")), hub.change(one, {"name": "new"})):
        with pytest.raises(DamagedData, match="commits after number 2 are missing"):
            await refused
    assert [json.loads(event.frame_json)["type"] for event in await store.log.read(one, 0, 10)] == [
        "turn_started",
        "token",
    ]
    await hub.start(two, TurnRequest(input="again"))
    await hub.close()
    await store.aclose()


WRONG_VALUES = {
    "commits": ("session", "rev", "last_seq", "commit_id", "body"),
    "turns": ("id", "is_open_child", "rev"),
    "records": ("seq", "kind", "key", "turn", "data"),
    "facts": ("turn", "kind", "key", "rev"),
    "sessions": ("record", "pinned", "running"),
    "messages": ("message_index", "rev"),
    "parts": ("name", "place", "rev"),
    "texts": ("message_id", "role", "text"),
    "segments": ("first_position", "last_position", "last_rev", "last_seq"),
}


KEYS = {
    "records": "session, rev, record_index",
    "messages": "session, message_index",
    "parts": "session, name",
    "segments": "session, last_seq, last_rev",
}


@pytest.mark.parametrize("value", ["x'00ff'", "'abc'", "1.5"])
@pytest.mark.parametrize(
    ("table", "column"), [(table, name) for table, names in WRONG_VALUES.items() for name in names]
)
@pytest.mark.cases(quick=8)
async def test_a_value_of_a_wrong_type_is_reported_as_damage_and_the_session_can_be_deleted(
    tmp_path: Path, table: str, column: str, value: str
) -> None:
    one, two = await left_running(tmp_path, 2)
    store = SqliteStore(tmp_path / "sessions.db")
    parts = {"todos": "[]"}
    await append(store, one, None, [FINAL], state=StateChange([UserMessage(content="say alpha")], parts=parts))
    await add_fact(store, one, posted("p"))
    await store.aclose()
    rows = "number = " + SESSION if table == "sessions" else OF_SESSION
    key = KEYS.get(table, "rowid")
    last = f"({key}) IN (SELECT {key} FROM {table} WHERE {rows} ORDER BY {key.split(', ')[-1]} DESC LIMIT 1)"
    damage(tmp_path, f"UPDATE {table} SET {column} = {value} WHERE {last}", one)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    with suppress(StoreError):
        await hub.recover()
    for use in (
        *(hub.start(one, TurnRequest(input="again")), hub.change(one, {"name": "new"}), hub.messages(one)),
        *(
            hub.open_requests(),
            store.catalog.sessions(query="alpha"),
            store.catalog.usage(),
            store.log.read_all(Position(0), 9),
        ),
    ):
        with suppress(StoreError):
            await use
    await hub.start(two, TurnRequest(input="again"))
    await hub.delete(one)
    with pytest.raises(SessionNotFound):
        await store.log.head(one)
    await hub.close()
    await store.aclose()


QUEUED = RuntimeEvent(EventType.QUEUED, {"turn_id": "turn_9", "message_id": "p", "input": "later"})


@pytest.mark.parametrize("announced", [True, False])
async def test_a_queued_message_that_cannot_be_read_is_handed_back_and_reported_once(
    tmp_path: Path, announced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    store = SqliteStore(tmp_path / "sessions.db")
    name = NameDerived(key="turn_0", name="new")
    await append(store, session_id, None, [QUEUED] if announced else [], facts=[posted("p", "turn_9"), name])
    await store.aclose()
    damaged = f"UPDATE records SET data = '{{' WHERE {OF_SESSION} AND kind = ?"
    for kind in ("message_posted", "name_derived"):
        damage(tmp_path, damaged, session_id, kind)
    for reported in (["message_posted", "name_derived"], []):
        caplog.clear()
        store = SqliteStore(tmp_path / "sessions.db")
        hub = hub_of(store, tmp_path)
        await hub.recover()
        events = [json.loads(event.frame_json) for event in await store.log.read(session_id, 0, 10)]
        assert await orphans(store) == []
        await hub.close()
        await store.aclose()
        outline = ["turn_started", "token", *(["queued"] if announced else []), "state", "error"]
        assert [event["type"] for event in events] == [*outline, *(["handed_back"] if announced else [])]
        if announced:
            assert events[-1]["data"] == QUEUED.data
        text = caplog.text
        assert ("handing back its text" in text) == (announced and bool(reported))
        assert ("was given up" in text) == bool(reported)


async def with_texts(home: Path) -> list[str]:
    """Create two sessions, each with a word of its own and one in both."""
    store = SqliteStore(home / "sessions.db")
    ids: list[str] = []
    for name in ("alpha", "beta"):
        made = SessionRecord(name=f"about {name}", workspace=str(home), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        await append(
            store, made.id, None, [FINAL], state=StateChange([UserMessage(content=f"say {name}", message_id=name)])
        )
        ids.append(made.id)
    await store.aclose()
    return ids


INDEX_DAMAGES = {
    "all its blocks": "UPDATE found_data SET block = x'00'",
    "all its sizes": "UPDATE found_data SET block = x'ffffffffffffffffffffffffffffffffffffffff'",
    "its blocks gone": "DELETE FROM found_data",
    "its blocks' table gone": "DROP TABLE found_data",
    "its form": "UPDATE found_config SET v = 99",
    "its texts gone": "DROP TABLE texts",
    "texts of another form": "ALTER TABLE texts RENAME COLUMN text TO words",
}


@pytest.mark.parametrize("what", INDEX_DAMAGES)
async def test_a_damaged_index_is_rebuilt_at_the_start(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await with_texts(tmp_path)
    break_index(tmp_path, INDEX_DAMAGES[what])
    store = SqliteStore(tmp_path / "sessions.db")
    assert ["search index damaged; rebuilding" in record.getMessage() for record in caplog.records] == [True]
    assert [found.id for found in await store.catalog.sessions(query="say")] == [two, one]
    assert [found.id for found in await store.catalog.sessions(query="about alpha")] == [one]
    await update(store, replace(await store.catalog.get(one), name="renamed"))
    await append(store, two, None, [FINAL], state=StateChange([UserMessage(content="more")], keep_messages=1))
    assert [found.id for found in await store.catalog.sessions(query="renamed")] == [one]
    assert [found.id for found in await store.catalog.sessions(query="more")] == [two]
    await delete(store, one)
    await store.aclose()
    caplog.clear()
    await SqliteStore(tmp_path / "sessions.db").aclose()
    assert caplog.records == []


BROKEN_BLOCKS = ["x'00'", "x'0000000000000000000000000000'", f"x'{'ff' * 20}'", f"x'{'7f' * 20}'", "randomblob(20)"]


@pytest.mark.parametrize("block", BROKEN_BLOCKS)
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.cases(quick=3)
async def test_an_index_damaged_in_use_stops_searches_only(
    tmp_path: Path, leaves: bool, block: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await with_texts(tmp_path)
    if leaves:  # what is looked at in the start is whole
        break_index(tmp_path, f"UPDATE found_data SET block = {block} WHERE id > 10")
    store = SqliteStore(tmp_path / "sessions.db")
    if not leaves:
        break_index(tmp_path, f"UPDATE found_data SET block = {block}")
    for number in range(20):
        kept = StateChange([UserMessage(content=f"word {number}", message_id=f"m{number}")], keep_messages=number + 1)
        await append(store, two, None, [FINAL], state=kept)
        await update(store, replace(await store.catalog.get(one), name=f"renamed {number}"))
    texts = ["beta", *(f"m{number}" for number in range(20))]
    await append(store, two, None, [FINAL], state=StateChange(keep_messages=21, removed_texts=texts))
    with suppress(DamagedData):
        await store.catalog.sessions(query="say")
    assert sum("is damaged" in record.getMessage() for record in caplog.records) <= 1
    break_index(tmp_path, "DELETE FROM meta WHERE key = 'search'")  # damage need not show
    made = SessionRecord(name="gamma", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(made)
    await delete(store, made.id)
    await store.aclose()
    store = SqliteStore(tmp_path / "sessions.db")
    assert [found.id for found in await store.catalog.sessions(query="renamed 19")] == [one]
    assert [found.id for found in await store.catalog.sessions(query="say")] == [one]
    assert [await store.catalog.sessions(query=gone) for gone in ("renamed 18", "gamma", "word")] == [[], [], []]
    await store.aclose()


def break_index(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "sessions.db", isolation_level=None)) as connection:
        connection.execute(statement)


async def test_unreadable_facts_are_reported_and_those_of_other_sessions_are_read(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    store = SqliteStore(tmp_path / "sessions.db")
    message = posted("p", "turn_9")
    await add_fact(store, one, message)
    assert not (await load(store, one)).facts_damaged
    damage(tmp_path, f"UPDATE records SET data = '{{' WHERE kind = 'call_began' AND session = {SESSION}", one)
    loaded = await load(store, one)
    assert (loaded.facts_damaged, loaded.open_facts) == (True, [message])
    again = began("b0", "turn_0")
    await append(store, one, "turn_0", [token(1)], facts=[again])  # the first one is kept
    assert (await load(store, one)).facts_damaged
    damage(tmp_path, f"UPDATE records SET data = '[]' WHERE kind = 'message_posted' AND session = {SESSION}", one)
    assert (await load(store, one)).open_facts == []
    other = await load(store, two)
    assert (other.facts_damaged, [fact.key for fact in other.open_facts]) == (False, ["b1"])
    await append(store, one, "turn_0", [FINAL])
    assert not (await load(store, one)).facts_damaged  # what no running turn needs
    await store.aclose()


async def test_a_commit_that_the_database_refuses_stores_nothing_and_others_are_stored(tmp_path: Path) -> None:
    ids = await left_running(tmp_path, 3)
    store = SqliteStore(tmp_path / "sessions.db")
    leases = [await store.ownership.claim(session_id) for session_id in ids]
    taken = TurnRecord(id="turn_9", session_id=ids[0], input="hi", client_turn_id="same")
    other = TurnRecord(id="turn_8", session_id=ids[0], input="hi", client_turn_id="same")
    await leases[0].commit(Commit(turn_id="turn_9", events=[STARTED], begins=taken))
    bad = Commit(turn_id="turn_8", events=[token(1)], begins=other, facts=[began("k", "t")])
    commits = (Commit(events=[token(1)]), Commit(events=[token(1)]))
    results = await asyncio.gather(
        leases[1].commit(commits[0]), leases[0].commit(bad), leases[2].commit(commits[1]), return_exceptions=True
    )
    assert [isinstance(result, StoreError) for result in results] == [False, True, False]
    assert [await store.log.head(session_id) for session_id in ids] == [3, 3, 3]
    assert (await leases[0].load()).main_turn == replace(taken, after_seq=2)
    assert await find_fact(store.log, ids[0], CallBegan, "k") is None
    (stored,) = await leases[0].commit(Commit(turn_id="turn_9", events=[token(2)]))
    assert stored.seq == 4
    await store.aclose()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_damaged_write_ahead_log_is_logged(
    tmp_path: Path, damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await left_running(tmp_path / "first", 1)
    store = SqliteStore(tmp_path / "first" / "sessions.db")
    for number in range(5):
        await append(store, (await store.catalog.sessions())[0].id, "turn_0", [token(number)])
    (tmp_path / "second").mkdir()
    for suffix in ("", "-wal"):  # as a killed process leaves them
        content = bytearray((tmp_path / "first" / f"sessions.db{suffix}").read_bytes())
        if damaged and suffix:
            content[len(content) // 2] ^= 1
        (tmp_path / "second" / f"sessions.db{suffix}").write_bytes(content)
    await store.aclose()
    again = SqliteStore(tmp_path / "second" / "sessions.db")
    assert any("write-ahead log damaged" in record.getMessage() for record in caplog.records) == damaged
    await again.aclose()
