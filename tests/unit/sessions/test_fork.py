"""Forks of a session: their own ids, and the texts that a search finds in them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.llms.scripted import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, SqliteStore, Store, TurnRequest
from agenticx.sessions.history.fork import fork
from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.store.changes import RECORD_CLASSES
from agenticx.sessions.store.entries import NameDerived, RewindBegan
from agenticx.sessions.store.search import MATCHES_SHOWN
from agenticx.settings import load_settings
from tests.support.commits import append
from tests.support.sessions import SessionHarness
from tests.support.stores import began, posted, question, taken
from tests.support.timeouts import PATIENCE, PatientClock

pytestmark = pytest.mark.anyio

NOW = "2026-01-01T00:00:00.000Z"
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")


async def compacted_session(store: Store, tmp_path: Path) -> str:
    """Create a session with one word per message whose first messages are compacted."""
    record = SessionRecord(name="Old", workspace=str(tmp_path), created_at=NOW)
    await store.create(record)
    settings = load_settings({"home": tmp_path / "home", "compaction_threshold_messages": 8}, environ={})
    model = ScriptedModel(["A letter. " * 50] * 20)
    hub = Hub(store, models=lambda _name: model, tools=lambda _record: [], settings=settings, clock=PatientClock())
    for turn, word in enumerate(WORDS, 1):
        news = asyncio.Event()
        await hub.submit(record.id, TurnRequest(input=f"{word} " * 100))
        with store.log.subscribe(record.id, news):
            while sum(event.terminal for event in await store.log.read(record.id, 0, 10_000)) < turn:
                await asyncio.wait_for(news.wait(), PATIENCE)
                news.clear()
    await hub.close()
    return record.id


async def found(store: Store, word: str) -> set[str]:
    return {found.record.id for found in await store.catalog.search(word)}


async def test_a_search_finds_a_fork_by_its_messages_including_compacted_ones(store: Store, tmp_path: Path) -> None:
    old = await compacted_session(store, tmp_path)
    assert "alpha" not in str((await store.log.state(old)).messages)
    shown = await read_messages(store.log, old)
    whole = (await fork(store, old, now=NOW)).id
    upto_beta = (await fork(store, old, shown[2]["message_id"], now=NOW)).id
    of_a_fork = (await fork(store, whole, now=NOW)).id
    everywhere = {old, whole, upto_beta, of_a_fork}
    assert [await found(store, word) for word in ("alpha", "beta")] == [everywhere] * 2
    assert [await found(store, word) for word in ("gamma", "zeta", "iota")] == [everywhere - {upto_beta}] * 3
    matches = {
        one.record.id: [match.message_id for match in one.matches] for one in await store.catalog.search("letter")
    }
    answers = [message["message_id"] for message in shown if message["role"] == "assistant"]
    assert matches[upto_beta] == answers[:1]
    assert matches[whole] == matches[of_a_fork] == answers[:MATCHES_SHOWN]


async def test_an_open_question_has_a_new_id_in_a_fork(
    harness: SessionHarness,
) -> None:
    hub, question = await harness.open_with_question()
    made = await fork(harness.store, harness.session_id, now=NOW)
    events = [json.loads(event.frame_json) for event in await harness.store.log.read(made.id, 0, 1000)]
    asked, closed = [event["data"] for event in events if event["type"].startswith("confirm_")]
    assert asked["id"] == closed["id"] != question.id
    assert (closed["approved"], closed["by"]) == (False, "stop")
    assert [one.id for one in await hub.open_confirms()] == [question.id]
    await harness.close(hub)


async def test_a_fork_has_no_record_of_a_kind_that_forks_drop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    old = await compacted_session(store, tmp_path)
    facts = [began("k"), question("q"), posted("m"), taken("n"), NameDerived(key="t", name="x")]
    await append(store, old, None, [], facts=[*facts, RewindBegan(key="r", message_id=None, after_seq=1)])
    made = await fork(store, old, now=NOW)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        query = "SELECT DISTINCT kind FROM records JOIN sessions ON number = session WHERE id = ?"
        of_old, of_fork = ({kind for (kind,) in connection.execute(query, (id_,))} for id_ in (old, made.id))
    dropped = {each.kind for each in RECORD_CLASSES if each.on_fork == "dropped"}
    assert of_old & dropped == {fact.kind for fact in facts} | {"rewind_began", "turn_accepted"}
    assert of_fork & dropped == set()
    assert of_fork >= {"session_changed", "events_copied", "texts_copied", "message_added", "messages_compacted"}
