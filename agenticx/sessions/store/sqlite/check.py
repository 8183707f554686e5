"""The check of a database file that no process owns, which does not change it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

from agenticx.sessions.store.sqlite._file import check_integrity, map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite.migrations import applied_migrations

__all__ = ["FileState", "check_database"]

FileState = Literal["missing", "has unapplied log", "intact"]
"""The state of a usable file; `missing` also for an empty one, `has unapplied log` for one that is not checked."""


def check_database(path: Path) -> FileState:
    """Return the state of a database file; raise `StoreError` for one that no process could open."""
    require_database_file(path)
    with map_file_errors(path):
        if not path.exists() or not path.stat().st_size:
            return "missing"
        if _has_log_without_index(path):
            return "has unapplied log"
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
            applied_migrations(connection)
            check_integrity(connection)
    return "intact"


def _has_log_without_index(path: Path) -> bool:
    """Return whether SQLite would have to create the -shm file in order to read the database."""
    log, index = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    return log.exists() and log.stat().st_size > 0 and not index.exists()
