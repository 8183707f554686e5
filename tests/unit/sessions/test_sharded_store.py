"""A store over several databases: what it merges, and what it does while one of them fails."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from agenticx.errors import SettingsError, StoreError
from agenticx.sessions import (
    ArchivedFilter,
    BlobFolder,
    Blobs,
    MemoryBlobs,
    MemoryStore,
    Ownership,
    Position,
    SessionRecord,
    ShardedStore,
    SqliteStore,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.store.blobs import Retention
from agenticx.sessions.store.shard_list import ListedDatabase, ShardListState, check_shard_list, shard_list_problem
from tests.support.commits import append, update
from tests.support.intercepted_store import InterceptedStore, StoreCall, Write
from tests.support.stores import asked, question, record, started, token
from tests.support.timeouts import PATIENCE, PatientClock
from tests.support.two_hubs import end_lease

pytestmark = pytest.mark.anyio


def over_three(folder: Path) -> ShardedStore:
    return ShardedStore([("a", MemoryStore()), ("b", SqliteStore(folder / "sessions.db")), ("c", MemoryStore())])


def record_in(store: ShardedStore, shard: Store) -> SessionRecord:
    """Return the record of a new session that belongs in this database of the store."""
    while store.shard((made := record()).id) is not shard:
        pass
    return made


def test_a_session_is_in_the_same_database_in_each_process_and_version() -> None:
    a, b, c = stores = [MemoryStore() for _ in range(3)]
    store = ShardedStore([*zip("abc", stores, strict=True)])
    found = [store.shard(f"ses_{number:020x}") for number in range(12)]
    assert found == [a, b, c, b, b, a, c, a, c, a, a, b]


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archived", get_args(ArchivedFilter))
async def test_pages_of_several_databases_are_those_of_one(
    tmp_path: Path, rng: random.Random, archived: ArchivedFilter
) -> None:
    one, several = MemoryStore(), over_three(tmp_path)
    for number in range(40):
        made = replace(record(f"name {number % 3}"), pinned=rng.random() < 0.2, archived=rng.random() < 0.3)
        for store in (one, several):
            await store.create(made)
            await update(store, replace(made, model="changed"))
    for query, limit in ((None, 1), (None, 7), ("name 1", 4), (None, 50)):
        before: str | None = ""
        while before is not None:
            options: Any = {"query": query, "limit": limit, "before": before or None, "archived": archived}
            page = await several.catalog.sessions(**options)
            assert page == await one.catalog.sessions(**options)
            before = page[-1].id if page else None
    assert await several.catalog.sessions(before="ses_unknown") == []
    await several.aclose()


async def test_sessions_of_the_same_millisecond_are_each_on_one_page(tmp_path: Path) -> None:
    store, times = over_three(tmp_path), [record().created_at for _ in range(3)]
    for created_at in sorted(times * 8):
        await store.create(replace(record(), created_at=created_at, pinned=created_at == times[1]))
    everything = [one.id for one in await store.catalog.sessions()]
    for limit in (1, 2, 5):
        found = list[str]()
        while page := await store.catalog.sessions(limit=limit, before=found[-1] if found else None):
            found += [one.id for one in page]
        assert found == everything
    await store.aclose()


# --- the log of all sessions ------------------------------------------------------------------------------------------


async def test_readers_of_all_sessions_get_each_event_once_and_those_of_a_session_in_order(
    tmp_path: Path, rng: random.Random
) -> None:
    store, records = over_three(tmp_path), [record() for _ in range(6)]
    for made in records:
        await store.create(made)
    wakeup, position = asyncio.Event(), await store.log.position()
    assert position is not None
    found: list[StoredEvent] = []
    with store.log.subscribe(None, wakeup):
        for number in range(150):
            if number < 120:
                texts = [token(str(number)) for _ in range(rng.randrange(1, 4))]
                await append(store, rng.choice(records).id, None, texts)
                assert wakeup.is_set()
                wakeup.clear()
            if number >= 120 or rng.random() < 0.3:
                page = await store.log.read_all(position, rng.randrange(1, 40))
                found += page
                position = page[-1].position if page else position
    assert position == await store.log.position()
    stored = {made.id: list(range(1, await store.log.head(made.id) + 1)) for made in records}
    assert _numbers(found) == stored
    for place in rng.sample(range(len(found)), 20):
        position = found[place].position
        assert await store.log.position(position) == position
        rest = await store.log.read_all(position, 10_000)
        assert _numbers([*found[: place + 1], *rest]) == stored
    await store.aclose()


def _numbers(events: Sequence[StoredEvent]) -> dict[str, list[int]]:
    """Return the numbers of the events by session, in their order."""
    numbers = defaultdict[str, list[int]](list)
    for event in events:
        numbers[event.session_id].append(event.seq)
    return dict(numbers)


async def test_a_number_that_is_no_position_of_the_databases_is_refused(tmp_path: Path) -> None:
    store = over_three(tmp_path)
    await store.create(made := record())
    await append(store, made.id, None, [token("x")])
    last = await store.log.position()
    assert last is not None
    for ahead in (1, 1 << 64, 1 << 128, 1 << 63, 1 << 192, 1 << 1000):
        assert await store.log.position(last + ahead) is None
    assert [await store.log.position(given) for given in (-1, 0, last)] == [None, 0, last]
    with pytest.raises(StoreError, match="another log"):
        await store.log.read_all(Position(1 << 192), 10)
    await store.aclose()


# --- a database that fails --------------------------------------------------------------------------------------------


class FailingStore(InterceptedStore):
    """A database that cannot be reached while it `is_broken`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda write: self._try(write), lambda call: self._try(call))
        self.is_broken = False

    async def _try(self, call: Write | StoreCall) -> Any:
        self._check()
        return await (call.make() if isinstance(call, Write) else call.run())

    def _check(self) -> None:
        if self.is_broken:
            raise StoreError("cannot be reached")

    @property
    def ownership(self) -> Ownership:
        self._check()
        return super().ownership

    async def aclose(self) -> None:
        self._check()


class ClosingStore(MemoryStore):
    """A store that knows whether it is closed."""

    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


async def waiting_session_in(store: ShardedStore, shard: Store, request_id: str) -> str:
    """Create a session whose turn has asked that request, and which has no owner."""
    await store.create(made := record_in(store, shard))
    turn = TurnRecord(session_id=made.id, input="x")
    events, facts = [started(), asked(request_id)], [question(request_id, turn.id)]
    await append(store, made.id, turn.id, events, begins=turn, facts=facts)
    await end_lease(store, made.id)
    return made.id


async def test_a_database_that_fails_does_so_for_its_own_sessions_and_for_lists_that_name_it() -> None:
    broken, other = FailingStore(MemoryStore()), ClosingStore()
    store = ShardedStore([("postgresql://a/agx", broken), ("b", other)], clock=PatientClock({2.0: 0.001}))
    one, two = await waiting_session_in(store, broken, "cnf_one"), await waiting_session_in(store, other, "cnf_two")
    async with asyncio.timeout(PATIENCE), aclosing(store.ownership.orphans(follow=True)) as orphans:
        broken.is_broken = True
        assert await anext(orphans) == two
        assert await store.log.head(two) == 2
        assert [event.seq for event in await append(store, two, None, [token("x")])] == [3]
        assert await store.catalog.session_of_request("cnf_two") == two
        with pytest.raises(StoreError, match=r"^cannot be reached$"):
            await store.log.head(one)
        for attempt in (
            store.catalog.sessions(),
            store.catalog.usage(),
            store.catalog.open_requests(),
            store.catalog.session_of_request("cnf_one"),
            store.log.position(),
            store.log.read_all(Position(0), 10),
            store.check(),
        ):
            with pytest.raises(StoreError, match=r"^the database postgresql://a/agx failed: cannot be reached$"):
                await attempt
        broken.is_broken = False
        assert await anext(orphans) == one
    assert [event.session_id for event in await store.catalog.open_requests()] == [one, two]
    broken.is_broken = True
    with pytest.raises(StoreError):
        await store.aclose()
    assert other.is_closed


# --- blobs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "folder"])
async def test_contents_shared_with_a_session_in_another_database_stay_as_long_as_there(
    tmp_path: Path, kind: str
) -> None:
    places: list[Blobs] = [MemoryBlobs() if kind == "memory" else BlobFolder(tmp_path / name) for name in "ab"]
    a, b = (MemoryStore(blobs=blobs) for blobs in places)
    store = ShardedStore([("a", a), ("b", b)])
    one, two = record_in(store, a).id, record_in(store, b).id
    blobs = store.blobs
    assert blobs is not None
    digests = {kept: await blobs.put(one, kept.encode(), retention=kept) for kept in get_args(Retention)}
    await blobs.share(one, two, [*digests.values(), "0" * 64])
    for kept, digest in digests.items():
        assert (await b.blobs.get(two, digest), await a.blobs.get(two, digest)) == (kept.encode(), None)  # type: ignore[union-attr]
        assert await blobs.retentions(two, digest) == await blobs.retentions(one, digest)
    await blobs.forget(one)
    await blobs.remove(two, list(digests.values()))
    assert [await blobs.get(two, digests[kept]) for kept in get_args(Retention)] == [b"limited", b"kept", None]
    assert ShardedStore([("a", a), ("b", MemoryStore())]).blobs is None


# --- workers ----------------------------------------------------------------------------------------------------------


async def test_a_process_that_uses_several_databases_is_one_worker_of_them(tmp_path: Path) -> None:
    store = over_three(tmp_path)
    store.address = "http://127.0.0.1:1"
    for number in range(9):
        await store.create(made := record())
        turn = TurnRecord(session_id=made.id, input="x")
        await append(store, made.id, turn.id, [started()], begins=turn if number < 4 else None)
    report = await store.workers()
    (worker,) = report["workers"]
    assert (worker["address"], worker["pid"]) == ("http://127.0.0.1:1", os.getpid())
    assert (worker["sessions"], worker["running_turns"]) == (9, 4)
    assert [server["engine"] for server in report["servers"]] == ["memory", "sqlite", "memory"]
    await store.aclose()


# --- the list of databases --------------------------------------------------------------------------------------------


A, B, C = (ListedDatabase(f"log_{name}", f"postgresql://{name}/agx") for name in "abc")


@pytest.mark.parametrize(
    ("stored", "given", "problem"),
    [
        ([A, B], [A, B], None),
        ([A, B], [A._replace(name="postgresql://moved/agx"), B], None),
        (
            [A, B],
            [B, A],
            "the URL of the store names its databases in another order than their sessions were stored in: set it to"
            ' "postgresql://a/agx postgresql://b/agx"',
        ),
        (
            [A],
            [A, B],
            'the URL of the store names "postgresql://a/agx postgresql://b/agx", but sessions are stored in'
            ' "postgresql://a/agx" as one list: set it to that list again, or copy the sessions to a list of new,'
            ' empty databases, agx store copy "postgresql://a/agx" "NEW URLS", and set it to that (each URL with its'
            " user and password)",
        ),
        (
            [A, B],
            [A, C, A],
            "the URL of the store names one database more than once: postgresql://a/agx and postgresql://a/agx",
        ),
    ],
)
def test_a_list_of_other_databases_is_refused_with_what_to_run(
    stored: Sequence[ListedDatabase], given: Sequence[ListedDatabase], problem: str | None
) -> None:
    assert shard_list_problem(stored, given) == problem


class Place:
    """A database that stores a list."""

    def __init__(self, log_id: str, *, has_sessions: bool = False) -> None:
        self._state = ShardListState(log_id, has_sessions, None)

    async def read(self) -> ShardListState:
        return self._state

    async def write(self, text: str) -> str:
        await asyncio.sleep(0)
        self._state = self._state._replace(text=self._state.text or text)
        return self._state.text or ""


async def test_databases_are_used_in_the_list_that_they_were_first_used_in() -> None:
    a, b, c, used = ((name, Place(name, has_sessions=name == "used")) for name in ("a", "b", "c", "used"))
    await check_shard_list([a, b])
    await check_shard_list([a, b])
    for refused in ([b, a], [a], [a, b, c], [c, used], [c, c]):
        with pytest.raises(SettingsError, match="the URL of the store names"):
            await check_shard_list(refused)
    assert [(await place.read()).text for _, place in (c, used)] == [None, None]
    await check_shard_list([used])
    with pytest.raises(SettingsError):
        await check_shard_list([used, c])


async def test_one_of_several_lists_is_stored_by_processes_that_start_at_once() -> None:
    a, b, c = ((name, Place(name)) for name in "abc")
    results = await asyncio.gather(*map(check_shard_list, ([a, b], [b, a], [b, c], [c, a])), return_exceptions=True)
    assert Counter(map(type, results)) == {type(None): 1, SettingsError: 3}
