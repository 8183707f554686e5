"""What is damaged in the database keeps to its session: the others go on, and so does the program."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.errors import StoreError
from agenticx.llms.scripted import ScriptedModel
from agenticx.messages import UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions import Hub, Journalled, Keepsake, SessionRecord, SqliteStore, TurnRecord, TurnRequest
from agenticx.sessions.forking import fork
from agenticx.sessions.transcript import read_messages
from agenticx.settings import load_settings
from tests.patience import PatientClock

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
    """Sessions whose process died in a turn, and one message that waits in each."""
    store = SqliteStore(home / "sessions.db")
    ids: list[str] = []
    for number in range(count):
        record = SessionRecord(name=str(number), workspace=str(home), created_at="2026-01-01T00:00:00.000Z")
        await store.create(record)
        turn = TurnRecord(id=f"turn_{number}", session_id=record.id, input="hi")
        await store.claim(turn)
        await store.append(record.id, turn.id, [STARTED, token(0)], expected_seq=0)
        began = Journalled(kind="began", key=f"b{number}", session_id=record.id, turn_id=turn.id, data={"call_id": "c"})
        await store.journal(began)
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


async def test_a_packed_row_that_is_damaged_is_a_failure_of_the_storage_for_whoever_reads_it(tmp_path: Path) -> None:
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
    assert await store.unfinished() == []
    await store.aclose()


async def test_a_byte_that_is_no_text_spoils_neither_searches_nor_sums_nor_tells_what_was_said(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    used = {"input_tokens": 3, "output_tokens": 4, "model": "demo", "round": 1}
    for name in ("one", "two"):
        made = SessionRecord(name=name, workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(made)
        kept = Keepsake([UserMessage(content=f"lorem secret {name}")])
        await store.append(made.id, None, [RuntimeEvent(EventType.USAGE, used), FINAL], expected_seq=0, kept=kept)
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
        await store.keepsake((await store.sessions())[1].id)
    assert "damaged" in str(refused.value)
    assert "secret" not in str(refused.value)
    await store.aclose()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_damaged_write_ahead_log_is_told_of(
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
    assert any("write-ahead log is damaged" in record.getMessage() for record in caplog.records) == damaged
    await again.aclose()
