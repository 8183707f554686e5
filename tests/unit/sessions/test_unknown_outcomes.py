"""Commits of the SQLite store that fail: known to be stored or not, or else repeated until that is known.

There is no variant with two hubs: the file of a SQLite store has one owner, and these tests have no hub. All suites
with two hubs run on a store that leaves commits without an answer.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import SessionNotFound, StoreError
from agenticx.sessions import (
    Commit,
    Lease,
    OutcomeUnknown,
    OwnershipLost,
    Position,
    SqliteStore,
    StateChange,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.store.sqlite import _database  # where it connects
from tests.support.stores import began, final, posted, record, session_in, started, token
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = pytest.mark.anyio


@dataclass
class Disk:
    """A disk on which the next statements that begin with `failures` fail, each once.

    With `carried_out` they take effect all the same, as when the disk does not answer. While `free` is cleared, a
    writing transaction waits before its end, and sets `waits`. `committed` is set by one that has not failed.
    """

    failures: list[str] = field(default_factory=list[str])
    carried_out: bool = False
    free: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)
    committed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.free.set()

    def fail(self, *statements: str, carried_out: bool = False) -> None:
        self.failures, self.carried_out = list(statements), carried_out


class Connection:
    """A connection to a database on `disk`; statements of transactions that only read do not fail."""

    def __init__(self, connection: sqlite3.Connection, disk: Disk) -> None:
        self._connection = connection
        self._disk = disk
        self._writes = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._run(self._connection.execute, statement, *values)

    def executemany(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._run(self._connection.executemany, statement, *values)

    def _run(self, run: Callable[..., sqlite3.Cursor], statement: str, *values: Any) -> sqlite3.Cursor:
        if statement.startswith("BEGIN"):
            self._writes = statement == "BEGIN IMMEDIATE"
        if self._writes and statement == "COMMIT" and not self._disk.free.is_set():
            self._disk.waits.set()
            self._disk.free.wait()
        failures = self._disk.failures
        if self._writes and failures and statement.startswith(failures[0]):
            failures.pop(0)
            if self._disk.carried_out:
                run(statement, *values)
            raise sqlite3.OperationalError("disk I/O error")
        done = run(statement, *values)
        if self._writes and statement == "COMMIT":
            self._disk.committed.set()
        return done


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk, connect = Disk(), _database.connect
    monkeypatch.setattr(_database, "connect", lambda path: Connection(connect(path), disk))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return disk


@pytest.fixture
async def store(disk: Disk, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "sessions.db")
    yield opened
    await opened.aclose()


def large_commit(session_id: str) -> Commit:
    """Return a commit with all that a commit can have."""
    return Commit(
        turn_id="turn_1",
        events=[started(), token("a")],
        begins=TurnRecord(id="turn_1", session_id=session_id, input="hi", client_turn_id="c"),
        state=StateChange([UserMessage(content="hello", message_id="u")], {"todos": "[1]"}),
        facts=[posted("m", "turn_2")],
        record=replace(record("two"), id=session_id),
    )


async def is_whole(store: SqliteStore, lease: Lease, stored: list[StoredEvent]) -> None:
    """Check that `large_commit` is all that is stored of the session."""
    loaded = await lease.load()
    assert (loaded.record.name, loaded.last_seq, loaded.state.parts) == ("two", 2, {"todos": "[1]"})
    assert [message.content for message in loaded.state.messages] == ["hello"]
    assert (loaded.main_turn and loaded.main_turn.id, [fact.key for fact in loaded.open_facts]) == ("turn_1", ["m"])
    assert list(await store.log.read(lease.session_id, 0, 10)) == stored
    assert [event for event in await store.log.read_all(Position(0), 10) if event.turn_id == "turn_1"] == stored
    assert (await store.log.head(lease.session_id), await store.log.position()) == (2, stored[-1].position)
    assert [found.id for found in await store.catalog.sessions(query="hello")] == [lease.session_id]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_commit_without_an_answer_is_repeated_and_stored_once(
    store: SqliteStore, disk: Disk, carried_out: bool
) -> None:
    lease = await store.ownership.claim(await session_in(store))
    write, news = large_commit(lease.session_id), asyncio.Event()
    disk.fail("COMMIT", carried_out=carried_out)
    with pytest.raises(OutcomeUnknown):
        await lease.commit(write)
    with pytest.raises(OutcomeUnknown):
        await lease.commit(Commit(events=[token("other")]))
    with store.log.subscribe(lease.session_id, news):
        stored = list(await lease.commit(write))
        assert news.is_set()
    assert [(event.seq, event.turn_id) for event in stored] == [(1, "turn_1"), (2, "turn_1")]
    await is_whole(store, lease, stored)
    assert list(await lease.commit(write)) == stored
    (event,) = await lease.commit(Commit(turn_id="turn_1", events=[final()]))
    assert (event.seq, await store.log.position()) == (3, event.position)
    assert (await lease.load()).main_turn is None


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_commit_may_be_repeated_many_times_until_the_disk_answers(
    store: SqliteStore, disk: Disk, carried_out: bool
) -> None:
    lease = await store.ownership.claim(await session_in(store))
    write = large_commit(lease.session_id)
    disk.fail("COMMIT", carried_out=carried_out)
    with pytest.raises(OutcomeUnknown):
        await lease.commit(write)
    for statement in ("COMMIT", "BEGIN IMMEDIATE", "COMMIT", "BEGIN IMMEDIATE"):
        disk.fail(statement)
        with pytest.raises(OutcomeUnknown):  # the first attempt may have stored it, whatever happens to this one
            await lease.commit(write)
    await is_whole(store, lease, list(await lease.commit(write)))


@pytest.mark.parametrize(
    "statement",
    ["BEGIN IMMEDIATE", "INSERT INTO commits", "INSERT INTO records", "INSERT INTO facts", "UPDATE sessions"],
)
async def test_of_a_commit_that_fails_before_its_end_nothing_is_stored_and_the_lease_goes_on(
    store: SqliteStore, disk: Disk, statement: str
) -> None:
    lease = await store.ownership.claim(await session_in(store))
    before, write = await lease.load(), large_commit(lease.session_id)
    disk.fail(statement)
    with pytest.raises(StoreError) as failed:
        await lease.commit(write)
    assert not isinstance(failed.value, OutcomeUnknown)
    assert (disk.failures, await lease.load()) == ([], before)
    assert await store.catalog.sessions(query="hello") == []
    await is_whole(store, lease, list(await lease.commit(write)))


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_commit_without_events_is_repeated(store: SqliteStore, disk: Disk, carried_out: bool) -> None:
    lease = await store.ownership.claim(await session_in(store))
    message = posted("m")
    turn = TurnRecord(id="turn_1", session_id=lease.session_id, input="x")
    write = Commit(facts=[message], begins=turn, record=replace(record("two"), id=lease.session_id))
    disk.fail("COMMIT", carried_out=carried_out)
    with pytest.raises(OutcomeUnknown):
        await lease.commit(write)
    assert await lease.commit(write) == []
    loaded = await lease.load()
    assert (loaded.record.name, loaded.open_facts, loaded.main_turn) == ("two", [message], replace(turn, after_seq=0))


async def test_readers_of_all_sessions_get_what_is_stored_late_after_what_was_stored_meanwhile(
    store: SqliteStore, disk: Disk
) -> None:
    one, two = [await store.ownership.claim(await session_in(store)) for _ in range(2)]
    write = Commit(events=[token("late")])
    disk.fail("COMMIT")
    with pytest.raises(OutcomeUnknown):
        await one.commit(write)
    (meanwhile,) = await two.commit(Commit(events=[token("meanwhile")]))
    assert await store.log.read_all(Position(0), 10) == [meanwhile]
    (late,) = await one.commit(write)
    assert list(await store.log.read_all(meanwhile.position, 10)) == [late]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_commits_that_fail_together_are_stored_once_each(
    store: SqliteStore, disk: Disk, carried_out: bool
) -> None:
    leases = [await store.ownership.claim(await session_in(store)) for _ in range(5)]
    disk.fail("COMMIT", carried_out=carried_out)
    commits = [Commit(turn_id="turn", events=[token(str(number)), final()]) for number in range(5)]
    results = await asyncio.gather(
        *(lease.commit(commit) for lease, commit in zip(leases, commits, strict=True)), return_exceptions=True
    )
    for lease, commit, result in zip(leases, commits, results, strict=True):
        stored = await lease.commit(commit) if isinstance(result, OutcomeUnknown) else result
        assert await store.log.read(lease.session_id, 0, 10) == stored
    everything = await store.log.read_all(Position(0), 100)
    assert [event.position for event in everything] == sorted({event.position for event in everything})
    assert len(everything) == 10


async def test_a_commit_whose_caller_is_cancelled_is_found(store: SqliteStore) -> None:
    lease = await store.ownership.claim(await session_in(store))
    write = large_commit(lease.session_id)
    writing = asyncio.create_task(lease.commit(write))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await is_whole(store, lease, list(await lease.commit(write)))


async def test_a_commit_under_a_superseded_lease_is_repeated_by_nobody(store: SqliteStore, disk: Disk) -> None:
    lease = await store.ownership.claim(await session_in(store))
    write = Commit(events=[token("a")])
    disk.fail("COMMIT")
    with pytest.raises(OutcomeUnknown):
        await lease.commit(write)
    second = await store.ownership.claim(lease.session_id)
    with pytest.raises(OwnershipLost):
        await lease.commit(write)
    (event,) = await second.commit(Commit(events=[token("b")]))
    assert event.seq == 1


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_restart_after_an_unknown_outcome_finds_the_commit_whole_or_not_at_all(
    store: SqliteStore, disk: Disk, tmp_path: Path, carried_out: bool
) -> None:
    lease = await store.ownership.claim(await session_in(store))
    write = replace(large_commit(lease.session_id), id="1")
    disk.fail("COMMIT", carried_out=carried_out)
    with pytest.raises(OutcomeUnknown):
        await lease.commit(write)
    await store.aclose()
    again = SqliteStore(tmp_path / "sessions.db")
    other = await again.ownership.claim(lease.session_id)
    assert (await other.load()).last_seq == (2 if carried_out else 0)
    if carried_out:
        await is_whole(again, other, list(await again.log.read(lease.session_id, 0, 10)))
    (event,) = await other.commit(Commit(id=write.id, events=[token("next")]))
    assert event.seq == (3 if carried_out else 1)
    await again.aclose()


async def test_a_claim_waits_for_a_commit_that_the_disk_has_begun(store: SqliteStore, disk: Disk) -> None:
    first = await store.ownership.claim(await session_in(store))
    disk.free.clear()
    writing = asyncio.create_task(first.commit(Commit(events=[token("a")])))
    await asyncio.to_thread(disk.waits.wait)
    claiming = asyncio.create_task(store.ownership.claim(first.session_id))
    _, waiting = await asyncio.wait({claiming}, timeout=0.05)
    disk.free.set()
    assert waiting
    await writing
    (event,) = await (await claiming).commit(Commit(events=[token("b")]))
    assert event.seq == 2


async def test_a_queued_commit_of_a_lease_that_ended_writes_nothing(store: SqliteStore, disk: Disk) -> None:
    other = await store.ownership.claim(await session_in(store))
    lease = await store.ownership.claim(await session_in(store))
    disk.free.clear()
    holding = asyncio.create_task(other.commit(Commit(events=[token("a")])))
    await asyncio.to_thread(disk.waits.wait)
    queued = asyncio.create_task(lease.commit(Commit(events=[token("b")])))
    await asyncio.sleep(0)
    await lease.release()
    disk.free.set()
    await holding
    with pytest.raises(OwnershipLost):
        await queued
    assert await store.log.head(lease.session_id) == 0


async def test_a_fact_that_cannot_be_encoded_fails_its_commit_only(store: SqliteStore) -> None:
    lease = await store.ownership.claim(await session_in(store))
    not_json: Any = object()
    bad = replace(began("k"), arguments=not_json)
    with pytest.raises(TypeError):
        await lease.commit(Commit(events=[token("a")], facts=[bad]))
    (event,) = await lease.commit(Commit(events=[token("b")]))
    assert (event.seq, await store.log.head(lease.session_id)) == (1, 1)


@pytest.mark.parametrize("carried_out", [False, True])
async def test_after_a_deletion_without_an_answer_readers_get_what_is_stored(
    store: SqliteStore, disk: Disk, carried_out: bool
) -> None:
    lease = await store.ownership.claim(await session_in(store))
    events = await lease.commit(Commit(events=[token("a")]))
    disk.fail("COMMIT", carried_out=carried_out)
    with pytest.raises(OutcomeUnknown):
        await store.delete(lease)
    if carried_out:
        for asking in (store.log.read(lease.session_id, 0, 10), store.ownership.claim(lease.session_id)):
            with pytest.raises(SessionNotFound):
                await asking
    else:
        assert await store.log.read(lease.session_id, 0, 10) == events
        await store.delete(lease)
    assert await store.log.read_all(Position(0), 10) == []


async def test_readers_of_all_sessions_get_a_commit_that_turns_out_to_be_stored_before_what_was_stored_after_it(
    store: SqliteStore, disk: Disk
) -> None:
    one, two = [await store.ownership.claim(await session_in(store)) for _ in range(2)]
    (first,) = await two.commit(Commit(events=[token("first")]))
    write = Commit(turn_id="turn_1", events=[token("once"), final()])
    disk.fail("COMMIT", carried_out=True)
    with pytest.raises(OutcomeUnknown):
        await one.commit(write)
    assert await store.log.read_all(first.position, 10) == []
    (meanwhile,) = await two.commit(Commit(events=[token("meanwhile")]))
    seen = list(await store.log.read_all(first.position, 10))
    assert [event.session_id for event in seen] == [one.session_id, one.session_id, two.session_id]
    assert seen[-1] == meanwhile
    assert list(await one.commit(write)) == seen[:2]
    assert await store.log.read_all(meanwhile.position, 10) == []
    assert list(await store.log.read(one.session_id, 0, 10)) == seen[:2]


async def test_a_commit_that_is_found_before_the_loop_knows_of_its_failure_is_published_once(
    store: SqliteStore, disk: Disk
) -> None:
    one, two = [await store.ownership.claim(await session_in(store)) for _ in range(2)]
    disk.fail("COMMIT", carried_out=True)
    disk.free.clear()
    first = asyncio.create_task(one.commit(Commit(events=[token("one")])))
    await wait_until(disk.waits.is_set)
    second = asyncio.create_task(two.commit(Commit(events=[token("two")])))
    await asyncio.sleep(0)  # it is queued behind the transaction that waits
    disk.committed.clear()
    disk.free.set()
    assert disk.committed.wait(PATIENCE)  # which holds the loop until the second transaction has found the first commit
    with pytest.raises(OutcomeUnknown):
        await first
    await second
    assert [event.seq for event in await store.log.read(one.session_id, 0, 10)] == [1]
    assert [event.session_id for event in await store.log.read_all(Position(0), 10)] == [one.session_id, two.session_id]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_readers_that_follow_get_each_event_once_whichever_commits_have_no_answer(
    store: SqliteStore, disk: Disk, carried_out: bool, rng: random.Random
) -> None:
    leases = [await store.ownership.claim(await session_in(store)) for _ in range(3)]
    pending: dict[str, Commit] = {}
    position, seen = Position(0), list[StoredEvent]()
    for number in range(60):
        disk.fail(*["COMMIT"] * rng.randrange(4), carried_out=carried_out)
        writes = [
            (lease, pending.get(lease.session_id), Commit(events=[token(str(number))]))
            for lease in rng.sample(leases, rng.randrange(1, 4))
        ]
        results = await asyncio.gather(
            *(lease.commit(old or new) for lease, old, new in writes),
            return_exceptions=True,
        )
        for (lease, old, new), result in zip(writes, results, strict=True):
            if isinstance(result, OutcomeUnknown):
                pending[lease.session_id] = old or new
            else:
                assert not isinstance(result, BaseException)
                pending.pop(lease.session_id, None)
        seen += await store.log.read_all(position, 100)
        position = seen[-1].position if seen else position
    disk.fail()
    for lease in leases:
        if (write := pending.get(lease.session_id)) is not None:
            await lease.commit(write)
    seen += await store.log.read_all(position, 100)
    for lease in leases:
        events = [event for event in seen if event.session_id == lease.session_id]
        assert events == list(await store.log.read(lease.session_id, 0, 1000))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
