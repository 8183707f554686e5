"""Sessions read from a database file that another process owns, without writing to it or locking it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.sqlite._catalog import SqliteCatalog
from agenticx.sessions.store.sqlite._file import map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite._log import SqliteSessionLog
from agenticx.sessions.store.sqlite._threads import Reader

__all__ = ["SqliteReader"]

_BUSY_SECONDS = 5.0


class SqliteReader:
    """The `StoreReader` of a database file.

    Raises `StoreError` for a file that cannot be read, for example of another version.
    """

    def __init__(self, path: Path, *, blobs: Blobs) -> None:
        self._path = path.resolve()
        self.blobs = blobs
        require_database_file(self._path)
        with map_file_errors(self._path), closing(self._connect()) as connection:
            connection.execute("SELECT 1 FROM sessions LIMIT 1")
        self._reader = Reader(self._connect, "agx store reader")
        self.log = SqliteSessionLog(self._reader)
        self.catalog = SqliteCatalog(self._reader)

    async def aclose(self) -> None:
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
