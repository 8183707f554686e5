"""The suite of the `Store` protocol, run against each implementation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx.errors import SessionBusy, SessionNotFound
from agenticx.messages import AssistantMessage, SystemMessage, UserMessage
from agenticx.runtime.events import EventType, RuntimeEvent, envelope_adapter
from agenticx.sessions import (
    ArchivedFilter,
    Fact,
    MemoryStore,
    SequenceConflict,
    SessionRecord,
    SessionState,
    SqliteStore,
    Store,
    TurnRecord,
)
from tests.support.commits import append, delete, update

pytestmark = pytest.mark.anyio


def in_memory(_folder: Path) -> Store:
    return MemoryStore()


def in_a_file(folder: Path) -> Store:
    return SqliteStore(folder / "sessions.db")


@pytest.fixture(params=[in_memory, in_a_file])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: Callable[[Path], Store] = request.param
    opened = make(tmp_path)
    yield opened
    await opened.aclose()


def record(name: str | None = None) -> SessionRecord:
    return SessionRecord(name=name, workspace="/tmp", created_at="2026-01-01T00:00:00.000Z")


def token(text: str, offset: int = 0) -> RuntimeEvent:
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": offset})


def started(text: str = "hi") -> RuntimeEvent:
    return RuntimeEvent(EventType.TURN_STARTED, {"input": text, "model": "demo", "message_id": "u"})


def final() -> RuntimeEvent:
    data = {
        "text": "",
        "message_id": "m",
        "reason": "answer",
        "usage": {"input_tokens": None, "output_tokens": None},
    }
    return RuntimeEvent(EventType.FINAL, data)


async def session_in(store: Store) -> str:
    made = record()
    await store.create(made)
    return made.id


async def test_a_session_is_created_updated_and_deleted(store: Store) -> None:
    made = record("one")
    await store.create(made)
    assert await store.catalog.get(made.id) == made
    await update(store, replace(made, name="two", pinned=True))
    assert (await store.catalog.get(made.id)).name == "two"
    await delete(store, made.id)
    with pytest.raises(SessionNotFound, match=made.id):
        await store.catalog.get(made.id)


async def test_sessions_are_listed_newest_first_in_pages(store: Store) -> None:
    made = [record(f"Session {number}") for number in range(5)]
    for one in made:
        await store.create(one)
    first = await store.catalog.sessions(limit=2)
    assert [one.name for one in first] == ["Session 4", "Session 3"]
    rest = await store.catalog.sessions(limit=9, before=first[-1].id)
    assert [one.name for one in rest] == ["Session 2", "Session 1", "Session 0"]
    assert await store.catalog.sessions(before="ses_unknown") == []


async def test_pinned_sessions_come_first_and_archived_ones_only_when_asked_for(store: Store) -> None:
    made = [record(str(number)) for number in range(6)]
    for one in made:
        await store.create(one)
    for number in (0, 3):
        await update(store, replace(made[number], pinned=True))
    for number in (1, 3, 4):
        await update(store, replace(await store.catalog.get(made[number].id), archived=True))

    async def names(archived: ArchivedFilter, before: str | None = None) -> str:
        return "".join(one.name or "" for one in await store.catalog.sessions(archived=archived, before=before))

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


async def test_an_append_with_a_wrong_expected_seq_writes_nothing(store: Store) -> None:
    session_id = await session_in(store)
    await append(store, session_id, None, [token("a")])
    for expected in (0, 2):
        with pytest.raises(SequenceConflict):
            await append(store, session_id, None, [token("x")])
    assert await store.log.head(session_id) == 1


async def test_an_append_with_an_event_that_cannot_be_encoded_writes_nothing(store: Store) -> None:
    session_id = await session_in(store)
    bad = RuntimeEvent(EventType.STATE, {"state": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        await append(store, session_id, None, [token("a"), bad])
    assert await store.log.head(session_id) == 0


async def test_the_log_of_all_sessions_keeps_the_order_of_appends(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    await append(store, one, None, [token("a")])
    await append(store, two, None, [token("b")])
    await append(store, one, None, [token("c")])
    events = await store.log.read_all(0, 100)
    assert [json.loads(event.frame_json)["data"]["text"] for event in events] == ["a", "b", "c"]
    assert [event.position for event in events] == sorted({event.position for event in events})
    assert await store.log.position() == events[-1].position
    await delete(store, two)
    assert [event.position for event in await store.log.read_all(0, 100)] == [events[0].position, events[2].position]
    assert [event.position for event in await store.log.read_all(events[0].position, 100)] == [events[2].position]


async def test_a_session_can_begin_with_events_of_another(store: Store) -> None:
    one, made = await session_in(store), replace(record("made of it"), forked_from="ses_x")
    await append(store, one, "turn_1", [started(), token("a"), final()])
    past = [event._replace(session_id=made.id) for event in await store.log.read(one, 0, 100)]
    news = asyncio.Event()
    with store.log.subscribe(None, news):
        await store.create(
            made, initial_events=past, state=SessionState([UserMessage(content="hi", message_id="u")], "{}")
        )
        assert news.is_set()
    assert await store.catalog.get(made.id) == made
    assert [(event.seq, event.position) for event in await store.log.read(made.id, 0, 100)] == [(1, 4), (2, 5), (3, 6)]
    assert list(await store.log.read_all(3, 100)) == list(await store.log.read(made.id, 0, 100))
    assert await store.log.state(made.id) == SessionState([UserMessage(content="hi", message_id="u")], "{}")
    assert [one.record.id for one in await store.catalog.search("hi")] == [made.id]
    added = await append(store, made.id, None, [token("b")])
    assert [(event.seq, event.position) for event in added] == [(4, 7)]


async def test_readers_are_woken_by_their_session_and_readers_of_all_by_any(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    of_one, of_all = asyncio.Event(), asyncio.Event()
    with store.log.subscribe(one, of_one), store.log.subscribe(None, of_all):
        await append(store, two, None, [token("b")])
        assert (of_one.is_set(), of_all.is_set()) == (False, True)
        await append(store, one, None, [token("a")])
        assert of_one.is_set()
        of_one.clear()
        await delete(store, one)
        assert of_one.is_set()
    of_all.clear()
    await append(store, two, None, [token("c")])
    assert not of_all.is_set()


async def test_only_one_turn_at_a_time_can_be_claimed(store: Store) -> None:
    session_id = await session_in(store)
    turns = [TurnRecord(session_id=session_id, input=str(number)) for number in range(64)]
    claims = await asyncio.gather(*(store.claim(turn) for turn in turns), return_exceptions=True)
    assert [claim for claim in claims if not isinstance(claim, SessionBusy)] == [turns[0]]
    assert await store.log.turn(session_id, turns[1].id) is None


async def test_a_terminal_event_frees_the_session_and_other_events_do_not(store: Store) -> None:
    session_id = await session_in(store)
    first, second = (TurnRecord(session_id=session_id, input=text) for text in ("one", "two"))
    await store.claim(first)
    await append(store, session_id, first.id, [started()])
    await append(store, session_id, "turn_of_a_helper", [final()])
    with pytest.raises(SessionBusy):
        await store.claim(second)
    await append(store, session_id, first.id, [token("a"), final()])
    assert await store.claim(second) == second
    await append(store, session_id, first.id, [final()])
    with pytest.raises(SessionBusy):
        await store.claim(TurnRecord(session_id=session_id, input="three"))


async def test_a_turn_has_the_position_before_its_first_event(store: Store) -> None:
    session_id = await session_in(store)
    await append(store, session_id, None, [token("a")])
    turn = await store.claim(TurnRecord(session_id=session_id, input="x"))
    assert turn.after_seq is None
    await append(store, session_id, turn.id, [started(), token("b")])
    await append(store, session_id, turn.id, [final()])
    assert await store.log.turn(session_id, turn.id) == replace(turn, after_seq=1)


async def test_the_same_client_turn_id_returns_the_earlier_turn_running_or_ended(store: Store) -> None:
    session_id = await session_in(store)
    first = await store.claim(TurnRecord(session_id=session_id, input="one", client_turn_id="c1"))
    again = TurnRecord(session_id=session_id, input="one", client_turn_id="c1")
    assert (await store.claim(again)).id == first.id
    await append(store, session_id, first.id, [started(), final()])
    assert await store.claim(again) == replace(first, after_seq=0)
    other = await store.claim(TurnRecord(session_id=session_id, input="two", client_turn_id="c2"))
    assert other.id != first.id


async def test_a_released_turn_that_stored_nothing_is_forgotten(store: Store) -> None:
    session_id = await session_in(store)
    first = await store.claim(TurnRecord(session_id=session_id, input="one", client_turn_id="c1"))
    await store.release(first)
    second = TurnRecord(session_id=session_id, input="two", client_turn_id="c1")
    assert await store.claim(second) == second


async def test_methods_raise_session_not_found_for_an_unknown_session(store: Store) -> None:
    turn = TurnRecord(session_id="ses_none", input="x")
    for attempt in (
        store.catalog.get("ses_none"),
        update(store, replace(record(), id="ses_none")),
        delete(store, "ses_none"),
        store.claim(turn),
        store.log.turn("ses_none", turn.id),
        append(store, "ses_none", None, [token("a")]),
        store.log.head("ses_none"),
        store.log.read("ses_none", 0, 10),
    ):
        with pytest.raises(SessionNotFound, match="ses_none"):
            await attempt


async def test_two_logs_have_different_ids() -> None:
    assert MemoryStore().log_id != MemoryStore().log_id


async def test_the_session_state_is_stored_with_the_events(store: Store) -> None:
    session_id = await session_in(store)
    said = [UserMessage(content="one"), AssistantMessage(content="two"), UserMessage(content="three")]
    assert await store.log.state(session_id) == SessionState([], None)
    await append(store, session_id, None, [token("a")], state=SessionState(said, '{"todos":[]}'))
    assert await store.log.state(session_id) == SessionState(said, '{"todos":[]}')
    shorter = [SystemMessage(content="[compacted] much")]
    await append(store, session_id, None, [token("b")], state=SessionState(shorter, keep_messages=1))
    assert await store.log.state(session_id) == SessionState([said[0], *shorter], '{"todos":[]}')
    with pytest.raises(SequenceConflict):
        await append(store, session_id, None, [token("c")], state=SessionState([], "{}"))
    assert (await store.log.state(session_id)).state_json == '{"todos":[]}'


async def test_compacted_messages_are_added_to_cut_and_read_by_themselves(store: Store) -> None:
    session_id = await session_in(store)
    one, two, three = (UserMessage(content=text) for text in ("one", "two", "three"))
    assert await store.log.compacted_messages(session_id) == ()
    await append(
        store,
        session_id,
        None,
        [token("a")],
        state=SessionState([three], compacted=[one, two], keep_compacted=0),
    )
    assert await store.log.compacted_messages(session_id) == (one, two)
    assert await store.log.state(session_id) == SessionState([three], None)
    await append(store, session_id, None, [token("b")], state=SessionState([one], keep_messages=1))
    assert await store.log.compacted_messages(session_id) == (one, two)
    await append(
        store,
        session_id,
        None,
        [token("c")],
        state=SessionState(compacted=[three], keep_compacted=1, keep_messages=1),
    )
    assert await store.log.compacted_messages(session_id) == (one, three)
    await append(store, session_id, None, [token("d")], state=SessionState(keep_compacted=0, keep_messages=1))
    assert await store.log.compacted_messages(session_id) == ()
    with pytest.raises(SessionNotFound):
        await store.log.compacted_messages("ses_none")
    await append(store, session_id, None, [token("e")], state=SessionState(compacted=[one], keep_compacted=0))
    await delete(store, session_id)
    with pytest.raises(SessionNotFound):
        await store.log.compacted_messages(session_id)


async def test_of_two_journal_entries_of_one_kind_and_key_the_first_is_kept(store: Store) -> None:
    session_id = await session_in(store)
    yes = Fact(kind="question_answered", key="cnf_1", session_id=session_id, turn_id="turn_1", data={"approved": True})
    no = replace(yes, data={"approved": False})
    asked = replace(yes, kind="question_asked", data={"digest": "d"})
    await append(store, session_id, "turn_1", [token("a")], facts=[asked])
    answers = await asyncio.gather(store.add_journal_entry(yes), store.add_journal_entry(no))
    assert answers == [yes, yes]
    assert await store.journal_entry("answered", "cnf_1") == yes
    assert await store.journal_entry("answered", "cnf_2") is None
    assert await store.turn_journal(session_id, "turn_1") == [asked, yes]
    await delete(store, session_id)
    assert await store.journal_entry("answered", "cnf_1") is None


async def test_unfinished_turns_are_listed(store: Store) -> None:
    first, second = await session_in(store), await session_in(store)
    one, two = (TurnRecord(session_id=session_id, input="x") for session_id in (first, second))
    for turn in (one, two):
        await store.claim(turn)
    await append(store, first, one.id, [started()])
    assert await store.unfinished_turns() == [replace(one, after_seq=0), two]
    await append(store, first, one.id, [final()])
    await store.release(two)
    assert await store.unfinished_turns() == []


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
    everything = await store.log.read_all(0, 10_000)
    assert [event.position for event in everything] == sorted({event.position for event in everything})
    assert len(everything) == 701 + 234


async def test_open_journal_entries_of_all_sessions_are_listed(store: Store) -> None:
    one, two = await session_in(store), await session_in(store)
    posted = [
        Fact(kind="message_posted", key=key, session_id=session_id, turn_id="turn_1", data={"message": key})
        for key, session_id in (("a", one), ("b", two), ("c", one), ("d", two))
    ]
    for entry in posted:
        await store.add_journal_entry(entry)
    taken = replace(posted[1], kind="message_taken", data={"state": "handed_back"})
    await append(store, two, None, [token("x")], facts=[taken])
    await store.add_journal_entry(replace(posted[0], kind="call_began"))
    assert await store.open_journal_entries("posted", "taken") == [posted[0], posted[2], posted[3]]
    await delete(store, one)
    assert await store.open_journal_entries("posted", "taken") == [posted[3]]


async def test_a_record_is_replaced_with_the_events_of_its_append_or_not_at_all(store: Store) -> None:
    made = record("one")
    await store.create(made)
    changed = RuntimeEvent(EventType.SESSION_CHANGED, {"name": "two", "pinned": True})
    two = replace(made, name="two", pinned=True)
    await append(store, made.id, None, [changed], record=two)
    assert await store.catalog.get(made.id) == two
    assert [found.record.id for found in await store.catalog.search("two")] == [made.id]
    with pytest.raises(SequenceConflict):
        await append(store, made.id, None, [changed], record=replace(made, name="three"))
    assert await store.catalog.get(made.id) == two


async def test_a_closed_journal_entry_is_deleted(store: Store) -> None:
    session_id = await session_in(store)
    posted = Fact(kind="message_posted", key="k", session_id=session_id, turn_id="turn_1", data={"message": "large"})
    await store.add_journal_entry(posted)
    named = replace(posted, kind="name_derived", data={"name": "x"})
    await store.add_journal_entry(named)
    taken, told = replace(posted, kind="message_taken", data={}), replace(named, kind="name_announced", data={})
    await append(store, session_id, None, [token("a")], facts=[taken])
    assert await store.add_journal_entry(told) == told
    assert await store.turn_journal(session_id, "turn_1") == [taken, told]
