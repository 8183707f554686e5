"""The store in one SQLite file, which one process owns at a time."""

from __future__ import annotations

from agenticx.sessions.sqlite.owner import OwnedElsewhere, Owner, owner_of
from agenticx.sessions.sqlite.store import SqliteStore

__all__ = ["OwnedElsewhere", "Owner", "SqliteStore", "owner_of"]
