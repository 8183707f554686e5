"""A store in PostgreSQL, which many workers share: design and measurements are in ARCHITECTURE.

1. Commits that arrive while a statement runs are stored together by the next statement, for all sessions of the worker.
   Only the owner of a session can write it, even while a former owner still runs: the epoch in the session's row of
   `fences` and the generation in the worker's row see to that.
2. A worker notifies the others after each commit; they make up for a lost notification within a second.
3. A session that begins with copied events is written in many statements, and gets its id in the last one.
4. A deleted session loses its id in one statement and its rows in many; then its bytes are purged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from typing_extensions import TypedDict, Unpack

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.log.commit_records import session_records
from agenticx.sessions.log.commits import StateChange
from agenticx.sessions.log.events import StoredEvent, copied
from agenticx.sessions.log.records import Fact, StoredRecord
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import Lease, OwnershipLost
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.deletions import Deletions
from agenticx.sessions.store.postgres._blobs import PostgresBlobs
from agenticx.sessions.store.postgres._catalog import PostgresCatalog
from agenticx.sessions.store.postgres._changes import LogHead, changes_of
from agenticx.sessions.store.postgres._connection import AlreadyStored, PostgresConnection, Server
from agenticx.sessions.store.postgres._copies import PostgresCopies
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._log import PostgresLog
from agenticx.sessions.store.postgres._new_sessions import ADD_SEGMENTS, add_session, apply_changes
from agenticx.sessions.store.postgres._opening import Opened, open_database, run_blocking
from agenticx.sessions.store.postgres._ownership import PostgresOwnership
from agenticx.sessions.store.postgres._report import read_workers
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._timelines import KnownTimelines
from agenticx.sessions.store.postgres.schema import PARTITIONS
from agenticx.sessions.store.segments import encode_segments, full_pages
from agenticx.sessions.store.workers import WorkersReport
from agenticx.shared_state.state import SharedState
from agenticx.threads import run_in_thread

__all__ = ["PostgresStore"]

_TIMEOUT_SECONDS = 30.0
_CHECK_SECONDS = 1.0  # a probe of a load balancer and `find_studio` wait a little longer
_SPACE_BYTES = 256 * 1024  # more than a table has free in the pages that there are
_RECORDS_AT_ONCE = 64

_log = get_logger(__name__)

_ADD_COMMIT = """INSERT INTO commits (session, rev, commit_id, last_seq, position, body)
    VALUES ($1, 1, $2, $3, position_base() + 1, '')"""


_NEED_SPACE = "INSERT INTO commands (id, worker, session_id, body) VALUES ($1, '', '', $2)"
"""A command for no worker; it is removed like any command that no worker has taken."""


class _Options(TypedDict, total=False):
    """The arguments of a `PostgresStore`."""

    clock: Clock | None
    blobs: Blobs | None
    shared: SharedState | None
    timeout: float
    lease: float
    polls: bool
    timelines: KnownTimelines | None
    partitions: int
    configuration: Callable[[], Mapping[str, str]]


class PostgresStore:
    """A `Store` in the database of `url`; this process is a worker of it. An empty database gets its tables.

    The constructor blocks until the server has answered: on an event loop, use `await PostgresStore.open(url)`, which
    passes the result of its checks as `opened`.

    `blobs` has the contents of limited retention, which stay on this host; `aclose` closes `shared`. `timeout` and
    `lease` are nominal seconds. `timelines` are the newest timelines that earlier processes have written.
    `configuration` returns digests for the report on workers; it is called in a thread.

    Raises `StoreError` for a server or database that cannot be used, `SettingsError` if it cannot be found.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        blobs: Blobs | None = None,
        shared: SharedState | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        lease: float = 10.0,
        polls: bool = False,
        timelines: KnownTimelines | None = None,
        partitions: int = PARTITIONS,
        configuration: Callable[[], Mapping[str, str]] = dict[str, str],
        opened: Opened | None = None,
    ) -> None:
        clock = clock or SystemClock()
        if opened is None:
            opening = Server(url, clock=clock, timeout=timeout, is_pooled=polls, timelines=timelines)
            opened = run_blocking("agx store opening", open_database(opening, partitions=partitions))
        server = Server(url, clock=clock, timeout=timeout, is_pooled=polls, timelines=timelines)
        self.name = server.name
        self._database = PostgresDatabase(server, opened, clock, lease=lease, configuration=configuration)
        self.log = PostgresLog(self._database)
        self.catalog = PostgresCatalog(self._database)
        self.ownership = PostgresOwnership(self._database)
        self.blobs = PostgresBlobs(server, blobs)
        self.copies = PostgresCopies(self._database, self.ownership)
        self.shared = shared
        self._deletions = Deletions()

    @classmethod
    async def open(cls, url: str, **options: Unpack[_Options]) -> PostgresStore:
        """Return the store that `PostgresStore(url, **options)` makes, without blocking the event loop."""
        clock, timeout = options.get("clock") or SystemClock(), options.get("timeout", _TIMEOUT_SECONDS)
        server = Server(
            url,
            clock=clock,
            timeout=timeout,
            is_pooled=options.get("polls", False),
            timelines=options.get("timelines"),
        )
        opened = await open_database(server, partitions=options.get("partitions", PARTITIONS))
        return cls(url, opened=opened, **options)

    @property
    def address(self) -> str:
        """The URL at which this worker serves; others see it from its next heartbeat on."""
        return self._database.worker.address

    @address.setter
    def address(self, address: str) -> None:
        self._database.worker.address = address

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: AsyncIterable[Sequence[StoredEvent]] | None = None,
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        await self._database.start()
        make_records = partial(session_records, record, LogHead(), texts=texts, state=state, facts=facts)
        messages = () if state is None else state.messages
        if initial_events is not None:
            return await self._create_in_parts(record, initial_events, make_records, messages)
        before, after = make_records(copied_count=0)

        async def work(connection: PostgresConnection) -> None:
            async with connection.transaction():
                known = await connection.fetch("SELECT FROM sessions WHERE id = $1", to_text(record.id))
                if known:  # the outcome of an earlier attempt was unknown
                    return
                number = await add_session(connection, record, self._database.worker.id, is_complete=True)
                await connection.fetch(_ADD_COMMIT, number, new_id("cmt"), 0)
                await apply_changes(connection, number, changes_of(number, [*before, *after], restored=messages))

        try:
            await self._database.server.use(work)
        except AlreadyStored:  # by an earlier attempt that was still under way when this one looked
            await self.catalog.get(record.id)

    async def _create_in_parts(
        self,
        record: SessionRecord,
        pages: AsyncIterable[Sequence[StoredEvent]],
        make_records: Any,
        messages: Sequence[Any],
    ) -> None:
        """Create a session in many short transactions; it becomes visible, complete, with the last one."""
        server, commit_id, count = self._database.server, new_id("cmt"), 0
        (number,) = await server.use(lambda connection: self._begin(connection, record))
        try:
            async for events in full_pages(pages):
                count += len(events)
                segments = [*encode_segments(copied(events), number, rev=1, commit_id=commit_id, position=0)]
                columns = [list(column) for column in zip(*segments, strict=True)]
                await self._once(partial(_fetch, query=ADD_SEGMENTS, args=(number, *columns)))
            before, after = await run_in_thread(make_records, copied_count=count, name="agx copy")
            placed: list[StoredRecord] = [*before, *after]
            for start in range(0, len(placed), _RECORDS_AT_ONCE):
                some = changes_of(number, placed[start : start + _RECORDS_AT_ONCE], restored=messages)
                await self._once(partial(apply_changes, number=number, changes=some))
            await self._once(partial(_fetch, query=_ADD_COMMIT, args=(number, commit_id, count)))
            await self._once(
                partial(
                    _fetch,
                    query="UPDATE sessions SET id = $2, hidden_id = NULL, hidden_by = NULL WHERE number = $1",
                    args=(number, to_text(record.id)),
                )
            )
        except BaseException:
            with suppress(StoreError):  # logged already
                await self._deletions.finish(self._database.maintenance.remove(number, record.id))
            raise

    async def _begin(self, connection: PostgresConnection, record: SessionRecord) -> tuple[int]:
        return (await add_session(connection, record, self._database.worker.id, is_complete=False),)

    async def _once(self, work: Any) -> None:
        """Write a part of a session that is not complete, on a connection of the pool, without trying again."""
        async with self._database.server.connection() as connection:
            await work(connection)

    async def delete(self, lease: Lease) -> None:
        await lease.check()
        await self._deletions.finish(self._delete(lease.session_id))

    async def _delete(self, session_id: str) -> None:
        database, lease = self._database, self.ownership.lease(session_id)
        if lease is None:
            raise OwnershipLost(f"session {session_id!r} has another owner")
        ((is_hidden,),) = await database.server.fetch(
            "SELECT hide_session($1, $2, $3)", lease.number, lease.epoch, database.worker.id
        )
        self.ownership.remove(session_id)
        if not is_hidden:
            raise OwnershipLost(f"session {session_id!r} has another owner")
        database.follower.removed(session_id)
        await database.maintenance.remove(lease.number, session_id)

    async def check(self) -> None:
        database = self._database
        server, worker = database.server, database.worker
        if worker.refusal is not None:
            raise worker.refusal
        if database.writer.error is None and server.error is None and server.full is None and not worker.is_late:
            return
        query = "UPDATE workers SET seen = clock_timestamp() WHERE id = $1"
        try:
            async with asyncio.timeout(_CHECK_SECONDS), server.connection() as connection:
                await connection.fetch(query, worker.id)
                if server.full is not None:
                    await connection.fetch(_NEED_SPACE, new_id("probe"), os.urandom(_SPACE_BYTES))
        except TimeoutError as exc:
            raise StoreError(f"{server.name} has not stored a probe within {_CHECK_SECONDS:g} s") from exc
        database.writer.error = server.error = server.full = None

    async def workers(self) -> WorkersReport:
        await self._database.start()
        server, worker, follower = self._database.server, self._database.worker, self._database.follower

        async def work(connection: PostgresConnection) -> WorkersReport:
            return await read_workers(connection, server.name, worker_id=worker.id, lag_seconds=follower.lag_seconds)

        return await server.use(work)

    async def aclose(self) -> None:
        await self._deletions.wait()
        await self._database.close()
        if self.shared is not None:
            await run_in_thread(self.shared.close, name="agx shared state")


async def _fetch(connection: PostgresConnection, *, query: str, args: tuple[Any, ...]) -> None:
    await connection.fetch(query, *args)
