"""Damage in the database that affects one session only."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx.errors import SessionNotFound, StoreError
from agenticx.llms.scripted import ScriptedModel
from agenticx.messages import UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import Hub, JournalEntry, SessionRecord, SessionState, SqliteStore, TurnRecord, TurnRequest
from agenticx.sessions.history.fork import fork
from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.store.damage import DamagedData
from agenticx.settings import load_settings
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
        await store.claim(turn)
        await store.append(record.id, turn.id, [STARTED, token(0)], expected_seq=0)
        began = JournalEntry(
            kind="began", key=f"b{number}", session_id=record.id, turn_id=turn.id, data={"call_id": "c"}
        )
        await store.add_journal_entry(began)
        ids.append(record.id)
    await store.aclose()
    return ids


SESSION = "(SELECT number FROM sessions WHERE id = ?)"
DAMAGES = {
    "an event": f"UPDATE fresh SET body = CAST(replace(body, '{{', '!') AS BLOB) WHERE session = {SESSION}",
    "a row of the log": f"UPDATE fresh SET body = x'78' WHERE session = {SESSION}",
    "the journal": f"UPDATE journal SET data = '{{}}' WHERE session = {SESSION}",
    "the journal's form": f"UPDATE journal SET data = '{{' WHERE session = {SESSION}",
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_a_cut_turn_that_cannot_be_read_is_ended_and_all_others_are_too(tmp_path: Path, what: str) -> None:
    one, two, three = await left_running(tmp_path, 3)
    damage(tmp_path, DAMAGES[what], two)
    store = SqliteStore(tmp_path / "sessions.db")
    hub = hub_of(store, tmp_path)
    await hub.recover()
    for session_id in (one, three):
        events = await store.read(session_id, 2, 10)
        assert json.loads(events[-1].frame_json)["data"]["code"] == "interrupted"
    turn = await hub.start(two, TurnRequest(input="again"))
    assert turn.after_seq is not None
    before = await store.read(two, turn.after_seq - 1, 1)
    assert json.loads(before[0].frame_json)["type"] == "error"
    assert before[0].terminal
    await hub.close()
    await store.aclose()


async def test_a_conversation_that_cannot_be_read_refuses_messages_and_no_other_does(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, "UPDATE sessions SET state = '{' WHERE id = ?", one)
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
    assert [record.id for record in await store.sessions()] == [two]
    assert [found.record.id for found in await store.search("0")] == []
    with pytest.raises(StoreError, match="damaged"):
        await store.get(one)
    await store.aclose()


async def test_reading_a_damaged_packed_row_raises_a_store_error(tmp_path: Path) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    store = SqliteStore(tmp_path / "sessions.db")
    await store.append(session_id, "turn_0", [FINAL], expected_seq=2)
    await store.aclose()
    damage(tmp_path, "UPDATE events SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB)")
    store = SqliteStore(tmp_path / "sessions.db")
    for reading in (
        store.read(session_id, 0, 10),
        read_messages(store, session_id),
        fork(store, session_id, now="2026-01-01T00:00:00.000Z"),
    ):
        with pytest.raises(StoreError, match="damaged"):
            await reading
    await store.aclose()


async def test_a_turn_ends_though_the_rows_before_it_cannot_be_packed(tmp_path: Path) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    damage(tmp_path, "UPDATE fresh SET body = x'78'")
    store = SqliteStore(tmp_path / "sessions.db")
    await store.append(session_id, "turn_0", [FINAL], expected_seq=2)
    (event,) = await store.read(session_id, 2, 10)
    assert event.terminal
    assert await store.unfinished_turns() == []
    await store.aclose()


async def test_an_undecodable_byte_stops_neither_search_nor_usage_and_no_text_is_logged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    used = {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1}
    for name in ("one", "two"):
        made = SessionRecord(name=name, workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        kept = SessionState([UserMessage(content=f"lorem secret {name}")])
        await store.append(made.id, None, [RuntimeEvent(EventType.USAGE, used), FINAL], expected_seq=0, state=kept)
    await store.aclose()
    damage(tmp_path, "UPDATE said SET text = CAST(CAST(text AS BLOB) || x'ff' AS TEXT) WHERE text LIKE '%secret one'")
    damage(tmp_path, "UPDATE usage SET model = CAST(x'ff' AS TEXT) WHERE session = 1")
    store = SqliteStore(tmp_path / "sessions.db")
    assert [found.record.name for found in await store.search("lorem")] == ["two", "one"]
    assert sum(spent.counts.calls for spent in await store.usage()) == 2
    await store.aclose()
    damage(tmp_path, "UPDATE messages SET message = message || ']' WHERE session = 1")
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(StoreError) as refused:
        await store.session_state((await store.sessions())[1].id)
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
    assert [record.id for record in await store.sessions()] == [two]
    for asking in (store.get(one), hub.start(one, TurnRequest(input="x")), fork(store, one, now="2026-01-01")):
        with pytest.raises(StoreError, match="damaged"):
            await asking
    await hub.close()
    await store.aclose()


async def test_a_state_that_is_no_object_is_damage_for_a_fork_too(tmp_path: Path) -> None:
    (session_id,) = await left_running(tmp_path, 1)
    damage(tmp_path, "UPDATE sessions SET state = '[1]'")
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises(StoreError, match="damaged"):
        await fork(store, session_id, now="2026-01-01T00:00:00.000Z")
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
        await store.append(made.id, None, [used], expected_seq=0)
        ids.append(made.id)
    await store.aclose()
    change, calls = USAGES[what]
    damage(tmp_path, f"UPDATE usage SET {change} WHERE session = 1")
    store = SqliteStore(tmp_path / "sessions.db")
    assert sum(spent.counts.calls for spent in await store.usage()) == calls
    await store.append(ids[0], None, [used], expected_seq=1)
    assert sum(spent.counts.calls for spent in await store.usage()) == calls + 1
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


async def test_a_completely_unreadable_session_can_be_deleted(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    for statement in (
        "UPDATE sessions SET record = '{', state = '[1]' WHERE id = ?",
        f"UPDATE fresh SET body = x'78' WHERE session = {SESSION}",
        f"UPDATE journal SET data = '{{' WHERE session = {SESSION}",
        f"UPDATE said SET text = x'ff' WHERE session = {SESSION}",
    ):
        damage(tmp_path, statement, one)
    store = SqliteStore(tmp_path / "sessions.db")
    await store.delete(one)
    with pytest.raises(SessionNotFound):
        await store.get(one)
    assert [found.record.id for found in await store.search("1")] == [two]
    await store.aclose()


UNREADABLE = {
    "its record": "UPDATE sessions SET record = '{' WHERE id = ?",
    "its record's fields": "UPDATE sessions SET record = json_set(record, '$.model', 5) WHERE id = ?",
    "its state": "UPDATE sessions SET state = '[1]' WHERE id = ?",
    "its messages": f"INSERT INTO messages VALUES ({SESSION}, 0, '{{}}')",
    "its log": DAMAGES["a row of the log"],
    "its journal": DAMAGES["the journal's form"],
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
        await store.last_seq(one)
    with pytest.raises(SessionNotFound):
        await hub.delete(one)
    assert [record.id for record in await store.sessions()] == [two]
    await hub.close()
    await store.aclose()


async def with_texts(home: Path) -> list[str]:
    """Create two sessions, each with a word of its own and one in both."""
    store = SqliteStore(home / "sessions.db")
    ids: list[str] = []
    for name in ("alpha", "beta"):
        made = SessionRecord(name=f"about {name}", workspace=str(home), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        await store.append(
            made.id, None, [FINAL], expected_seq=0, state=SessionState([UserMessage(content=f"say {name}")])
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
    "its texts gone": "DROP TABLE said",
    "texts of another form": "ALTER TABLE said RENAME COLUMN text TO words",
}


@pytest.mark.parametrize("what", INDEX_DAMAGES)
async def test_a_damaged_index_is_rebuilt_at_the_start(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await with_texts(tmp_path)
    break_index(tmp_path, INDEX_DAMAGES[what])
    store = SqliteStore(tmp_path / "sessions.db")
    assert ["search index damaged; rebuilding" in record.getMessage() for record in caplog.records] == [True]
    assert [found.record.id for found in await store.search("say")] == [two, one]
    assert [found.record.id for found in await store.search("about alpha")] == [one]
    await store.update(replace(await store.get(one), name="renamed"))
    await store.append(
        two, None, [FINAL], expected_seq=1, state=SessionState([UserMessage(content="more")], keep_messages=1)
    )
    assert [found.record.id for found in await store.search("renamed")] == [one]
    assert [found.record.id for found in await store.search("more")] == [two]
    await store.delete(one)
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
        kept = SessionState([UserMessage(content=f"word {number}")], keep_messages=number + 1)
        await store.append(two, None, [FINAL], expected_seq=number + 1, state=kept)
        await store.update(replace(await store.get(one), name=f"renamed {number}"))
    await store.append(
        two, None, [FINAL], expected_seq=21, state=SessionState(keep_messages=21, searchable_ids=frozenset())
    )
    with suppress(DamagedData):
        await store.search("say")
    assert sum("is damaged" in record.getMessage() for record in caplog.records) <= 1
    break_index(tmp_path, "DELETE FROM meta WHERE key = 'search'")  # damage need not show
    made = SessionRecord(name="gamma", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(made)
    await store.delete(made.id)
    await store.aclose()
    store = SqliteStore(tmp_path / "sessions.db")
    assert [found.record.id for found in await store.search("renamed 19")] == [one]
    assert [found.record.id for found in await store.search("say")] == [one]
    assert [await store.search(gone) for gone in ("renamed 18", "gamma", "word")] == [[], [], []]
    await store.aclose()


def break_index(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "sessions.db", isolation_level=None)) as connection:
        connection.execute(statement)


async def test_an_append_with_an_unreadable_journal_stores_nothing_and_others_are_committed(tmp_path: Path) -> None:
    one, two = await left_running(tmp_path, 2)
    damage(tmp_path, f"UPDATE journal SET data = '{{' WHERE session = {SESSION}", one)
    store = SqliteStore(tmp_path / "sessions.db")
    again = JournalEntry(kind="began", key="b0", session_id=one, turn_id="turn_0", data={"call_id": "c"})
    results = await asyncio.gather(
        store.append(two, "turn_1", [token(1)], expected_seq=2),
        store.append(one, "turn_0", [token(1)], expected_seq=2, journal=[again]),
        store.append(two, "turn_1", [token(2)], expected_seq=3),
        return_exceptions=True,
    )
    assert [isinstance(result, StoreError) for result in results] == [False, True, False]
    assert "damaged" in str(results[1])
    assert [event.seq for event in await store.read(two, 0, 10)] == [1, 2, 3, 4]
    assert (await store.read(one, 2, 10), await store.last_seq(one)) == ([], 2)
    await store.append(one, "turn_0", [token(2)], expected_seq=2)
    await store.aclose()
    store = SqliteStore(tmp_path / "sessions.db")
    frames = [json.loads(event.frame_json)["data"] for event in await store.read(one, 2, 10)]
    assert frames == [{"text": "word 2 ", "message_id": "m", "offset": 2}]
    await store.aclose()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_damaged_write_ahead_log_is_logged(
    tmp_path: Path, damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await left_running(tmp_path / "first", 1)
    store = SqliteStore(tmp_path / "first" / "sessions.db")
    for number in range(5):
        await store.append((await store.sessions())[0].id, "turn_0", [token(number)], expected_seq=number + 2)
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
