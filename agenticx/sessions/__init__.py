"""Sessions: the store protocol, its implementations, and the hub that runs turns."""

from __future__ import annotations

from agenticx.sessions.history.transcript import transcript
from agenticx.sessions.hub.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
from agenticx.sessions.hub.submission import Submission
from agenticx.sessions.store.base import ArchivedFilter, JournalEntry, SearchResult, SequenceConflict, Store
from agenticx.sessions.store.memory import MemoryStore
from agenticx.sessions.store.records import SessionRecord, SessionState, StoredEvent, TurnRecord
from agenticx.sessions.store.search import SearchExcerpt
from agenticx.sessions.store.sqlite import SqliteStore
from agenticx.sessions.store.sqlite.owner import OwnedElsewhere
from agenticx.sessions.store.usage import DailyUsage, UsageCounts

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
