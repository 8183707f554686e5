"""The check of a database file that no process owns. It does not change the file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

from agenticx.sessions.store.sqlite._file import check_integrity, map_file_errors, read_only_uri, require_database_file

__all__ = ["FileState", "check_database"]

FileState = Literal["missing", "has unapplied log", "intact"]
"""The state of a usable file; `missing` also for an empty one, `has unapplied log` for one that is not checked."""


def check_database(path: Path) -> FileState:
    """Return the state of a database file; raise `StoreError` for one that no process could open."""
    require_database_file(path)
    with map_file_errors(path):
        if not path.exists() or not path.stat().st_size:
            return "missing"
        if _has_log(path):
            return "has unapplied log"
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
            check_integrity(connection)
    return "intact"


def _has_log(path: Path) -> bool:
    """Return whether SQLite would have to write a file in order to read the database.

    SQLite writes the -shm file of a write-ahead log, and the database itself if its creation was cut off.
    """
    log, index, journal = (path.with_name(f"{path.name}-{suffix}") for suffix in ("wal", "shm", "journal"))
    return journal.exists() or (log.exists() and log.stat().st_size > 0 and not index.exists())
