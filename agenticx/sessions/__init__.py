"""Sessions: the store protocol, its implementations, and the hub that runs turns."""

from __future__ import annotations

from agenticx.sessions.base import (
    ArchivedFilter,
    JournalEntry,
    SearchResult,
    SequenceConflict,
    SessionRecord,
    SessionState,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
from agenticx.sessions.memory import MemoryStore
from agenticx.sessions.posting import Submission
from agenticx.sessions.search import SearchExcerpt
from agenticx.sessions.sqlite import SqliteStore
from agenticx.sessions.sqlite.owner import OwnedElsewhere
from agenticx.sessions.transcript import transcript
from agenticx.sessions.usage import DailyUsage, UsageCounts

__all__ = [
    "ArchivedFilter",
    "DailyUsage",
    "Hub",
    "HubClosed",
    "JournalEntry",
    "MemoryStore",
    "OwnedElsewhere",
    "SearchExcerpt",
    "SearchResult",
    "SequenceConflict",
    "SessionRecord",
    "SessionState",
    "SqliteStore",
    "Store",
    "StoredEvent",
    "Submission",
    "TurnConflict",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "UsageCounts",
    "transcript",
]
