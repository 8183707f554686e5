"""The suite of the protocols of a store: sessions, log, catalog and blobs."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound, StoreError
from agenticx.messages import AssistantMessage, SystemMessage
from agenticx.runtime import EventType, RuntimeEvent, envelope_adapter
from agenticx.sessions import (
    ArchivedFilter,
    BlobFolder,
    Blobs,
    Commit,
    Fact,
    MemoryBlobs,
    MemoryStore,
    OutcomeUnknown,
    Position,
    SessionRecord,
    SessionState,
    StateChange,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.files.changes import file_edited, file_rewound
from agenticx.sessions.log.records import (
    ChildTurnSaved,
    FileFact,
    MessagePosted,
    SubagentAnnounced,
    SubagentDelivered,
    SubagentEnded,
    SubagentFact,
    SubagentMessaged,
    SubagentMessageTaken,
    SubagentStarted,
    SubagentUnannounced,
)
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.subagent_runs import SubagentRuns
from agenticx.sessions.store.blobs import LARGEST_CONTENT, TOO_LARGE, content_digest
from agenticx.subagents import SubagentRun
from agenticx.teams import SubagentEnding
from tests.support.commits import add_fact, append, delete, update
from tests.support.stores import (
    began,
    final,
    in_pages,
    posted,
    record,
    session_in,
    started,
    taken,
    token,
    two_sessions_in_order,
)

pytestmark = pytest.mark.anyio


async def test_a_session_is_created_updated_and_deleted(store: Store) -> None:
    made = record("one")
    await store.create(made)
    assert await store.catalog.get(made.id) == made
    await update(store, replace(made, name="two", pinned=True))
    await store.create(made)  # repeated, it has no effect
    assert (await store.catalog.get(made.id)).name == "two"
    await delete(store, made.id)
    with pytest.raises(SessionNotFound, match=made.id):
        await store.catalog.get(made.id)


async def test_sessions_are_listed_newest_first_in_pages(store: Store) -> None:
    made = [record(f"Session {number}") for number in range(5)]
    for one in made:
        await store.create(one)
    first = await store.catalog.sessions(limit=2)
    assert [one.record.name for one in first] == ["Session 4", "Session 3"]
    rest = await store.catalog.sessions(limit=9, before=first[-1].id)
    assert [one.record.name for one in rest] == ["Session 2", "Session 1", "Session 0"]
    assert await store.catalog.sessions(before="ses_unknown") == []


async def test_the_last_events_of_sessions_are_read_at_once(store: Store) -> None:
    empty, short, ended, renamed, gone = [record(str(number)) for number in range(5)]
    for one in (empty, short, ended, renamed, gone):
        await store.create(one)
    for one in (short, ended, renamed, gone):
        turn = TurnRecord(id=f"turn_{one.name}", session_id=one.id, input="x")
        await append(store, one.id, turn.id, [started(), token("a")], begins=turn)
    await append(store, ended.id, f"turn_{ended.name}", [token("b", 1), final()])  # packed once the turn has ended
    await update(store, replace(renamed, name="a commit without events"))
    await delete(store, gone.id)
    ids = [one.id for one in (empty, short, ended, renamed, gone)]
    found = await store.log.last_events([*ids, "ses_unknown"])
    expected = {one.id: (await store.log.read(one.id, 0, 9))[-1] for one in (short, ended, renamed)}
    assert found == expected
    assert await store.log.last_events([]) == {}


async def test_pinned_sessions_come_first_and_archived_ones_only_when_asked_for(store: Store) -> None:
    made = [record(str(number)) for number in range(6)]
    for one in made:
        await store.create(one)
    for number in (0, 3):
        await update(store, replace(made[number], pinned=True))
    for number in (1, 3, 4):
        await update(store, replace(await store.catalog.get(made[number].id), archived=True))

    async def names(archived: ArchivedFilter, before: str | None = None) -> str:
        listed = await store.catalog.sessions(archived=archived, before=before)
        return "".join(one.record.name or "" for one in listed)

    assert [await names(which) for which in ("without", "only", "with")] == ["052", "341", "305421"]
    assert [await names("with", made[number].id) for number in (3, 0, 5, 1)] == ["05421", "5421", "421", ""]
    assert [await names("without", made[number].id) for number in (3, 4)] == ["052", "2"]


async def test_appended_events_are_read_back_as_valid_envelopes_numbered_without_gaps(store: Store) -> None:
    session_id = await session_in(store)
    first = await append(store, session_id, "turn_1", [started(), token("a")])
    second = await append(store, session_id, "turn_1", [token("b", 1)])
    assert [*first, *second] == list(await store.log.read(session_id, 0, 100))
    assert [event.seq for event in await store.log.read(session_id, 0, 100)] == [1, 2, 3]
    for event in await store.log.read(session_id, 0, 100):
        envelope = envelope_adapter().validate_json(event.frame_json)
        assert (envelope["session_id"], envelope["turn_id"], envelope["seq"]) == (session_id, "turn_1", event.seq)
        assert envelope["type"] == event.type


async def test_reads_start_after_a_position_and_stop_at_a_limit(store: Store) -> None:
    session_id = await session_in(store)
    await append(store, session_id, None, [token(str(number), number) for number in range(10)])
    assert [event.seq for event in await store.log.read(session_id, 4, 3)] == [5, 6, 7]
    assert [event.seq for event in await store.log.read(session_id, 10, 3)] == []


async def test_the_log_of_all_sessions_keeps_the_order_of_appends(store: Store) -> None:
    one, two = await two_sessions_in_order(store)
    await append(store, one, None, [token("a")])
    await append(store, two, None, [token("b")])
    await append(store, one, None, [token("c")])
    events = await store.log.read_all(Position(0), 100)
    assert [json.loads(event.frame_json)["data"]["text"] for event in events] == ["a", "b", "c"]
    assert [event.position for event in events] == sorted({event.position for event in events})
    last = await store.log.position()
    assert last is not None
    assert last >= events[-1].position
    assert await store.log.read_all(last, 100) == []
    await delete(store, two)
    assert [event.position for event in await store.log.read_all(Position(0), 100)] == [
        events[0].position,
        events[2].position,
    ]
    assert [event.position for event in await store.log.read_all(events[0].position, 100)] == [events[2].position]


async def events_for(made: SessionRecord, store: Store, one: str) -> list[StoredEvent]:
    """Return the events of the session `one` as those of another session."""
    return [
        event._replace(session_id=made.id, frame_json=event.frame_json.replace(one.encode(), made.id.encode()))
        for event in await store.log.read(one, 0, 1000)
    ]


async def long_session_in(store: Store) -> str:
    session_id = await session_in(store)
    tokens = [token(str(number)) for number in range(600)]
    await append(store, session_id, "turn_1", [started(), *tokens, final()])
    return session_id


async def test_a_session_can_begin_with_events_of_another(store: Store) -> None:
    one, made = await session_in(store), replace(record("made of it"), forked_from="ses_x")
    await append(store, one, "turn_1", [started(), token("a"), final()])
    past = await events_for(made, store, one)
    of_all = await store.log.read_all(Position(0), 100)
    said = [UserMessage(content="hi", message_id="u")]
    await store.create(made, initial_events=in_pages(past, 2), state=StateChange(said, {"todos": "[1]"}))
    assert await store.catalog.get(made.id) == made
    copied = await store.log.read(made.id, 0, 100)
    assert copied == [event._replace(position=Position(0)) for event in past]
    assert await store.log.read_all(Position(0), 100) == of_all
    assert await store.log.state(made.id) == SessionState(said, {"todos": "[1]"})
    assert [one.id for one in await store.catalog.sessions(query="hi")] == [made.id]
    (added,) = await append(store, made.id, None, [token("b")])
    assert added.seq == 4
    assert await store.log.read(made.id, 0, 100) == [*copied, added]
    everything = await store.log.read_all(Position(0), 100)
    assert sorted(event.frame_json for event in everything) == sorted(event.frame_json for event in [*of_all, added])


async def test_a_session_with_events_of_another_appears_once_all_are_stored(store: Store) -> None:
    made = record("made")
    past = await events_for(made, store, await long_session_in(store))
    other = await session_in(store)

    async def pages() -> AsyncGenerator[Sequence[StoredEvent]]:
        async for page in in_pages(past, 300):
            yield page
            await append(store, other, None, [token("x")])
            assert made.id not in {one.id for one in await store.catalog.sessions(archived="with")}
            assert await store.catalog.sessions(query="made") == []
            with pytest.raises(SessionNotFound):
                await store.log.head(made.id)
            with pytest.raises(SessionNotFound):
                await store.ownership.claim(made.id)

    await store.create(made, initial_events=pages(), texts=[SearchableText("u", "user", "words")])
    assert [event.seq for event in await store.log.read(made.id, 0, 1000)] == list(range(1, len(past) + 1))
    assert await store.log.head(other) == 3
    assert [one.id for one in await store.catalog.sessions(query="words")] == [made.id]


async def test_nothing_stays_of_a_session_whose_events_cannot_be_copied(store: Store) -> None:
    made = record("made")
    past = await events_for(made, store, await long_session_in(store))
    has_begun = asyncio.Event()

    async def failing() -> AsyncGenerator[Sequence[StoredEvent]]:
        yield past
        raise StoreError("gone")

    async def hanging() -> AsyncGenerator[Sequence[StoredEvent]]:
        yield past
        has_begun.set()
        await asyncio.Event().wait()

    with pytest.raises(StoreError, match="gone"):
        await store.create(made, initial_events=failing())
    creation = asyncio.create_task(store.create(made, initial_events=hanging()))
    await has_begun.wait()
    creation.cancel()
    await asyncio.wait({creation})
    assert creation.cancelled()
    with pytest.raises(SessionNotFound):
        await store.catalog.get(made.id)
    await store.create(made, initial_events=in_pages(past))
    assert await store.log.head(made.id) == len(past)


async def test_readers_are_woken_by_their_session_and_readers_of_all_by_any(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    of_one, of_all = asyncio.Event(), asyncio.Event()
    with store.log.subscribe(one, of_one), store.log.subscribe(None, of_all):
        await append(store, two, None, [token("b")])
        assert of_all.is_set()
        assert store.log.is_shared or not of_one.is_set()  # a shared log may wake a reader for nothing
        await append(store, one, None, [token("a")])
        assert of_one.is_set()
        of_one.clear()
        await delete(store, one)
        assert of_one.is_set()
    of_all.clear()
    await append(store, two, None, [token("c")])
    assert not of_all.is_set()


async def test_a_turn_is_found_by_its_client_turn_id_running_or_ended(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    turn = TurnRecord(session_id=one, input="one", client_turn_id="c1", permission_mode="plan")
    lease = await store.ownership.claim(one)
    assert await store.log.turn(one, client_turn_id="c1") is None
    await lease.commit(Commit(turn_id=turn.id, events=[started()], begins=turn))
    assert await store.log.turn(one, client_turn_id="c1") == replace(turn, after_seq=0)
    await lease.commit(Commit(turn_id=turn.id, events=[final()]))
    assert await store.log.turn(one, client_turn_id="c1") == replace(turn, after_seq=0)
    assert await store.log.turn(two, client_turn_id="c1") is None


async def test_turns_below_others_are_open_until_their_own_terminal_event(store: Store) -> None:
    one = await session_in(store)
    lease = await store.ownership.claim(one)
    root = TurnRecord(session_id=one, input="go")
    child = TurnRecord(session_id=one, input="look", parent_turn_id=root.id)
    call = began("k", child.id)

    async def commit(turn: TurnRecord, event: RuntimeEvent, **more: Any) -> None:
        write = Commit(turn_id=turn.id, events=[event], **more)
        try:
            await lease.commit(write)
        except OutcomeUnknown:
            await lease.commit(write)

    async def opened() -> tuple[str | None, list[str], list[str]]:
        loaded = await lease.load()
        running = None if loaded.main_turn is None else loaded.main_turn.id
        return running, [turn.id for turn in loaded.child_turns], [fact.key for fact in loaded.open_facts]

    await commit(root, started(), begins=root)
    await commit(child, started(), begins=child, facts=[call])
    assert await opened() == (root.id, [child.id], ["k"])
    assert (await lease.load()).child_turns[0] == replace(child, after_seq=1)
    assert await store.log.turn(one) == replace(root, after_seq=0)
    assert await store.catalog.working_sessions([one]) == {one: root.id}
    await commit(root, final())
    assert await opened() == (None, [child.id], ["k"])
    assert await store.catalog.working_sessions([one, "ses_unknown"]) == {one: child.id}
    assert not await store.catalog.working_sessions([])
    await lease.release(work_left=True)
    assert [id_ async for id_ in store.ownership.orphans()] == [one]
    lease = await store.ownership.claim(one)
    await commit(child, final())
    assert await opened() == (None, [], [])
    assert not await store.catalog.working_sessions([one])
    await lease.release()
    assert [id_ async for id_ in store.ownership.orphans()] == []


async def test_the_last_saved_state_of_a_child_turn_is_kept(store: Store) -> None:
    one = await session_in(store)
    turn = TurnRecord(session_id=one, input="x")
    lease = await store.ownership.claim(one)
    write = Commit(turn_id=turn.id, begins=turn, events=[started()], facts=[_saved(turn.id, "first")])
    for commit in (write, Commit(turn_id=turn.id, facts=[_saved(turn.id, "second")])):
        try:
            await lease.commit(commit)
        except OutcomeUnknown:
            await lease.commit(commit)
    assert (await lease.load()).open_facts == [_saved(turn.id, "second")]


def _saved(turn_id: str, message: str) -> Fact:
    return ChildTurnSaved(
        key=turn_id, turn_id=turn_id, messages=(UserMessage(content=message, message_id="m"),), state={}
    )


async def test_a_fact_counts_in_its_session_alone(store: Store) -> None:
    one, two = [await session_in(store), await session_in(store)]
    for session_id in (one, two):
        await append(store, session_id, None, [], facts=[posted("m")])
    await append(store, two, None, [], facts=[taken("m")])
    assert [len(await store.log.facts(id_, MessagePosted)) for id_ in (one, two)] == [1, 0]


async def test_methods_raise_session_not_found_for_an_unknown_session(store: Store) -> None:
    turn = TurnRecord(session_id="ses_none", input="x")
    for attempt in (
        store.catalog.get("ses_none"),
        update(store, replace(record(), id="ses_none")),
        delete(store, "ses_none"),
        store.ownership.claim("ses_none"),
        store.log.state("ses_none"),
        store.catalog.open_requests("ses_none"),
        store.log.turn("ses_none", turn.id),
        append(store, "ses_none", None, [token("a")]),
        store.log.head("ses_none"),
        store.log.read("ses_none", 0, 10),
    ):
        with pytest.raises(SessionNotFound, match="ses_none"):
            await attempt


async def test_facts_about_files_are_kept_in_order_after_their_turn_and_deleted_with_the_session(store: Store) -> None:
    def changed(key: str) -> Fact:
        if key == "b":
            return replace(file_rewound("/b", ["c"], []), key=key)
        return replace(file_edited("c", f"/{key}", None, "0" * 64), key=key)

    made = record()
    await store.create(made, facts=[changed("a")])
    other = await session_in(store)
    await add_fact(store, other, changed("of another"))
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(session_id=made.id, input="hi")
    await lease.commit(Commit(turn_id=turn.id, begins=turn, events=[started()], facts=[changed("b")]))
    await lease.commit(Commit(turn_id=turn.id, facts=[changed("c"), changed("a"), changed("b")]))
    await lease.commit(Commit(turn_id=turn.id, facts=[began("d", turn.id)]))
    assert [fact.key for fact in (await lease.load()).open_facts] == ["d"]
    await lease.commit(Commit(turn_id=turn.id, events=[final()]))
    assert await store.log.facts(made.id, FileFact) == [changed("a"), changed("b"), changed("c")]
    await store.delete(lease)
    with pytest.raises(SessionNotFound):
        await store.log.facts(made.id, FileFact)
    assert [fact.key for fact in await store.log.facts(other, FileFact)] == ["of another"]


async def test_facts_about_subagents_are_kept_until_closed_and_the_last_delivery_counts(store: Store) -> None:
    ending = SubagentEnding(turn_id="t1", agent_id="a", state="completed", text="42")
    due = SubagentDelivered(key="t1", ending=ending, is_due=True)
    messages = [SubagentMessaged(key=key, agent_id="a", text=key) for key in ("m1", "m2")]
    made = record()
    await store.create(made, facts=[SubagentEnded(key="t1", ending=ending)])
    await add_fact(store, made.id, messages[0])
    await add_fact(store, made.id, replace(due, is_due=False))
    await add_fact(store, made.id, due)
    await add_fact(store, made.id, messages[1])
    await add_fact(store, made.id, SubagentMessageTaken(key="m1"))
    lease = await store.ownership.claim(made.id)
    for facts in ((await lease.load()).subagent_facts, await store.log.facts(made.id, SubagentFact)):
        assert facts == [due, messages[1]]
    await store.delete(lease)
    with pytest.raises(SessionNotFound):
        await store.log.facts(made.id, SubagentFact)


async def test_runs_folded_while_facts_are_stored_are_those_of_the_stored_facts(
    store: Store, rng: random.Random
) -> None:
    made, live, keys = record(), SubagentRuns(keeps_texts=False), [f"t{number}" for number in range(8)]
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    started = [SubagentRun(turn_id=key, agent_id="a", task="", message="") for key in keys]
    facts: list[Fact] = [SubagentStarted(key=run.turn_id, run=run) for run in started]
    for number in range(100):
        key, state = rng.choice(keys), rng.choice(("paused", "completed"))
        ending = SubagentEnding(turn_id=key, agent_id="a", state=state, text=str(number))
        facts.append(
            rng.choice(
                [
                    SubagentEnded(key=key, ending=ending),
                    SubagentDelivered(key=key, ending=ending, is_due=rng.random() < 0.5),
                    SubagentUnannounced(key=key),
                    SubagentAnnounced(key=key),
                    SubagentMessaged(key=f"m{number}", agent_id="a", text="hi"),
                    SubagentMessageTaken(key=f"m{rng.randrange(number + 1)}"),
                ]
            )
        )
    for fact in facts:
        await lease.commit(Commit(facts=[fact]))
        live.apply([fact])
        stored = (await lease.load()).subagent_facts
        assert live == SubagentRuns.of(stored, keeps_texts=False)
        whole = SubagentRuns.of(stored)
        for told, all_told in ((live.notices(), whole.notices()), (live.pending_events, whole.pending_events)):
            assert sorted(told, key=str) == sorted(all_told, key=str)


async def test_two_logs_have_different_ids() -> None:
    assert MemoryStore().log_id != MemoryStore().log_id


async def test_the_session_state_is_stored_with_the_events(store: Store) -> None:
    session_id = await session_in(store)
    said = [UserMessage(content="one"), AssistantMessage(content="two"), UserMessage(content="three")]
    assert await store.log.state(session_id) == SessionState([])
    await append(store, session_id, None, [token("a")], state=StateChange(said, {"todos": "[1]"}))
    assert await store.log.state(session_id) == SessionState(said, {"todos": "[1]"})
    shorter = [SystemMessage(content="[compacted] much")]
    await append(store, session_id, None, [token("b")], state=StateChange(shorter, keep_messages=1))
    assert await store.log.state(session_id) == SessionState([said[0], *shorter], {"todos": "[1]"})


async def test_compacted_messages_are_added_to_cut_and_read_by_themselves(store: Store) -> None:
    session_id = await session_in(store)
    one, two, three = (UserMessage(content=text) for text in ("one", "two", "three"))
    assert await store.log.compacted_messages(session_id) == ()
    await append(
        store,
        session_id,
        None,
        [token("a")],
        state=StateChange([three], compacted=[one, two], keep_compacted=0),
    )
    assert await store.log.compacted_messages(session_id) == (one, two)
    assert await store.log.state(session_id) == SessionState([three])
    await append(store, session_id, None, [token("b")], state=StateChange([one], keep_messages=1))
    assert await store.log.compacted_messages(session_id) == (one, two)
    await append(
        store,
        session_id,
        None,
        [token("c")],
        state=StateChange(compacted=[three], keep_compacted=1, keep_messages=1),
    )
    assert await store.log.compacted_messages(session_id) == (one, three)
    await append(store, session_id, None, [token("d")], state=StateChange(keep_compacted=0, keep_messages=1))
    assert await store.log.compacted_messages(session_id) == ()
    with pytest.raises(SessionNotFound):
        await store.log.compacted_messages("ses_none")
    await append(store, session_id, None, [token("e")], state=StateChange(compacted=[one], keep_compacted=0))
    await delete(store, session_id)
    with pytest.raises(SessionNotFound):
        await store.log.compacted_messages(session_id)


@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_long_logs_are_read_back_completely(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    said: list[str] = []
    for number in range(700):
        await append(store, one, "turn_1", [token(f"{number}\n", number)])
        if number % 3 == 0:
            await append(store, two, "turn_2", [token("x", number)])
        said.append(f"{number}\n")
    await append(store, one, "turn_1", [final()])
    events = await store.log.read(one, 0, 10_000)
    assert [event.seq for event in events] == list(range(1, 702))
    assert [json.loads(event.frame_json)["data"]["text"] for event in events[:-1]] == said
    assert (events[-1].terminal, events[-1].type, events[-1].turn_id) == (True, EventType.FINAL, "turn_1")
    everything = await store.log.read_all(Position(0), 10_000)
    assert [event.position for event in everything] == sorted({event.position for event in everything})
    assert len(everything) == 701 + 234


async def test_a_record_is_replaced_with_the_events_of_its_commit(store: Store) -> None:
    made = record("one")
    await store.create(made)
    changed = RuntimeEvent(EventType.SESSION_CHANGED, {"name": "two", "pinned": True})
    two = replace(made, name="two", pinned=True)
    await append(store, made.id, None, [changed], record=two)
    assert await store.catalog.get(made.id) == two
    assert [found.id for found in await store.catalog.sessions(query="two")] == [made.id]
    assert await store.catalog.sessions(query="one") == []


async def test_a_position_of_the_log_is_one_up_to_its_last(store: Store) -> None:
    session_id = await session_in(store)
    before = await store.log.position()
    assert before is not None
    await append(store, session_id, None, [token("a")])
    (event,) = await store.log.read_all(before, 100)
    last = await store.log.position()
    assert last is not None
    assert [await store.log.position(given) for given in (0, event.position, last)] == [0, event.position, last]
    assert await store.log.position(last + 1_000_000_000) is None


# --- blobs ------------------------------------------------------------------------------------------------------------


def blobs_in_memory(_folder: Path) -> Blobs:
    return MemoryBlobs()


@pytest.fixture(params=[blobs_in_memory, BlobFolder])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    make: Callable[[Path], Blobs] = request.param
    return make(tmp_path / "blobs")


async def test_a_content_is_found_by_its_digest_in_its_session_until_it_is_forgotten(blobs: Blobs) -> None:
    one, empty = await blobs.put("ses_1", b"one"), await blobs.put("ses_1", b"", synced=False)
    assert (one, empty) == (content_digest(b"one"), content_digest(b""))
    assert await blobs.put("ses_1", b"one") == one
    assert [await blobs.get("ses_1", digest) for digest in (one, empty, content_digest(b"two"))] == [b"one", b"", None]
    assert await blobs.get("ses_2", one) is None
    await blobs.forget("ses_1")
    await blobs.forget("ses_1")
    assert await blobs.get("ses_1", one) is None


async def test_shared_contents_stay_when_the_first_session_is_forgotten(blobs: Blobs) -> None:
    one, two = await blobs.put("ses_1", b"one"), await blobs.put("ses_1", b"two")
    await blobs.share("ses_1", "ses_2", [one, content_digest(b"three"), "../ses_1"])
    await blobs.share("ses_3", "ses_2", [one])
    await blobs.forget("ses_1")
    assert [await blobs.get("ses_2", digest) for digest in (one, two, content_digest(b"three"))] == [b"one", None, None]


async def test_a_removable_content_is_removed_alone(blobs: Blobs) -> None:
    one, two = (
        await blobs.put("ses_1", b"one", retention="removable"),
        await blobs.put("ses_1", b"two", retention="removable"),
    )
    await blobs.put("ses_1", b"two", retention="kept")
    await blobs.share("ses_1", "ses_2", [one])
    await blobs.remove("ses_1", [one, two, content_digest(b"three"), "../x"])
    await blobs.remove("ses_3", [one])
    assert [await blobs.get("ses_1", digest) for digest in (one, two)] == [None, b"two"]
    assert await blobs.get("ses_2", one) == b"one"
    await blobs.forget("ses_2")
    assert await blobs.get("ses_2", one) is None


async def test_a_content_that_is_too_large_is_not_stored(blobs: Blobs) -> None:
    assert await blobs.put("ses_1", bytes(LARGEST_CONTENT + 1)) == TOO_LARGE
    assert await blobs.get("ses_1", TOO_LARGE) is None
