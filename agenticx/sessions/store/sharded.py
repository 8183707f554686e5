"""A store over several databases, each of which has a part of the sessions.

1. The database of a session is the one whose place in the list is the SHA-256 digest of the session's id, as a number,
   modulo the number of databases. Unlike `hash`, the digest is the same in each process and each version of Python.
2. With one more database, or with another order, sessions would be looked for in the wrong database. So each database
   stores the list, and a different list is refused (`shard_list`).
3. There is no order between commits in different databases. A position in the log of all sessions is one position for
   each database, and its events follow each other within a session only.
4. A failing database affects its own sessions only. A query to all databases fails with an error that names it, unless
   another database has the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from decimal import Decimal
from typing import TypeVar

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.sessions.log.commits import SessionState, StateChange
from agenticx.sessions.log.events import Position, StoredEvent, decode
from agenticx.sessions.log.records import Fact, FactT
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.base import (
    ArchivedFilter,
    CommandHandler,
    Durability,
    Lease,
    ListedSession,
    ListPlace,
    Shard,
)
from agenticx.sessions.store.blobs import Blobs, Retention, ShardBlobs
from agenticx.sessions.store.workers import WorkersReport, merged_reports
from agenticx.shared_state.state import SharedState

__all__ = ["ShardedStore"]

T = TypeVar("T")

_POSITION_BITS = 64
_MAX_POSITION = 2**63 - 1  # the largest number that SQLite and PostgreSQL store
_PAUSE_SECONDS = 2.0
_FROM_WEAKEST: tuple[Durability, ...] = ("memory", "process", "disk", "replicas")

_log = get_logger(__name__)


class ShardedStore:
    """A `Store` over one or more stores, given with the names that errors show.

    Events from `Log.read_all` have positions of the joined log, all other events positions of their database.
    """

    def __init__(self, stores: Sequence[tuple[str, Shard]], *, clock: Clock | None = None) -> None:
        self._shards = shards = _Shards(stores)
        self.log = _ShardedLog(shards)
        self.catalog = _ShardedCatalog(shards)
        self.ownership = _ShardedOwnership(shards, clock or SystemClock())

    def shard(self, session_id: str) -> Shard:
        """Return the store that has the session, or would have it."""
        return self._shards.of(session_id)

    @property
    def address(self) -> str:
        return self._shards.stores[0].address

    @address.setter
    def address(self, address: str) -> None:
        for store in self._shards.stores:
            store.address = address

    @property
    def shared(self) -> SharedState | None:
        """The shared state of the first database."""
        return self._shards.stores[0].shared

    @property
    def blobs(self) -> Blobs | None:
        """The contents, each in the database of its session; None if a database stores no contents."""
        return None if any(store.blobs is None for store in self._shards.stores) else _ShardedBlobs(self._shards)

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: AsyncIterable[Sequence[StoredEvent]] | None = None,
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        await self._shards.of(record.id).create(
            record, initial_events=initial_events, texts=texts, state=state, facts=facts
        )

    async def delete(self, lease: Lease) -> None:
        await self._shards.of(lease.session_id).delete(lease)

    async def check(self) -> None:
        await self._shards.ask_all(lambda store: store.check())

    async def workers(self) -> WorkersReport:
        return merged_reports(await self._shards.ask_all(lambda store: store.workers()))

    async def aclose(self) -> None:
        """Close all databases, also if one fails to; raises the first of the errors."""
        closings = await asyncio.gather(*(store.aclose() for store in self._shards.stores), return_exceptions=True)
        for error in closings:
            if error is not None:
                raise error


class _Shards:
    """The stores in the order of the list, and their names."""

    def __init__(self, stores: Sequence[tuple[str, Shard]]) -> None:
        self.names, self.stores = [name for name, _ in stores], [store for _, store in stores]

    def index(self, session_id: str) -> int:
        digest = hashlib.sha256(session_id.encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest) % len(self.stores)

    def of(self, session_id: str) -> Shard:
        return self.stores[self.index(session_id)]

    def by_store(self, session_ids: Collection[str]) -> Mapping[Shard, Collection[str]]:
        """Return the ids of the sessions of each store that has some."""
        ids = defaultdict[Shard, list[str]](list)
        for session_id in session_ids:
            ids[self.of(session_id)].append(session_id)
        return ids

    async def ask_all(self, ask: Callable[[Shard], Awaitable[T]]) -> list[T]:
        """Return what `ask` returns for each store, in their order, asked at once.

        Raises `StoreError` with the name of one that failed.
        """
        return await self.ask_each([ask] * len(self.stores))

    async def ask_each(self, asks: Sequence[Callable[[Shard], Awaitable[T]]]) -> list[T]:
        """Return what each of `asks` returns for the store of its place; see `ask_all`."""

        async def answer(index: int) -> T | StoreError:
            try:
                return await asks[index](self.stores[index])
            except StoreError as exc:
                return self.named(index, exc)

        answers: list[T] = []
        for found in await asyncio.gather(*map(answer, range(len(self.stores)))):
            if isinstance(found, StoreError):
                raise found
            answers.append(found)
        return answers

    def named(self, index: int, error: StoreError) -> StoreError:
        """Return `error` with the name of the store that raised it."""
        named = StoreError(f"the database {self.names[index]} failed: {error}")
        named.__cause__ = error
        return named


class _ShardedLog:
    """The `Log` of all databases."""

    def __init__(self, shards: _Shards) -> None:
        self._shards = shards

    @property
    def durability(self) -> Durability:
        """The weakest of all."""
        found = {store.log.durability for store in self._shards.stores}
        return next(durability for durability in _FROM_WEAKEST if durability in found)

    @property
    def is_shared(self) -> bool:
        return any(store.log.is_shared for store in self._shards.stores)

    @property
    def log_id(self) -> str:
        """The digest of the ids of all logs, in the order of the list."""
        ids = " ".join(store.log.log_id for store in self._shards.stores)
        return f"log_{hashlib.sha256(ids.encode()).hexdigest()[:20]}"

    # --- one session --------------------------------------------------------------------------------------------------

    async def head(self, session_id: str) -> int:
        return await self._shards.of(session_id).log.head(session_id)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        return await self._shards.of(session_id).log.read(session_id, after, limit)

    async def last_events(self, session_ids: Collection[str]) -> Mapping[str, StoredEvent]:
        ids = self._shards.by_store(session_ids)
        found = await asyncio.gather(*(store.log.last_events(some) for store, some in ids.items()))
        return {session_id: event for events in found for session_id, event in events.items()}

    async def turn(
        self, session_id: str, turn_id: str | None = None, *, client_turn_id: str | None = None
    ) -> TurnRecord | None:
        return await self._shards.of(session_id).log.turn(session_id, turn_id, client_turn_id=client_turn_id)

    async def state(self, session_id: str) -> SessionState:
        return await self._shards.of(session_id).log.state(session_id)

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        return await self._shards.of(session_id).log.compacted_messages(session_id)

    async def facts(self, session_id: str, *types: type[FactT], key: str | None = None) -> Sequence[FactT]:
        return await self._shards.of(session_id).log.facts(session_id, *types, key=key)

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        if session_id is None:
            return self._subscribe_to_all(wakeup)
        return self._shards.of(session_id).log.subscribe(session_id, wakeup)

    @contextmanager
    def _subscribe_to_all(self, wakeup: asyncio.Event) -> Generator[None]:
        with ExitStack() as stack:
            for store in self._shards.stores:
                stack.enter_context(store.log.subscribe(None, wakeup))
            yield

    # --- all sessions -------------------------------------------------------------------------------------------------

    async def position(self, given: int | None = None) -> Position | None:
        count = len(self._shards.stores)
        places = [None] * count if given is None else _split_position(given, count)
        if places is None:
            return None

        def ask(place: int | None) -> Callable[[Shard], Awaitable[Position | None]]:
            return lambda store: store.log.position(place)

        known = [place for place in await self._shards.ask_each([ask(place) for place in places]) if place is not None]
        return _joined_position(known) if len(known) == count else None

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events that follow the position: some of each database, one database after the other.

        The position of an event joins its place in its own database with the place up to which each other database is
        read.
        """
        count = len(self._shards.stores)
        places = _split_position(after, count)
        if places is None:
            raise StoreError("this is a position of another log")

        def ask(place: int) -> Callable[[Shard], Awaitable[Sequence[StoredEvent]]]:
            return lambda store: store.log.read_all(Position(place), max(1, limit // count))

        events: list[StoredEvent] = []
        for index, page in enumerate(await self._shards.ask_each([ask(place) for place in places])):
            for event in page[: limit - len(events)]:
                places[index] = event.position
                events.append(event._replace(position=_joined_position(places)))
        return events


def _split_position(position: int, count: int) -> list[int] | None:
    """Return the place in each database from a joined position, None if it is not a joined position."""
    places = [position >> _POSITION_BITS * index & (2**_POSITION_BITS - 1) for index in range(count)]
    if position < 0 or position >> _POSITION_BITS * count or max(places) > _MAX_POSITION:
        return None
    return places


def _joined_position(places: Sequence[int]) -> Position:
    """Return the places in all databases as one number: 64 bits for each, the first database in the lowest bits.

    >>> hex(_joined_position([1, 2]))
    '0x20000000000000001'
    """
    return Position(sum(place << _POSITION_BITS * index for index, place in enumerate(places)))


class _ShardedCatalog:
    """The `Catalog` of all databases."""

    def __init__(self, shards: _Shards) -> None:
        self._shards = shards

    async def get(self, session_id: str) -> SessionRecord:
        return await self._shards.of(session_id).catalog.get(session_id)

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | ListPlace | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        """Return sessions as one store does.

        Sessions created in the same millisecond are in the order of their databases.
        """

        def ask(place: str | ListPlace | None) -> Callable[[Shard], Awaitable[Sequence[ListedSession]]]:
            return lambda store: store.catalog.sessions(query=query, limit=limit, before=place, archived=archived)

        try:
            places = await self._places(before)
        except SessionNotFound:
            return []
        pages = await self._shards.ask_each([ask(place) for place in places])
        return list(heapq.merge(*pages, key=_place_in_list, reverse=True))[:limit]

    async def _places(self, before: str | ListPlace | None) -> Sequence[str | ListPlace | None]:
        """Return where the part of each database begins in a page that follows `before`; raises `SessionNotFound`."""
        if not isinstance(before, str):
            return [before] * len(self._shards.stores)
        record, shard = await self.get(before), self._shards.index(before)
        return [
            before if index == shard else ListPlace(record.pinned, record.created_at, follows_equal=index < shard)
            for index in range(len(self._shards.stores))
        ]

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        if session_id is not None:
            catalog = self._shards.of(session_id).catalog
            return await catalog.usage(session_id=session_id, since=since, until=until)
        parts = await self._shards.ask_all(lambda store: store.catalog.usage(since=since, until=until))
        return DailyUsage.merged(row for part in parts for row in part)

    async def costs(self, session_ids: Collection[str]) -> Mapping[str, Decimal]:
        ids = self._shards.by_store(session_ids)
        found = await asyncio.gather(*(store.catalog.costs(some) for store, some in ids.items()))
        return {session_id: cost for costs in found for session_id, cost in costs.items()}

    async def working_sessions(self, session_ids: Collection[str]) -> Mapping[str, str]:
        ids = self._shards.by_store(session_ids)
        found = await asyncio.gather(*(store.catalog.working_sessions(some) for store, some in ids.items()))
        return {session_id: turn_id for working in found for session_id, turn_id in working.items()}

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        if session_id is not None:
            return await self._shards.of(session_id).catalog.open_requests(session_id)
        parts = await self._shards.ask_all(lambda store: store.catalog.open_requests())
        return list(heapq.merge(*parts, key=lambda event: decode(event).ts))

    async def session_of_request(self, request_id: str) -> str | None:
        """Return the id of the session that has asked the request, also while a database without it fails."""

        async def ask(index: int) -> str | StoreError | None:
            try:
                return await self._shards.stores[index].catalog.session_of_request(request_id)
            except StoreError as exc:
                return self._shards.named(index, exc)

        tasks = [asyncio.ensure_future(ask(index)) for index in range(len(self._shards.stores))]
        error: StoreError | None = None
        try:
            for answer in asyncio.as_completed(tasks):
                found = await answer
                if isinstance(found, str):
                    return found
                error = error or found
        finally:
            await _cancel(tasks)
        if error is not None:
            raise error
        return None


def _place_in_list(session: ListedSession) -> tuple[bool, str]:
    return session.record.pinned, session.record.created_at


class _ShardedOwnership:
    """The `Ownership` of all databases."""

    def __init__(self, shards: _Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock

    async def claim(self, session_id: str) -> Lease:
        return await self._shards.of(session_id).ownership.claim(session_id)

    async def call(self, session_id: str, command: bytes) -> bytes:
        return await self._shards.of(session_id).ownership.call(session_id, command)

    @asynccontextmanager
    async def serve(self, handler: CommandHandler) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for store in self._shards.stores:
                await stack.enter_async_context(store.ownership.serve(handler))
            yield

    def orphans(self, *, follow: bool = False) -> AsyncGenerator[str]:
        """Return the ids of orphans, for each database with the oldest running turn first.

        With `follow`, a database that fails is asked again after a pause; the other databases do not wait for it.
        """
        return _merged([*map(self._follow, range(len(self._shards.stores)))]) if follow else self._orphans()

    async def _orphans(self) -> AsyncGenerator[str]:
        for session_ids in await self._shards.ask_all(_list_orphans):
            for session_id in session_ids:
                yield session_id

    async def _follow(self, index: int) -> AsyncGenerator[str]:
        while True:
            try:
                found = self._shards.stores[index].ownership.orphans(follow=True)
                try:
                    async for session_id in found:
                        yield session_id
                    return
                finally:
                    await found.aclose()
            except StoreError as exc:
                error = self._shards.named(index, exc)
                _log.error("sessions without an owner cannot be listed; retrying", error=str(error))
            await self._clock.sleep(_PAUSE_SECONDS)


async def _list_orphans(store: Shard) -> list[str]:
    return [session_id async for session_id in store.ownership.orphans()]


async def _merged(sources: Sequence[AsyncGenerator[str]]) -> AsyncGenerator[str]:
    """Yield the items of all sources as they come, and close them."""
    pending = {asyncio.ensure_future(anext(source)): source for source in sources}
    try:
        while pending:
            for task in (await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))[0]:
                source = pending.pop(task)
                try:
                    item = task.result()
                except StopAsyncIteration:
                    continue
                yield item
                pending[asyncio.ensure_future(anext(source))] = source
    finally:
        await _cancel(pending)
        for source in sources:
            await source.aclose()


async def _cancel(tasks: Collection[asyncio.Future[T]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _ShardedBlobs:
    """The `Blobs` of all databases; each content is in the database of its session."""

    def __init__(self, shards: _Shards) -> None:
        self._shards = shards

    def _of(self, session_id: str) -> ShardBlobs:
        blobs = self._shards.of(session_id).blobs
        assert blobs is not None
        return blobs

    async def put(
        self, session_id: str, content: bytes, *, synced: bool = True, retention: Retention = "limited"
    ) -> str:
        return await self._of(session_id).put(session_id, content, synced=synced, retention=retention)

    async def remove(self, session_id: str, digests: Collection[str]) -> None:
        await self._of(session_id).remove(session_id, digests)

    async def get(self, session_id: str, digest: str) -> bytes | None:
        return await self._of(session_id).get(session_id, digest)

    def read(self, session_id: str, digest: str) -> bytes | None:
        return self._of(session_id).read(session_id, digest)

    async def retentions(self, session_id: str, digest: str) -> Collection[Retention]:
        return await self._of(session_id).retentions(session_id, digest)

    async def share(self, session_id: str, other_id: str, digests: Collection[str]) -> None:
        """Give the session `other_id` the contents with these digests; they are copied if it is in another database."""
        source, target = self._of(session_id), self._of(other_id)
        if self._shards.index(session_id) == self._shards.index(other_id):
            await source.share(session_id, other_id, digests)
            return
        for digest in digests:
            if (content := await source.get(session_id, digest)) is not None:
                for retention in await source.retentions(session_id, digest):
                    await target.put(other_id, content, retention=retention)

    async def forget(self, session_id: str) -> None:
        await self._of(session_id).forget(session_id)

    async def contents(self, session_id: str) -> Sequence[tuple[str, Retention]]:
        return await self._of(session_id).contents(session_id)
