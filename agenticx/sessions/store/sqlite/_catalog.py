"""The catalog of a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from agenticx.sessions.store.base import ArchivedFilter, SearchResult
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.events import StoredEvent
from agenticx.sessions.store.records import Fact
from agenticx.sessions.store.session_record import SessionRecord
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import session_number
from agenticx.sessions.store.sqlite._threads import Reader, Writer
from agenticx.sessions.store.sqlite._usage import read_usage
from agenticx.sessions.store.usage import DailyUsage

__all__ = ["SqliteCatalog"]


class SqliteCatalog:
    """The `Catalog` of one database, which never lags.

    A search index that is found to be damaged is rebuilt by the owner of the database, which has a `writer`.
    """

    def __init__(self, reader: Reader, writer: Writer | None = None) -> None:
        self._reader, self._writer = reader, writer

    async def get(self, session_id: str) -> SessionRecord:
        return await self._reader.submit(
            lambda connection: rows.read_record(connection, session_number(connection, session_id))
        )

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SessionRecord]:
        return await self._reader.submit(
            lambda connection: rows.list_records(connection, limit=limit, before=before, archived=archived)
        )

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SearchResult]:
        def work(connection: sqlite3.Connection) -> Sequence[SearchResult]:
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

    async def running_turns(self, session_ids: Collection[str]) -> Mapping[str, str]:
        return await self._reader.submit(lambda connection: turns.running_turn_ids(connection, session_ids))

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        return await self._reader.submit(lambda connection: rows.open_requests(connection, session_id))

    async def session_of(self, type_: type[Fact], key: str) -> str | None:
        return await self._reader.submit(lambda connection: rows.find_session_of_fact(connection, type_, key))
