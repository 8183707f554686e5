"""Compaction across turns and processes: stored once, and a useless summary is not requested again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.attachments import make_attachment
from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.messages import AssistantMessage, Message
from agenticx.runtime import is_summary
from agenticx.sessions import Hub, SessionRecord, Store, StoredEvent, TurnRequest, fork, read_messages
from agenticx.sessions.hub.state_tracker import load_session
from agenticx.sessions.log.tool_state import decode_replacement_counts
from agenticx.settings import load_settings
from tests.support.commits import load
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.timeouts import PATIENCE
from tests.support.two_hubs import hub_over

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]

LONGER = "A summary that is longer than all of it. " * 200
QUESTION = "What is there to say of this? " * 20


async def wait_for_turn_ends(store: Store, session_id: str, turns: int) -> None:
    """Wait until that many turns have ended."""
    wakeup = asyncio.Event()
    with store.log.subscribe(session_id, wakeup):
        while sum(event.terminal for event in await store.log.read(session_id, 0, 10_000)) < turns:
            await asyncio.wait_for(wakeup.wait(), PATIENCE)
            wakeup.clear()


@pytest.mark.promise("D4")
@pytest.mark.cases(quick=1)
async def test_a_summary_longer_than_its_messages_is_not_requested_again_by_the_next_turns(
    tmp_path: Path, open_store: OpenStore
) -> None:
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    settings = load_settings({"home": tmp_path / "home", "compaction_threshold_messages": 8}, environ={})
    script = [*["Yes."] * 7, LONGER, *["Yes."] * 4, "A summary.", "Yes."]
    asked: list[int] = []
    for number in range(12):  # each turn in a process of its own
        store = open_store()
        if not number:
            await store.create(record)
        model = ScriptedModel(script)
        hub = hub_over(store, models=lambda _name, model=model: model, tools=lambda _record: [], settings=settings)
        await hub.submit(record.id, TurnRequest(input=QUESTION))
        await wait_for_turn_ends(store, record.id, number + 1)
        asked.append(len(model.requests))
        script = script[len(model.requests) :]
        await hub.close()
        await store.aclose()
    assert asked == [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2], "in vain with 15 rows, so again with 23"


# --- what was compacted -----------------------------------------------------------------------------------------------

FILE = make_attachment("f.txt", b"what is in it")


class CountingStore(InterceptedStore):
    """A store that counts the messages of each commit; while `broken`, it refuses those of a compaction."""

    broken = False

    def __init__(self, store: Store) -> None:
        super().__init__(store, self._count)
        self.brought: list[tuple[int, int]] = []

    async def _count(self, write: Write) -> Sequence[StoredEvent]:
        state = write.commit.state
        if self.broken and state is not None and state.compacted:
            raise StoreError("the disk is full")
        if state is not None and not write.repetition:
            self.brought.append((len(state.messages), len(state.compacted)))
        return await write.make()


@dataclass
class CompactionHarness:
    """A folder with one session, over which each hub is created again."""

    folder: Path
    open_store: OpenStore
    session_id: str = ""
    turns: int = 0

    async def open(self) -> tuple[Hub, CountingStore]:
        store = CountingStore(self.open_store())
        if not self.session_id:
            record = SessionRecord(name="Named", workspace=str(self.folder), created_at="2026-01-01T00:00:00.000Z")
            await store.create(record)
            self.session_id = record.id
        settings = load_settings({"home": self.folder / "home", "compaction_threshold_messages": 8}, environ={})
        model = ScriptedModel([f"Reply {number}." for number in range(40)])
        hub = hub_over(store, models=lambda _name: model, tools=lambda _record: [], settings=settings)
        return hub, store

    async def run_turn(self, hub: Hub, store: Store) -> None:
        files = (FILE,) if self.turns == 1 else ()
        await hub.submit(self.session_id, TurnRequest(input=f"{self.turns}: {QUESTION}", attachments=files))
        self.turns += 1
        await wait_for_turn_ends(store, self.session_id, self.turns)

    async def run_turns(self, turns: int = 20, *, turns_of_a_process: int = 5) -> list[Message]:
        """Run turns in one process after the other, and return all messages as they were before compaction."""
        everything: list[Message] = []
        while self.turns < turns:
            hub, store = await self.open()
            for _ in range(turns_of_a_process):
                await self.run_turn(hub, store)
            everything = await all_messages(store, self.session_id)
            await hub.close()
            await store.aclose()
        return everything


async def all_messages(store: Store, session_id: str) -> list[Message]:
    kept = await store.log.state(session_id)
    front, compacted = decode_replacement_counts(kept.parts)
    stored = await store.log.compacted_messages(session_id)
    assert len(stored) == compacted
    return [*stored, *kept.messages[front:]]


@pytest.mark.promise("D4")
@pytest.mark.cases(quick=1)
async def test_compacted_messages_are_stored_once_and_survive_restarts(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    everything = await harness.run_turns(turns_of_a_process=1)
    assert [type(message) for message in everything] == [UserMessage, AssistantMessage] * 20
    assert not any(map(is_summary, everything))
    hub, store = await harness.open()
    assert sum(map(is_summary, (await store.log.state(harness.session_id)).messages)) >= 2
    assert [(message.message_id) for message in everything if isinstance(message, UserMessage)] == [
        message["message_id"]
        for message in await read_messages(store.log, harness.session_id)
        if message["role"] == "user"
    ]
    await hub.close()
    await store.aclose()


@pytest.mark.cases(quick=1)
async def test_a_turn_without_compaction_writes_no_compacted_messages(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    hub, store = await harness.open()
    for _ in range(20):
        await harness.run_turn(hub, store)
    assert (
        sum(compacted for _, compacted in store.brought)
        == len(await store.log.compacted_messages(harness.session_id))
        > 20
    )
    assert {messages for messages, compacted in store.brought if not compacted} == {1}
    await hub.close()
    await store.aclose()


@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_a_compaction_that_could_not_be_stored_is_made_again(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    everything = await harness.run_turns(15)
    hub, store = await harness.open()
    store.broken = True
    before = len(await store.log.compacted_messages(harness.session_id))
    while not any(event.type == "error" for event in await store.log.read(harness.session_id, 0, 10_000)):
        await harness.run_turn(hub, store)
    assert len(await store.log.compacted_messages(harness.session_id)) == before
    store.broken = False
    for _ in range(6):
        await harness.run_turn(hub, store)
    assert len(await store.log.compacted_messages(harness.session_id)) > before
    now = await all_messages(store, harness.session_id)
    assert now[: len(everything)] == everything
    asked = [message.content.partition(":")[0] for message in now if isinstance(message, UserMessage)]
    assert asked == list(map(str, range(harness.turns)))
    await hub.close()
    await store.aclose()


@pytest.mark.cases(quick=1)
async def test_a_session_in_memory_does_not_hold_compacted_messages(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    hub, store = await harness.open()
    for _ in range(20):
        await harness.run_turn(hub, store)
    await hub.close()
    loaded = await load(store, harness.session_id)
    session = load_session(loaded.record, loaded.state)
    assert (session.compacted, session.replacement_count) == (
        [],
        decode_replacement_counts(loaded.state.parts)[0],
    )
    assert session.stored_compacted == len(await store.log.compacted_messages(harness.session_id))
    await store.aclose()


@pytest.mark.ci_lane
async def test_a_rewind_to_a_compacted_message_restores_it_unchanged(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    everything = await harness.run_turns()
    hub, store = await harness.open()
    request = everything[2]
    assert isinstance(request, UserMessage)
    assert request.attachments == (FILE,)
    rewound = await hub.rewind(harness.session_id, request.message_id)
    assert list((await store.log.state(harness.session_id)).messages) == everything[:3]
    assert await store.log.compacted_messages(harness.session_id) == ()
    assert rewound.undo is not None
    await hub.rewind(harness.session_id, rewound.undo)
    texts = [message.content for message in (await store.log.state(harness.session_id)).messages]
    assert [text.removesuffix("\n[attached: f.txt]") for text in texts] == [message.content for message in everything]
    await harness.run_turn(hub, store)
    assert len(await all_messages(store, harness.session_id)) == 42
    await hub.close()
    await store.aclose()


@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_a_rewind_to_an_uncompacted_message_keeps_the_compacted_ones(
    tmp_path: Path, open_store: OpenStore
) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    everything = await harness.run_turns()
    hub, store = await harness.open()
    compacted = await store.log.compacted_messages(harness.session_id)
    await hub.rewind(harness.session_id, everything[-3].message_id)
    assert await store.log.compacted_messages(harness.session_id) == compacted
    assert await all_messages(store, harness.session_id) == everything[:-2]
    await hub.rewind(harness.session_id, None)
    assert (await store.log.state(harness.session_id)).messages == []
    assert await store.log.compacted_messages(harness.session_id) == ()
    await hub.close()
    await store.aclose()


@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_a_fork_has_the_compacted_messages_before_its_end(tmp_path: Path, open_store: OpenStore) -> None:
    harness = CompactionHarness(tmp_path, open_store)
    everything = await harness.run_turns()
    hub, store = await harness.open()
    now = "2026-01-01T00:00:00.000Z"
    complete = await fork(store, harness.session_id, now=now)
    assert await all_messages(store, complete.id) == everything
    assert (await store.log.state(complete.id)).messages == (await store.log.state(harness.session_id)).messages
    early = await fork(store, harness.session_id, everything[2].message_id, now=now)
    assert (await store.log.state(early.id)).messages == everything[:3]
    assert await store.log.compacted_messages(early.id) == ()
    await hub.close()
    await store.aclose()
