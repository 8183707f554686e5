"""The tables of a database that are made of its log, compared with the log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agenticx.sessions.store.sqlite.projections import differences

__all__ = ["different_tables"]


def different_tables(copy: Path) -> list[str]:
    """Return the differences in a copy of a database, whose write-ahead log SQLite applies."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        return list(differences(connection))
