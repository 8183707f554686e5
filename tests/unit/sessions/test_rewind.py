"""Rewinds that are interrupted by a storage failure or the end of the process."""

from __future__ import annotations

import asyncio
import platform
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import SessionBusy, StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    BlobFolder,
    Hub,
    MemoryBlobs,
    MemoryStore,
    OutcomeUnknown,
    SessionRecord,
    SqliteStore,
    Store,
    StoredEvent,
    TurnRequest,
    fork,
)
from agenticx.sessions.history.transcript import read_conversation
from agenticx.sessions.log.records import FileFact
from agenticx.settings import load_settings
from agenticx.testing import call, think
from tests.support.intercepted_store import FailingCommits, InterceptedStore, Write
from tests.support.timeouts import PATIENCE, wait_until
from tests.support.two_hubs import UnreliableStore, hub_over

pytestmark = pytest.mark.anyio


NewStore = Callable[[], Store]


def hub_with(store: Store, model: ScriptedModel, tmp_path: Path, **settings: Any) -> Hub:
    tools = builtin_tools()
    settings = {"home": tmp_path / "home"} | settings
    return hub_over(
        store,
        models=lambda _name: model,
        tools=lambda _record: tools,
        settings=load_settings(settings, environ={}),
    )


async def session_in(store: Store, workspace: Path) -> str:
    workspace.mkdir()
    record = SessionRecord(name="x", workspace=str(workspace), permission_mode="auto", created_at="2026-01-01")
    await store.create(record)
    return record.id


async def run_turn(hub: Hub, store: Store, session_id: str, text: str) -> None:
    """Run one turn to its end."""
    turn, news = await hub.start(session_id, TurnRequest(input=text, permission_mode="auto")), asyncio.Event()
    with store.log.subscribe(session_id, news):
        while not any(event.terminal for event in await store.log.read(session_id, turn.after_seq or 0, 1000)):
            await asyncio.wait_for(news.wait(), PATIENCE)
            news.clear()


async def message_texts(store: Store, session_id: str) -> list[str]:
    conversation = await read_conversation(store.log, session_id)
    return [message["content"] for message in conversation.messages()]


def a_write_and_more() -> ScriptedModel:
    return ScriptedModel([[call("file_write", {"path": "a.txt", "content": "x"})], "written", "more"])


async def test_a_rewind_that_the_store_refuses_changes_nothing_and_can_be_repeated(
    tmp_path: Path, new_store: NewStore
) -> None:
    store, model = FailingCommits(new_store(), error=StoreError("the disk is full")), a_write_and_more()
    hub = hub_with(store, model, tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    await run_turn(hub, store, session_id, "one")
    before = await message_texts(store, session_id)
    store.broken = True
    with pytest.raises(StoreError):
        await hub.rewind(session_id, None)
    store.broken = False
    assert (tmp_path / "work" / "a.txt").exists()
    assert await message_texts(store, session_id) == before == ["one", "", "Created a.txt (1 byte).", "written"]
    done = await hub.rewind(session_id, None)
    assert [(file.path, file.outcome) for file in done.files] == [("a.txt", "removed")]
    assert (await message_texts(store, session_id), (tmp_path / "work" / "a.txt").exists()) == ([], False)
    await run_turn(hub, store, session_id, "two")
    assert [message.content for message in model.requests[-1].messages if message.role == "user"] == ["two"]
    await hub.close()


@pytest.mark.parametrize("is_stored", [False, True], ids=["refused", "outcome unknown"])
async def test_a_file_whose_edit_is_not_known_to_be_committed_is_not_changed(
    tmp_path: Path, new_store: NewStore, is_stored: bool
) -> None:
    async def around(write: Write) -> Sequence[StoredEvent]:
        if len(write.commit.facts) == 1 and "file_edited" in write.fact_kinds and failures:
            if not is_stored:
                failures.clear()
                raise StoreError("the disk is full")
            failures.pop()
            await write.make()
            raise OutcomeUnknown("the store did not answer")
        return await write.make()

    failures = ["the commit and its three repetitions"] * 4
    again = [call("file_write", {"path": "a.txt", "content": "y"})]
    model = ScriptedModel([[call("file_write", {"path": "a.txt", "content": "x"})], again, "written"])
    store = InterceptedStore(new_store(), around)
    hub = hub_with(store, model, tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    await run_turn(hub, store, session_id, "one")
    texts = await message_texts(store, session_id)
    assert texts[2].startswith("nothing was changed, because a snapshot could not be stored: the ")
    assert texts[4] == "Created a.txt (1 byte)."
    assert len(await store.log.facts(session_id, FileFact)) == (3 if is_stored else 1)
    done = await hub.rewind(session_id, None)
    assert [(file.path, file.outcome, file.reason) for file in done.files] == [("a.txt", "removed", None)]
    await hub.close()


async def test_rewinds_restore_files_over_an_unreliable_store(
    tmp_path: Path, rng: random.Random, count: Callable[..., int]
) -> None:
    for number in range(count(3, 10, 40)):
        home = tmp_path / str(number)
        home.mkdir()
        store = UnreliableStore(MemoryStore(blobs=MemoryBlobs()), rng)
        hub = hub_with(store, a_write_and_more(), home)
        session_id = await session_in(store, home / "work")
        await run_turn(hub, store, session_id, "one")
        store.failure_rate = 0.3
        while True:
            try:
                done = await hub.rewind(session_id, None)
            except StoreError:
                continue
            break
        assert [file.path for file in done.files] in ([], ["a.txt"])
        assert not (home / "work" / "a.txt").exists()
        store.failure_rate = 0
        await hub.close()


async def test_a_rewind_leaves_the_files_of_other_hosts(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UnreliableStore(MemoryStore(blobs=MemoryBlobs()), rng)
    here = [call("file_write", {"path": "b.txt", "content": "y"})]
    model = ScriptedModel([[call("file_write", {"path": "a.txt", "content": "x"})], "written", here, "written"])
    hub = hub_with(store, model, tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "elsewhere")
        await run_turn(hub, store, session_id, "one")
    await run_turn(hub, store, session_id, "two")
    done = await hub.rewind(session_id, None)
    assert [(file.path, file.outcome, file.reason) for file in done.files] == [
        ("b.txt", "removed", None),
        ("a.txt", "left", "It was changed on another host, 'elsewhere'."),
    ]
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.txt"]
    facts = await store.log.facts(session_id, FileFact)
    forked = await fork(store, session_id, done.undo, now="2026-01-02")
    copied = await store.log.facts(forked.id, FileFact)
    assert [fact.host for fact in facts] == ["elsewhere", platform.node(), platform.node()]
    assert [fact.host for fact in copied] == ["elsewhere", platform.node()]
    await hub.close()


async def test_a_host_that_has_got_another_name_restores_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "sessions.db", blobs=BlobFolder(tmp_path / "home" / "snapshots"))
    hub = hub_with(store, a_write_and_more(), tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    await run_turn(hub, store, session_id, "one")
    monkeypatch.setattr(platform, "node", lambda: "renamed")
    done = await hub.rewind(session_id, None)
    assert [(file.path, file.outcome) for file in done.files] == [("a.txt", "removed")]
    await hub.close()
    await store.aclose()


@pytest.mark.loses_owner
async def test_a_rewind_and_a_turn_exclude_each_other(tmp_path: Path, new_store: NewStore) -> None:
    store, model = new_store(), ScriptedModel(["hello"] * 60)
    hub = hub_with(store, model, tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    for _ in range(20):
        work = [hub.start(session_id, TurnRequest(input="x")), hub.rewind(session_id, None)]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes if isinstance(outcome, Exception)} <= {SessionBusy}
        await wait_until(lambda: hub.running_turn_id(session_id) is None)
    await hub.close()


async def test_a_compacted_conversation_is_rebuilt_from_the_log(tmp_path: Path, new_store: NewStore) -> None:
    model = ScriptedModel([f"answer {number}" for number in range(12)] * 2)
    store = new_store()
    hub = hub_with(store, model, tmp_path, compaction_threshold_messages=8, compaction_retain_messages=4)
    session_id = await session_in(store, tmp_path / "work")
    for number in range(7):
        await run_turn(hub, store, session_id, f"question {number}" + " and what there is to say of it" * 20)
    everything = await message_texts(store, session_id)
    assert len((await store.log.state(session_id)).messages) < len(everything)
    conversation = await read_conversation(store.log, session_id)
    second_answer = conversation.path()[3].id
    await hub.rewind(session_id, second_answer)
    assert [getattr(message, "content", "") for message in (await store.log.state(session_id)).messages] == everything[
        :4
    ]
    assert len(await store.catalog.sessions(query="question")) == 1
    assert [len(await store.catalog.sessions(query=query)) for query in (everything[1], everything[-1])] == [1, 0]
    await hub.close()


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_rewind_that_failed_midway_is_completed_later_unless_the_session_has_gone_on(
    tmp_path: Path, new_store: NewStore, goes_on: bool
) -> None:
    async def around(write: Write) -> Sequence[StoredEvent]:
        if "session_changed" in write.types and failures:
            failures.clear()
            raise StoreError("the disk is full")
        return await write.make()

    failures, store = ["once"], InterceptedStore(new_store(), around)
    hub = hub_with(store, a_write_and_more(), tmp_path)
    session_id = await session_in(store, tmp_path / "work")
    await run_turn(hub, store, session_id, "one")
    with pytest.raises(StoreError):
        await hub.rewind(session_id, None)
    assert not (tmp_path / "work" / "a.txt").exists()
    if goes_on:
        await run_turn(hub, store, session_id, "two")
    before = await message_texts(store, session_id)
    await hub.close()
    for _ in range(2):
        hub = hub_with(store, a_write_and_more(), tmp_path)
        await hub.recover()
        assert await message_texts(store, session_id) == (before if goes_on else [])
        assert [session async for session in store.ownership.orphans()] == []
        await hub.close()


@pytest.mark.ci_lane
async def test_a_rewind_stores_only_what_it_changes_and_keeps_the_messages_before_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db", blobs=MemoryBlobs())
    model = ScriptedModel([[think("Hm."), f"answer {number}"] for number in range(80)])
    hub = hub_with(store, model, tmp_path, compaction_threshold_messages=1_000)
    session_id = await session_in(store, tmp_path / "work")
    for number in range(80):
        await run_turn(hub, store, session_id, f"question {number}")
    before = (await store.log.state(session_id)).messages
    assert await hub.rewind(session_id, before[149].message_id)
    await hub.rewind(session_id, before[-1].message_id)
    after = (await store.log.state(session_id)).messages
    assert after[:150] == before[:150]  # with what the provider expects back, which the events do not have
    assert [message.content for message in after] == [message.content for message in before]
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        query = "SELECT kind, max(length(data)) FROM records GROUP BY kind"
        sizes = dict(connection.execute(query).fetchall())
    assert sizes["messages_replaced"] < 1_000 > sizes["texts_removed"]  # of 160 messages, 10 are replaced
    await hub.close()
    await store.aclose()
