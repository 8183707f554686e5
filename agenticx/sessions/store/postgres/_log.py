"""The log of a PostgreSQL store: the newest events from memory, all others from the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from operator import attrgetter
from typing import TypeVar

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.sessions.log.commits import SessionState
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import Position, StoredEvent
from agenticx.sessions.log.records import FactT
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.store.base import Durability
from agenticx.sessions.store.postgres import _rows as rows
from agenticx.sessions.store.postgres._connection import PostgresConnection
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._packing import MAX_SPAN
from agenticx.sessions.store.postgres._text import from_text
from agenticx.sessions.store.postgres.schema import POSITION_BITS
from agenticx.sessions.store.segments import PAGE_BYTES, decode_segment

__all__ = ["PostgresLog"]

T = TypeVar("T")

_ROWS_AT_ONCE = 128
_AGAIN_SECONDS = 0.01

_log = get_logger(__name__)

_PAGE_END = """SELECT settled_position() AS settled, max(last), count(*), EXISTS (
                   SELECT FROM commits WHERE position > settled_position())
               FROM (SELECT last FROM (
                   (SELECT last_position AS last FROM segments WHERE last_position > $1 ORDER BY 1 LIMIT $2)
                   UNION ALL (SELECT position FROM commits WHERE position > $1 ORDER BY 1 LIMIT $2)
               ) AS both_kinds ORDER BY 1 LIMIT $2) AS first_ones"""
_PAGE = """SELECT sessions.id, last_seq, packed, found.position, body FROM (
               SELECT session, last_seq, true AS packed, last_position AS position, body FROM segments
               WHERE last_position > $1 AND last_position <= $2::bigint + $3::bigint AND first_position <= $2
               UNION ALL
               SELECT session, last_seq, false, position, body FROM commits
               WHERE position > $1 AND position <= $2 AND body <> ''
           ) AS found JOIN sessions ON sessions.number = found.session WHERE sessions.id IS NOT NULL"""


class PostgresLog:
    """The `Log` of a database that many workers write."""

    is_shared = True

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @property
    def durability(self) -> Durability:
        return self._database.durability

    @property
    def log_id(self) -> str:
        return self._database.log_id

    async def _use(self, work: Callable[[PostgresConnection], Awaitable[T]], *, is_snapshot: bool = True) -> T:
        await self._database.start()
        return await self._database.server.use(work, is_snapshot=is_snapshot)

    async def head(self, session_id: str) -> int:
        async def work(connection: PostgresConnection) -> int:
            async with _reading(connection, session_id) as number:
                return (await rows.log_end(connection, number)).last_seq

        return await self._use(work, is_snapshot=False)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        if (recent := self._database.follower.after(session_id, after, limit)) is not None:
            return recent

        async def work(connection: PostgresConnection) -> Sequence[StoredEvent]:
            async with _reading(connection, session_id) as number:
                return await rows.events_after(connection, session_id, number, after, limit)

        return await self._use(work, is_snapshot=False)

    async def last_events(self, session_ids: Collection[str]) -> Mapping[str, StoredEvent]:
        follower = self._database.follower
        known = {id_: event for id_ in session_ids if (event := follower.last_event(id_)) is not None}
        unknown = [id_ for id_ in session_ids if id_ not in known]
        if not unknown:
            return known
        return known | await self._use(lambda connection: rows.last_events(connection, unknown), is_snapshot=False)

    async def turn(
        self, session_id: str, turn_id: str | None = None, *, client_turn_id: str | None = None
    ) -> TurnRecord | None:
        return await self._use(lambda connection: rows.find_turn(connection, session_id, turn_id, client_turn_id))

    async def state(self, session_id: str) -> SessionState:
        return await self._use(lambda connection: rows.read_state(connection, session_id))

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        return await self._use(lambda connection: rows.read_compacted(connection, session_id))

    async def facts(self, session_id: str, *types: type[FactT], key: str | None = None) -> Sequence[FactT]:
        async def work(connection: PostgresConnection) -> Sequence[FactT]:
            return await rows.find_facts(connection, await rows.session_number(connection, session_id), types, key)

        return await self._use(work)

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        return self._database.follower.subscribe(session_id, wakeup)

    # --- the log of all sessions --------------------------------------------------------------------------------------

    async def position(self, given: int | None = None) -> Position | None:
        await self._database.start()
        ((last,),) = await self._database.server.fetch("SELECT settled_position()")
        return Position(last if given is None else given) if given is None or given <= last else None

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        """Return events up to the settled position: no event can appear before it any more."""
        return await self._use(lambda connection: self._page(connection, after, limit))

    async def _page(self, connection: PostgresConnection, after: int, limit: int) -> Sequence[StoredEvent]:
        events, size = list[StoredEvent](), 0
        while True:
            ((settled, last, count, has_more),) = await connection.fetch(_PAGE_END, after, _ROWS_AT_ONCE)
            until = settled if count < _ROWS_AT_ONCE else min(last | (1 << POSITION_BITS) - 1, settled)
            if has_more and until == settled:  # what has just ended can be read in a moment
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._database.follower.notifier.notify_of_any)
            if not count or until <= after:
                return events
            for event in await _events_between(connection, after, until):
                events.append(event)
                size += len(event.frame_json)
                if len(events) == limit or size >= PAGE_BYTES:
                    return events
            after = until


@asynccontextmanager
async def _reading(connection: PostgresConnection, session_id: str) -> AsyncGenerator[int]:
    """Yield the session's key; rows that are missing because it was deleted meanwhile raise `SessionNotFound`."""
    number = await rows.session_number(connection, session_id)
    try:
        yield number
    except DamagedData:
        await rows.session_number(connection, session_id)
        raise


async def _events_between(connection: PostgresConnection, after: int, until: int) -> Sequence[StoredEvent]:
    """Return the events of all sessions at the positions after `after` up to `until`, in order."""
    events = list[StoredEvent]()
    for id_, last_seq, packed, position, body in await connection.fetch(_PAGE, after, until, MAX_SPAN):
        try:
            if packed:
                some = decode_segment(from_text(id_), last_seq, body, compressed=True)
            else:
                some = rows.decode_commit(from_text(id_), last_seq, position, body)
        except DamagedData as exc:
            _log.error("corrupt row skipped", error=str(exc))
            continue
        events += (event for event in some if after < event.position <= until)
    return sorted(events, key=attrgetter("position"))
