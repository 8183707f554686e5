"""The catalog of a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.base import ArchivedFilter, ListedSession, ListPlace
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite._cursors import session_number
from agenticx.sessions.store.sqlite._threads import Reader, Writer
from agenticx.sessions.store.sqlite._usage import read_costs, read_usage

__all__ = ["SqliteCatalog"]


class SqliteCatalog:
    """The `Catalog` of one database, which never lags.

    If a search finds its index damaged, the owner of the database, which has a `writer`, rebuilds the index.
    """

    def __init__(self, reader: Reader, writer: Writer | None = None) -> None:
        self._reader, self._writer = reader, writer

    async def get(self, session_id: str) -> SessionRecord:
        return await self._reader.submit(
            lambda connection: rows.read_record(connection, session_number(connection, session_id))
        )

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | ListPlace | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        def work(connection: sqlite3.Connection) -> Sequence[ListedSession]:
            if query is None:
                return rows.list_sessions(connection, limit=limit, before=before, archived=archived)
            return index.search(connection, query, limit=limit, before=before, archived=archived)

        try:
            return await self._reader.submit(work)
        except DamagedData:
            if self._writer is not None:
                await self._writer.submit(index.mark_damaged)
            raise

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        return await self._reader.submit(
            lambda connection: read_usage(connection, session_id=session_id, since=since, until=until)
        )

    async def costs(self, session_ids: Collection[str]) -> Mapping[str, Decimal]:
        return await self._reader.submit(lambda connection: read_costs(connection, session_ids))

    async def working_sessions(self, session_ids: Collection[str]) -> Mapping[str, str]:
        turns = await self._reader.submit(rows.working_sessions)
        return {session_id: turns[session_id] for session_id in session_ids if session_id in turns}

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        return await self._reader.submit(lambda connection: rows.open_requests(connection, session_id))

    async def session_of_request(self, request_id: str) -> str | None:
        return await self._reader.submit(lambda connection: rows.session_of_request(connection, request_id))
