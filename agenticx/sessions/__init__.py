"""Sessions: the store protocol, its implementations, and the hub that runs turns."""

from __future__ import annotations

from agenticx.sessions.base import (
    Archived,
    Found,
    Journalled,
    Keepsake,
    SequenceConflict,
    SessionRecord,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
from agenticx.sessions.memory import MemoryStore
from agenticx.sessions.posting import Submission
from agenticx.sessions.search import Excerpt
from agenticx.sessions.sqlite import SqliteStore
from agenticx.sessions.sqlite.owner import OwnedElsewhere
from agenticx.sessions.transcript import transcript
from agenticx.sessions.usage import Counts, Spent

__all__ = [
    "Archived",
    "Counts",
    "Excerpt",
    "Found",
    "Hub",
    "HubClosed",
    "Journalled",
    "Keepsake",
    "MemoryStore",
    "OwnedElsewhere",
    "SequenceConflict",
    "SessionRecord",
    "Spent",
    "SqliteStore",
    "Store",
    "StoredEvent",
    "Submission",
    "TurnConflict",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "transcript",
]
