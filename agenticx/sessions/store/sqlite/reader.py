"""Sessions read from a database file that another process owns, without writing to it or locking it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.entries import StoredEvent
from agenticx.sessions.store.records import SessionState
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite._catalog import SqliteCatalog
from agenticx.sessions.store.sqlite._cursors import log_end, session_number
from agenticx.sessions.store.sqlite._file import map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite._threads import Reader

__all__ = ["SqliteReader"]

_BUSY_SECONDS = 5.0


class SqliteReader(SqliteCatalog):
    """The `StoreReader` of a database file: its catalog, and the logs and states of its sessions.

    Raises `StoreError` for a file that cannot be read, such as one of another version.
    """

    def __init__(self, path: Path, *, blobs: Blobs) -> None:
        self._path = path.resolve()
        self.blobs = blobs
        require_database_file(self._path)
        with map_file_errors(self._path), closing(self._connect()) as connection:
            connection.execute("SELECT 1 FROM sessions LIMIT 1")
        super().__init__(Reader(self._connect, "agx store reader"))

    async def head(self, session_id: str) -> int:
        """Return the number of a session's last event, as `Log.head` does."""
        return await self._reader.submit(
            lambda connection: log_end(connection, session_number(connection, session_id)).last_seq
        )

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return events of a session, as `Log.read` does."""
        return await self._reader.submit(lambda connection: rows.events_after(connection, session_id, after, limit))

    async def state(self, session_id: str) -> SessionState:
        """Return the state that the session's next turn starts from, as `Log.state` does."""
        return await self._reader.submit(lambda connection: rows.read_state(connection, session_id))

    def close(self) -> None:
        """End the reading thread."""
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        uri = read_only_uri(self._path, has_owner=True)
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _decode_text
        return connection


def _decode_text(stored: bytes) -> str:
    return stored.decode(errors="replace")
