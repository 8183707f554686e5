"""Data folders of earlier releases open, resume, rewind and export as before."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agenticx.attachments import make_attachment
from agenticx.llms.scripted import ScriptedModel, call
from agenticx.messages import UserMessage
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import (
    Hub,
    MemoryStore,
    SessionRecord,
    SessionState,
    SqliteStore,
    Store,
    StoredEvent,
    TurnRequest,
)
from agenticx.sessions.history.export import as_jsonl
from agenticx.sessions.history.fork import fork
from agenticx.sessions.history.transcript import read_conversation, read_messages
from agenticx.sessions.store.attachments import SMALLEST_CONTENT
from agenticx.sessions.store.base import read_log_pages
from agenticx.sessions.store.blobs import BlobFolder
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.factory import open_store
from agenticx.sessions.store.records import Position
from agenticx.sessions.store.sqlite._segments import encode_segments
from agenticx.sessions.store.sqlite.migrations import MIGRATIONS, migrate
from agenticx.settings import Settings, load_settings
from agenticx.tools.builtin import builtin_tools
from tests.support.sessions import wait_for_turn_end
from tests.support.snapshots import write_old_snapshots
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio

NOW = "2026-01-01T00:00:00.000Z"
RECORD = SessionRecord(id="ses_1", name="old", workspace="", permission_mode="auto", created_at=NOW)


def hub_of(store: Store, settings: Settings, *, turns_before: int = 0) -> Hub:
    """Return a hub whose model goes on after so many turns and, if any, the calls of the next one."""
    tools = builtin_tools()
    model = ScriptedModel(
        [
            [call("file_write", {"path": "a.txt", "content": "one"}, id="call_1")],
            "first",
            [
                call("file_write", {"path": "a.txt", "content": "two"}, id="call_2"),
                call("file_write", {"path": "b.txt", "content": "new"}, id="call_3"),
            ],
            "second",
        ][3 * turns_before :]
    )
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings, clock=PatientClock())


async def events_of(store: Store, session_id: str) -> list[StoredEvent]:
    return [event async for page in read_log_pages(store.log, session_id) for event in page]


async def write_old_data_folder(settings: Settings, workspace: Path) -> list[StoredEvent]:
    """Write the files of a session as that release did; return its events.

    Two turns changed files; the second one was rewound, and that rewind was reversed.
    """
    store = MemoryStore()
    record = replace(RECORD, workspace=str(workspace))
    await store.create(record)
    hub = hub_of(store, settings)
    for ends, text in enumerate(("one", "two"), 1):
        await hub.start(record.id, TurnRequest(input=text))
        await wait_for_turn_end(store, record.id, ends=ends)
    _, conversation = await read_conversation(store.log, record.id)
    last_of_first = next(entry.id for entry in conversation.path() if entry.message.get("content") == "first")
    await hub.rewind(record.id, (await hub.rewind(record.id, last_of_first)).undo)
    await hub.close()
    events = await events_of(store, record.id)
    write_old_database(settings.home / "sessions.db", record, events, await store.log.state(record.id))
    a, b = workspace / "a.txt", workspace / "b.txt"
    b.chmod(0o640)
    write_old_snapshots(
        BlobFolder(settings.home / "snapshots").folder(record.id),
        [("call_1", a, None, b"one"), ("call_2", a, b"one", b"two"), ("call_3", b, None, b"new")],
        [(a, ["call_2"], [], None), (b, ["call_3"], [], 0o640), (a, [], ["call_2"], None), (b, [], ["call_3"], None)],
    )
    return events


def write_old_database(path: Path, record: SessionRecord, events: Sequence[StoredEvent], state: SessionState) -> None:
    """Write the database with the schema of that release."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, NOW, MIGRATIONS[:3])
        connection.execute(
            "INSERT INTO sessions (id, record, state) VALUES (?, ?, ?)",
            (record.id, json.dumps(asdict(record)), state.state_json),
        )
        messages = [(1, place, message.model_dump_json()) for place, message in enumerate(state.messages)]
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", messages)
        for segment in encode_segments(events, compressed=False):
            row = (segment.last_position, 1, segment.last_seq, segment.body)
            connection.execute("INSERT INTO fresh VALUES (?, ?, ?, ?)", row)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"home": tmp_path / "home"}, environ={})


def outcomes(files: Sequence[object]) -> dict[str, str]:
    return {file.path: file.outcome for file in files}  # type: ignore[attr-defined]


def contents(workspace: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(workspace.iterdir())}


async def test_an_old_data_folder_opens_rewinds_and_exports_as_before(settings: Settings, workspace: Path) -> None:
    events = await write_old_data_folder(settings, workspace)
    lists = BlobFolder(settings.home / "snapshots").folder("ses_1")
    store = open_store(settings)
    hub = hub_of(store, settings)
    await hub.recover()
    assert as_jsonl(await events_of(store, "ses_1")) == as_jsonl(events)
    history = await read_messages(store.log, "ses_1")
    assert [message["content"] for message in history if message["role"] == "user"] == ["one", "two"]
    (copy,) = [await fork(store, "ses_1", now=NOW)]

    first = next(message["message_id"] for message in history if message["content"] == "first")
    there = await hub.rewind("ses_1", first)
    assert outcomes(there.files) == {"a.txt": "restored", "b.txt": "removed"}
    assert contents(workspace) == {"a.txt": "one"}
    assert not [path for path in lists.iterdir() if path.suffix]
    await hub.close()
    await store.aclose()

    store = open_store(settings)
    hub = hub_of(store, settings)
    back = await hub.rewind("ses_1", there.undo)
    assert outcomes(back.files) == {"a.txt": "restored", "b.txt": "restored"}
    assert contents(workspace) == {"a.txt": "two", "b.txt": "new"}
    assert (workspace / "b.txt").stat().st_mode & 0o777 == 0o640
    assert [fact.kind for fact in await store.log.file_facts("ses_1")] == ["file_edited"] * 3 + ["file_rewound"] * 8
    assert outcomes((await hub.rewind(copy.id, None)).files) == {"a.txt": "removed", "b.txt": "removed"}
    for session_id in ("ses_1", copy.id):
        await hub.delete(session_id)
    assert list((settings.home / "snapshots").iterdir()) == []
    await hub.close()
    await store.aclose()


async def test_an_old_session_with_a_damaged_list_runs_turns_and_refuses_rewinds(
    settings: Settings, workspace: Path
) -> None:
    await write_old_data_folder(settings, workspace)
    edits = BlobFolder(settings.home / "snapshots").folder("ses_1") / "edits.jsonl"
    edits.write_bytes(edits.read_bytes().replace(b"call_1", b"call_?"))
    for _ in range(2):
        store = open_store(settings)
        hub = hub_of(store, settings)
        ends = sum(event.terminal for event in await events_of(store, "ses_1"))
        await hub.start("ses_1", TurnRequest(input="again"))
        await wait_for_turn_end(store, "ses_1", ends=ends + 1)
        before = contents(workspace), await read_messages(store.log, "ses_1")
        with pytest.raises(DamagedData, match=r"edits\.jsonl"):
            await hub.rewind("ses_1", None)
        copy = await fork(store, "ses_1", now=NOW)
        with pytest.raises(DamagedData, match="file_edited"):
            await hub.rewind(copy.id, None)
        assert (contents(workspace), await read_messages(store.log, "ses_1")) == before
        await hub.close()
        await store.aclose()


def restore_old_names(path: Path) -> None:
    """Give tables and columns the names that they had before migration 0006, and remove what came after it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("""
            ALTER TABLE texts RENAME TO said;
            ALTER TABLE appends RENAME TO fresh;
            ALTER TABLE messages RENAME COLUMN message_index TO place;
            ALTER TABLE compacted RENAME COLUMN message_index TO place;
            ALTER TABLE turns RENAME COLUMN attachments_digest TO attached;
            ALTER TABLE turns DROP COLUMN permission_mode;
            ALTER TABLE turns DROP COLUMN model;
            ALTER TABLE turns DROP COLUMN sampling;
            UPDATE sessions SET record = json_remove(record, '$.system_prompt');
            DELETE FROM migrations WHERE name LIKE '0006 %' OR name LIKE '0008 %' OR name LIKE '0010 %';
        """)


async def test_a_data_folder_from_before_the_standard_names_resumes_rewinds_and_exports(
    settings: Settings, workspace: Path
) -> None:
    store = open_store(settings)
    await store.create(replace(RECORD, workspace=str(workspace)))
    hub = hub_of(store, settings)
    await hub.start("ses_1", TurnRequest(input="one", client_turn_id="c1"))
    await wait_for_turn_end(store, "ses_1")
    await hub.change("ses_1", {"permission_mode": "default"})
    await hub.start("ses_1", TurnRequest(input="two"))
    while not await hub.open_confirms("ses_1"):
        await asyncio.sleep(0.01)
    await hub.close()
    events = await events_of(store, "ses_1")
    assert list(await store.log.read_all(Position(0), 1000)) == events
    await store.aclose()
    restore_old_names(settings.home / "sessions.db")

    store = open_store(settings)
    assert list(await store.log.read_all(Position(0), 1000)) == events
    assert as_jsonl(await events_of(store, "ses_1")) == as_jsonl(events)
    assert [found.record.id for found in await store.catalog.search("two")] == ["ses_1"]
    hub = hub_of(store, settings, turns_before=1)
    await hub.recover()
    assert (await hub.submit("ses_1", TurnRequest(input="one", client_turn_id="c1"))).state == "started"
    answered = 0
    while answered < 2:
        for question in await hub.open_confirms("ses_1"):
            await hub.answer_confirm(question.id, ConfirmAnswer(approved=True), digest=question.digest)
            answered += 1
        await asyncio.sleep(0.01)
    await wait_for_turn_end(store, "ses_1", ends=2)
    assert contents(workspace) == {"a.txt": "two", "b.txt": "new"}
    history = await read_messages(store.log, "ses_1")
    first = next(message["message_id"] for message in history if message["content"] == "first")
    there = await hub.rewind("ses_1", first)
    assert outcomes(there.files) == {"a.txt": "restored", "b.txt": "removed"}
    assert contents(workspace) == {"a.txt": "one"}
    assert as_jsonl((await events_of(store, "ses_1"))[: len(events)]) == as_jsonl(events)
    await hub.close()
    await store.aclose()


async def test_a_data_folder_with_files_inside_its_messages_resumes_and_rewinds(
    settings: Settings, workspace: Path
) -> None:
    path = settings.home / "sessions.db"
    store: Store = SqliteStore(path)  # without a place for contents, which then are where they were before
    await store.create(replace(RECORD, workspace=str(workspace), permission_mode="default"))
    hub = hub_of(store, settings)
    first, second = (make_attachment(f"{name}.txt", name.encode() * SMALLEST_CONTENT) for name in ("one", "two"))
    await hub.start("ses_1", TurnRequest(input="one", attachments=(first,)))
    while not (questions := await hub.open_confirms("ses_1")):
        await asyncio.sleep(0.01)
    queued = TurnRequest(input="two", attachments=(second,), when_busy="queue", client_turn_id="c2")
    await hub.submit("ses_1", queued)
    await hub.close()
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        stored = str(connection.execute("SELECT message FROM messages UNION SELECT data FROM facts").fetchall())
        assert [file.data in stored for file in (first, second)] == [True, True]
        connection.execute("DELETE FROM migrations WHERE name LIKE '0009 %'")

    store = open_store(settings)
    model = ScriptedModel(["first", "second", "third"])
    hub = Hub(store, models=lambda _: model, tools=lambda _: builtin_tools(), settings=settings, clock=PatientClock())
    await hub.recover()
    assert (await hub.submit("ses_1", queued)).state == "queued"
    (question,) = questions
    await hub.answer_confirm(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await wait_for_turn_end(store, "ses_1", ends=2)
    answer = next(m for m in await read_messages(store.log, "ses_1") if m["content"] == "first")
    await hub.rewind("ses_1", answer["message_id"])
    await hub.start("ses_1", TurnRequest(input="three"))
    await wait_for_turn_end(store, "ses_1", ends=3)
    files = [[m.attachments for m in request.messages if isinstance(m, UserMessage)] for request in model.requests]
    assert files == [[(first,)], [(first,), (second,)], [(first,), ()]]
    await hub.close()
    await store.aclose()
