"""A session store in one SQLite file, which one process owns at a time."""

from __future__ import annotations

from agenticx.sessions.store.sqlite.schema import VersionMismatch
from agenticx.sessions.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "VersionMismatch"]
