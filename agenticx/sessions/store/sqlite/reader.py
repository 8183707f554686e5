"""Sessions read from a database file that another process owns, without writing to it or locking it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from agenticx.errors import StoreError
from agenticx.sessions.store.base import ArchivedFilter, SearchResult
from agenticx.sessions.store.records import SessionRecord, StoredEvent
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import last_seq, session_number
from agenticx.sessions.store.sqlite._file import map_file_errors, require_database_file
from agenticx.sessions.store.sqlite._threads import Reader
from agenticx.sessions.store.sqlite._usage import read_usage
from agenticx.sessions.store.sqlite.migrations import MIGRATIONS, applied_migrations
from agenticx.sessions.store.usage import DailyUsage

__all__ = ["SqliteReader"]

_BUSY_SECONDS = 5.0


class SqliteReader:
    """The `StoreReader` of a database file; raises `StoreError` for one whose owner is another release."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        require_database_file(self._path)
        with map_file_errors(self._path), closing(self._connect()) as connection:
            if len(applied_migrations(connection)) < len(MIGRATIONS):
                raise StoreError("its owner is an older AgenticX; end that")
        self._reader = Reader(self._connect, "agx store reader")

    async def get(self, session_id: str) -> SessionRecord:
        """Return a session's record; raises `SessionNotFound`."""
        return await self._reader.submit(
            lambda connection: rows.read_record(connection, session_number(connection, session_id))
        )

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SessionRecord]:
        """Return sessions, as `Catalog.sessions` does."""
        return await self._reader.submit(
            lambda connection: rows.list_records(connection, limit=limit, before=before, archived=archived)
        )

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SearchResult]:
        """Return the sessions that match, as `Catalog.search` does."""
        return await self._reader.submit(
            lambda connection: index.search(connection, query, limit=limit, before=before, archived=archived)
        )

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        """Return the usage of model calls, as `Catalog.usage` does."""
        return await self._reader.submit(
            lambda connection: read_usage(connection, session_id=session_id, since=since, until=until)
        )

    async def running_turns(self, session_ids: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the running turns of these sessions by session id."""
        return await self._reader.submit(lambda connection: turns.running_turn_ids(connection, session_ids))

    async def head(self, session_id: str) -> int:
        """Return the number of a session's last event, as `Log.head` does."""
        return await self._reader.submit(
            lambda connection: last_seq(connection, session_number(connection, session_id))
        )

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return events of a session, as `Log.read` does."""
        return await self._reader.submit(lambda connection: rows.events_after(connection, session_id, after, limit))

    def close(self) -> None:
        """End the reading thread."""
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode=ro"  # never immutable: the owner writes meanwhile
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _decode_text
        return connection


def _decode_text(stored: bytes) -> str:
    return stored.decode(errors="replace")
