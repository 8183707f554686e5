"""The suite of leases and their commits, run against each store."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound
from agenticx.runtime import ConfirmAnswer, EventType, RuntimeEvent
from agenticx.sessions import (
    Commit,
    MemoryStore,
    NoOwner,
    OutcomeUnknown,
    OwnershipLost,
    SessionOwnedElsewhere,
    SessionState,
    StateChange,
    Store,
    TurnEnded,
    TurnRecord,
)
from agenticx.sessions.log.records import (
    CallBegan,
    MessagePosted,
    MessageTaken,
    NameAnnounced,
    NameDerived,
    ProcessStarted,
    RequestAnswered,
    RequestDecided,
)
from agenticx.sessions.store.base import find_fact
from tests.support.commits import add_fact, append, load, update
from tests.support.stores import (
    asked,
    began,
    final,
    in_a_file,
    orphans,
    posted,
    question,
    record,
    running_in,
    session_in,
    started,
    taken,
    token,
    two_sessions_in_order,
)

pytestmark = pytest.mark.anyio


async def test_a_lease_that_is_superseded_or_released_is_lost_and_writes_nothing(store: Store) -> None:
    session_id = await session_in(store)
    first = await store.ownership.claim(session_id)
    await first.commit(Commit(events=[token("a")]))
    second = await store.ownership.claim(session_id)
    assert (first.session_id, first.lost.is_set(), second.lost.is_set()) == (session_id, True, False)
    await first.release()  # has no effect on the owner
    await second.commit(Commit(events=[token("b")]))
    await second.release(work_left=True)
    assert second.lost.is_set()
    message = posted("k")
    write = Commit(events=[token("x")], facts=[message], record=replace(record("new"), id=session_id))
    for lease in (first, second):
        for refused in (
            lease.commit(write),
            lease.load(),
            lease.check(),
            store.delete(lease),
        ):
            with pytest.raises(OwnershipLost):
                await refused
    third = await store.ownership.claim(session_id)
    loaded = await third.load()
    assert (loaded.last_seq, loaded.open_facts, loaded.record.name) == (2, [], None)
    await store.delete(third)
    assert third.lost.is_set()


async def test_of_many_owners_that_write_at_once_only_the_last_goes_on(store: Store) -> None:
    session_id = await session_in(store)
    leases = [await store.ownership.claim(session_id) for _ in range(20)]
    writes = (lease.commit(Commit(events=[token(str(number))])) for number, lease in enumerate(leases))
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, OwnershipLost) for result in results] == [True] * 19 + [False]
    assert await store.log.head(session_id) == 1


async def test_a_claim_follows_what_the_owner_before_has_begun_to_write(store: Store) -> None:
    session_id = await session_in(store)
    for number in range(20):
        before = await store.ownership.claim(session_id)
        writing = asyncio.ensure_future(before.commit(Commit(events=[token("a")])))
        await asyncio.sleep(0)
        after = await store.ownership.claim(session_id)
        await after.commit(Commit(events=[token("b")]))
        with suppress(OwnershipLost, OutcomeUnknown):
            await writing
        assert await store.log.head(session_id) >= number + 1
    events = await store.log.read(session_id, 0, 100)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_commit_is_stored_whole_in_one_step(store: Store) -> None:
    made = record("one")
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    turn = TurnRecord(id="turn_1", session_id=made.id, input="hi", client_turn_id="c")
    said = [UserMessage(content="hello", message_id="u")]
    call, message = began("turn_1 c"), posted("m", "turn_2")
    named = replace(made, name="two", pinned=True)
    stored = await lease.commit(
        Commit(
            turn_id="turn_1",
            events=[started(), token("a")],
            begins=turn,
            state=StateChange(said, {"todos": "[1]"}),
            facts=[call, message],
            record=named,
        )
    )
    loaded = await lease.load()
    assert (loaded.record, loaded.state, loaded.last_seq) == (named, SessionState(said, {"todos": "[1]"}), 2)
    assert loaded.main_turn == await store.log.turn(lease.session_id, client_turn_id="c") == replace(turn, after_seq=0)
    assert (list(loaded.open_facts), loaded.facts_damaged) == ([call, message], False)
    assert list(await store.log.read(made.id, 0, 10)) == list(stored)
    assert (await store.catalog.get(made.id), await store.log.state(made.id)) == (loaded.record, loaded.state)
    assert await store.log.turn(made.id) == loaded.main_turn
    assert [found.id for found in await store.catalog.sessions(query="two")] == [made.id]
    assert [found.id for found in await store.catalog.sessions(query="hello")] == [made.id]


async def test_of_a_commit_that_fails_nothing_is_stored_and_the_next_one_is(store: Store) -> None:
    made = record("one")
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    await lease.commit(Commit(events=[token("a")], state=StateChange([UserMessage(content="old")], {"todos": "[]"})))
    before = await lease.load()
    bad = RuntimeEvent(EventType.STATE, {"state": float("nan")})
    write = Commit(
        turn_id="turn_1",
        events=[started(), bad],
        begins=TurnRecord(id="turn_1", session_id=made.id, input="hi", client_turn_id="c"),
        state=StateChange([UserMessage(content="new")], {"todos": "[1]"}),
        facts=[posted("m")],
        record=replace(made, name="two"),
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        await lease.commit(write)
    assert await lease.load() == before
    assert await store.log.turn(lease.session_id, client_turn_id="c") is None
    assert await find_fact(store.log, lease.session_id, MessagePosted, "m") is None
    assert [await store.catalog.sessions(query=query) for query in ("two", "new")] == [[], []]
    (event,) = await lease.commit(Commit(events=[token("b")]))
    assert event.seq == 2


async def test_an_event_that_json_cannot_have_fails_alone_among_commits_that_are_stored_together(store: Store) -> None:
    leases = [await store.ownership.claim(await session_in(store)) for _ in range(3)]
    events = [token("a"), RuntimeEvent(EventType.STATE, {"state": float("nan")}), token("b")]
    commits = [lease.commit(Commit(events=[event])) for lease, event in zip(leases, events, strict=True)]
    first, failed, last = await asyncio.gather(*commits, return_exceptions=True)
    assert isinstance(failed, ValueError)
    assert [stored[0].seq for stored in (first, last) if not isinstance(stored, BaseException)] == [1, 1]
    (event,) = await leases[1].commit(Commit(events=[token("c")]))
    assert event.seq == 1


async def test_a_commit_without_events_wakes_no_reader_and_is_loaded(store: Store) -> None:
    session_id = await session_in(store)
    lease, news = await store.ownership.claim(session_id), asyncio.Event()
    message = posted("m")
    with store.log.subscribe(session_id, news):
        assert list(await lease.commit(Commit(facts=[message]))) == []
        assert not news.is_set()
    assert (await lease.load()).open_facts == [message]
    (event,) = await lease.commit(Commit(events=[token("a")]))
    assert event.seq == 1


async def test_a_commit_that_is_made_again_with_its_id_is_stored_once(store: Store) -> None:
    session_id = await session_in(store)
    lease = await store.ownership.claim(session_id)
    await lease.commit(Commit(events=[token("a")]))
    message = posted("m")
    write = Commit(turn_id="turn_1", events=[token("b", 1), token("c", 2)], facts=[message])
    stored = list(await lease.commit(write))
    for _ in range(3):
        assert [list(await lease.commit(write)), await store.log.read(session_id, 1, 10)] == [stored, stored]
    without_events = Commit(facts=[taken("m")])
    for _ in range(2):
        assert list(await lease.commit(without_events)) == []
    assert (await store.log.head(session_id), (await lease.load()).open_facts) == (3, [])
    (event,) = await lease.commit(Commit(events=[token("d", 3)]))
    assert event.seq == 4


async def test_a_commit_with_the_id_of_one_under_an_earlier_lease_is_another_one(store: Store) -> None:
    session_id = await session_in(store)
    first = await store.ownership.claim(session_id)
    await first.commit(Commit(id="1", events=[token("a")]))
    second = await store.ownership.claim(session_id)
    (event,) = await second.commit(Commit(id="1", events=[token("a")]))
    assert event.seq == 2
    with pytest.raises(OwnershipLost):
        await first.commit(Commit(id="1", events=[token("a")]))
    assert await store.log.head(session_id) == 2


async def test_a_terminal_event_ends_the_running_turn_and_other_events_do_not(store: Store) -> None:
    session_id = await session_in(store)
    first, second = (TurnRecord(session_id=session_id, input=text) for text in ("one", "two"))

    async def running() -> TurnRecord | None:
        turn = (await load(store, session_id)).main_turn
        assert await store.log.turn(session_id) == turn
        return turn

    assert await running() is None
    await append(store, session_id, None, [token("a")])
    await append(store, session_id, first.id, [started()], begins=first)
    await append(store, session_id, "turn_of_a_helper", [final()])
    await append(store, session_id, None, [final()])
    assert await running() == replace(first, after_seq=1)
    await append(store, session_id, first.id, [token("a"), final()])
    assert await running() is None
    await append(store, session_id, second.id, [started()], begins=second)
    assert await running() == replace(second, after_seq=6)
    await append(store, session_id, second.id, [final()])
    assert await running() is None
    assert await store.log.turn(session_id, first.id) == replace(first, after_seq=1)
    assert await store.log.turn(session_id, "turn_none") is None


async def test_no_event_follows_the_terminal_one_of_its_turn(store: Store) -> None:
    session_id = await session_in(store)
    above = TurnRecord(session_id=session_id, input="x")
    below = TurnRecord(session_id=session_id, input="y", parent_turn_id=above.id)
    lease = await store.ownership.claim(session_id)
    await lease.commit(Commit(turn_id=above.id, events=[started()], begins=above))
    await lease.commit(Commit(turn_id=below.id, events=[started(), final()], begins=below))
    message = posted("k")
    with pytest.raises(TurnEnded, match=f"turn '{below.id}' has ended, so no 'final' event can follow"):
        await lease.commit(Commit(turn_id=below.id, events=[final()], facts=[message]))
    with pytest.raises(TurnEnded, match=f"turn '{above.id}' ends in this commit, so no 'token' event can follow"):
        await lease.commit(Commit(turn_id=above.id, events=[final(), token("a")]))
    loaded = await load(store, session_id)
    assert (loaded.last_seq, loaded.open_facts, loaded.main_turn) == (3, [], replace(above, after_seq=0))
    lease = await store.ownership.claim(session_id)  # the next owner reads which turns are open
    await lease.commit(Commit(turn_id=above.id, events=[token("a"), final()]))
    with pytest.raises(TurnEnded):
        await lease.commit(Commit(turn_id=above.id, events=[token("b")]))
    await lease.commit(Commit(turn_id=above.id, facts=[message]))
    await lease.commit(Commit(events=[token("c")]))  # of no turn
    assert [event.type for event in await store.log.read(session_id, 0, 10)][3:] == ["token", "final", "token"]
    assert (await load(store, session_id)).open_facts == [message]


async def test_a_turn_that_begins_and_ends_in_one_commit_does_not_run(store: Store) -> None:
    session_id = await session_in(store)
    turn = TurnRecord(session_id=session_id, input="x", attachments_digest="d")
    await append(store, session_id, turn.id, [started(), final()], begins=turn)
    assert (await load(store, session_id)).main_turn is None
    assert await store.log.turn(session_id, turn.id) == replace(turn, after_seq=0)


async def test_of_two_facts_of_one_kind_and_key_the_first_is_kept(store: Store) -> None:
    session_id, other = await running_in(store, "turn_1"), await session_in(store)
    yes = RequestAnswered(key="cnf_1", turn_id="turn_1", answer=ConfirmAnswer(approved=True))
    no, asking = replace(yes, answer=ConfirmAnswer(approved=False)), question("cnf_1")
    lease = await store.ownership.claim(session_id)
    await lease.commit(Commit(turn_id="turn_1", events=[token("a")], facts=[asking]))
    await lease.commit(Commit(facts=[yes, no]))
    await lease.commit(Commit(facts=[no]))
    assert await find_fact(store.log, lease.session_id, RequestAnswered, "cnf_1") == yes
    assert await find_fact(store.log, lease.session_id, RequestAnswered, "cnf_2") is None
    assert await find_fact(store.log, lease.session_id, RequestDecided, "cnf_1") is None
    assert (await lease.load()).open_facts == [asking, yes]
    assert await find_fact(store.log, other, RequestAnswered, "cnf_1") is None
    assert await store.catalog.session_of_request("cnf_1") == session_id
    assert await store.catalog.session_of_request("cnf_2") is None
    await store.delete(lease)
    assert await store.catalog.session_of_request("cnf_1") is None


async def test_the_facts_of_the_running_turn_and_those_not_closed_are_open(store: Store) -> None:
    session_id = await running_in(store, "turn_1")
    lease = await store.ownership.claim(session_id)
    call, key = began("turn_1 c"), "turn_1 c"
    process = ProcessStarted(key=key, turn_id="turn_1", call_id="c", host="here", pid=7, started=0, mark="m")
    messages = [posted(key, f"turn_{key}") for key in "ab"]
    named = NameDerived(key="turn_1", turn_id="turn_1", name="x")
    await lease.commit(Commit(facts=[call, messages[0], process, named, messages[1]]))
    assert (await lease.load()).open_facts == [call, messages[0], process, named, messages[1]]
    await lease.commit(Commit(turn_id="turn_1", events=[final()]))
    assert (await lease.load()).open_facts == [messages[0], named, messages[1]]
    assert await find_fact(store.log, lease.session_id, CallBegan, "turn_1 c") == call


async def test_a_closing_fact_removes_the_one_it_closes(store: Store) -> None:
    session_id = await session_in(store)
    lease = await store.ownership.claim(session_id)
    messages = [posted(key) for key in "kl"]
    derived, said = NameDerived(key="k", turn_id="turn_1", name="x"), taken("k")
    await lease.commit(Commit(facts=[*messages, derived]))
    await lease.commit(Commit(events=[token("a")], facts=[said]))
    assert (await lease.load()).open_facts == [messages[1], derived]
    announced = NameAnnounced(key="k", turn_id="turn_1")
    await lease.commit(Commit(facts=[announced]))
    assert (await lease.load()).open_facts == [messages[1]]
    types = MessagePosted, NameDerived, MessageTaken, NameAnnounced
    assert await store.log.facts(session_id, *types, key="k") == [said, announced]


async def test_sessions_are_listed_and_found_with_their_running_turns(store: Store) -> None:
    ids = [await running_in(store, f"turn_{number}") for number in range(3)]
    await append(store, ids[1], "turn_1", [final()])
    for id_ in ids:
        await update(store, replace(await store.catalog.get(id_), name="same"))
    for query in (None, "same"):
        listed = await store.catalog.sessions(query=query)
        assert [(one.id, one.running_turn_id) for one in listed] == [
            (ids[2], "turn_2"),
            (ids[1], None),
            (ids[0], "turn_0"),
        ]


async def test_sessions_with_work_and_no_owner_are_orphans_the_oldest_turn_first(store: Store) -> None:
    idle, with_message = [await session_in(store) for _ in range(2)]
    two, one = await two_sessions_in_order(store)
    leases = {id_: await store.ownership.claim(id_) for id_ in (idle, with_message, two, one)}
    await leases[with_message].commit(Commit(facts=[posted("k", "turn_9")]))
    for id_ in (one, two):
        turn = TurnRecord(session_id=id_, input="x")
        await leases[id_].commit(Commit(turn_id=turn.id, events=[started()], begins=turn))
    assert await orphans(store) == []
    for lease in leases.values():
        await lease.release(work_left=True)
    found = await orphans(store)
    assert ([id_ for id_ in found if id_ in (one, two)], set(found)) == ([one, two], {one, two, with_message})
    again = await store.ownership.claim(with_message)
    assert await orphans(store) == [one, two]
    await again.commit(Commit(facts=[taken("k", "turn_9")]))
    await again.release()
    running = await store.log.turn(one)
    assert running is not None
    await append(store, one, running.id, [final()])
    await (await store.ownership.claim(one)).release()
    assert await orphans(store) == [two]


async def test_questions_of_running_turns_without_an_answer_are_open(store: Store) -> None:
    ids = [await running_in(store, f"turn_{number}") for number in range(3)]
    for number, seq in ((1, 2), (0, 2), (1, 3), (2, 2)):
        key = f"cnf_{number}_{seq}"
        fact = question(key, f"turn_{number}", seq)
        await append(store, ids[number], f"turn_{number}", [asked(key)], facts=[fact])

    async def open_requests(session_id: str | None = None) -> list[str]:
        questions = await store.catalog.open_requests(session_id)
        for event in questions:
            assert event in await store.log.read(event.session_id, 0, 10)
        return [json.loads(event.frame_json)["data"]["id"] for event in questions]

    assert await open_requests() == ["cnf_1_2", "cnf_0_2", "cnf_1_3", "cnf_2_2"]
    assert await open_requests(ids[1]) == ["cnf_1_2", "cnf_1_3"]
    yes = ConfirmAnswer(approved=True)
    await add_fact(store, ids[1], RequestAnswered(key="cnf_1_2", turn_id="turn_1", answer=yes))
    await add_fact(store, ids[0], RequestDecided(key="cnf_0_2", turn_id="turn_0", answer=yes))
    assert await open_requests() == ["cnf_1_3", "cnf_2_2"]
    await append(store, ids[2], "turn_2", [final()])
    assert (await open_requests(), await open_requests(ids[2])) == (["cnf_1_3"], [])


# --- several workers --------------------------------------------------------------------------------------------------


async def test_a_session_has_one_owner_among_the_workers_of_a_memory_store() -> None:
    one = MemoryStore()
    two = one.other_worker()
    session_id = await session_in(one)
    lease = await one.ownership.claim(session_id)
    with pytest.raises(SessionOwnedElsewhere) as refused:
        await two.ownership.claim(session_id)
    assert refused.value.owner
    assert not lease.lost.is_set()
    (event,) = await lease.commit(Commit(events=[token("a")]))
    assert await two.log.read(session_id, 0, 10) == [event]
    await lease.release()
    other = await two.ownership.claim(session_id)
    with pytest.raises(OwnershipLost):
        await lease.commit(Commit(events=[token("x")]))
    with pytest.raises(SessionOwnedElsewhere):
        await one.ownership.claim(session_id)
    (event,) = await other.commit(Commit(events=[token("b")]))
    assert event.seq == 2


async def test_a_command_is_carried_out_by_the_worker_that_owns_the_session() -> None:
    one = MemoryStore()
    two = one.other_worker()
    session_id, free = await session_in(one), await session_in(one)
    await one.ownership.claim(session_id)

    async def handle(session_id: str, command: bytes) -> bytes:
        return session_id.encode() + command

    with pytest.raises(NoOwner):
        await two.ownership.call(session_id, b" stop")
    async with one.ownership.serve(handle):
        assert await two.ownership.call(session_id, b" stop") == f"{session_id} stop".encode()
        with pytest.raises(NoOwner):
            await two.ownership.call(free, b" stop")
        with pytest.raises(SessionNotFound):
            await two.ownership.call("ses_none", b" stop")
    with pytest.raises(NoOwner):
        await two.ownership.call(session_id, b" stop")


async def test_a_session_of_a_file_has_no_owner_to_call(tmp_path: Path) -> None:
    store = in_a_file(tmp_path)
    session_id = await session_in(store)
    await store.ownership.claim(session_id)

    async def handle(session_id: str, command: bytes) -> bytes:
        return command

    async with store.ownership.serve(handle):
        with pytest.raises(NoOwner):
            await store.ownership.call(session_id, b"stop")
    await store.aclose()
