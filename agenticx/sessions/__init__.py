"""What is remembered, and who runs: the store's protocol, the store in memory, and the hub that owns running turns."""

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
from agenticx.sessions.posting import Posted
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
    "Posted",
    "SearchExcerpt",
    "SearchResult",
    "SequenceConflict",
    "SessionRecord",
    "SessionState",
    "SqliteStore",
    "Store",
    "StoredEvent",
    "TurnConflict",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "UsageCounts",
    "transcript",
]
