"""Sessions: the store protocol, its implementations, and the hub that runs turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names

if TYPE_CHECKING:
    from agenticx.sessions.history.transcript import transcript
    from agenticx.sessions.hub.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
    from agenticx.sessions.hub.submission import Submission
    from agenticx.sessions.log.commits import Commit, SessionState, StateChange
    from agenticx.sessions.log.events import SessionEvent, StoredEvent
    from agenticx.sessions.log.records import Fact
    from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
    from agenticx.sessions.log.usage import DailyUsage, UsageCounts
    from agenticx.sessions.store.base import ArchivedFilter, Doubtful, Lease, ListedSession, OwnershipLost, Store
    from agenticx.sessions.store.memory import MemoryStore
    from agenticx.sessions.store.owner import OwnedElsewhere
    from agenticx.sessions.store.search import SearchExcerpt
    from agenticx.sessions.store.sqlite import SqliteStore, VersionMismatch

__all__ = [
    "ArchivedFilter",
    "Commit",
    "DailyUsage",
    "Doubtful",
    "Fact",
    "Hub",
    "HubClosed",
    "Lease",
    "ListedSession",
    "MemoryStore",
    "OwnedElsewhere",
    "OwnershipLost",
    "SearchExcerpt",
    "SessionEvent",
    "SessionRecord",
    "SessionState",
    "SqliteStore",
    "StateChange",
    "Store",
    "StoredEvent",
    "Submission",
    "TurnConflict",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "UsageCounts",
    "VersionMismatch",
    "transcript",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agenticx.sessions.history.transcript": ["transcript"],
        "agenticx.sessions.hub.hub": ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"],
        "agenticx.sessions.hub.submission": ["Submission"],
        "agenticx.sessions.log.commits": ["Commit", "SessionState", "StateChange"],
        "agenticx.sessions.log.events": ["SessionEvent", "StoredEvent"],
        "agenticx.sessions.log.records": ["Fact"],
        "agenticx.sessions.log.session_record": ["SessionRecord", "TurnRecord"],
        "agenticx.sessions.log.usage": ["DailyUsage", "UsageCounts"],
        "agenticx.sessions.store.base": [
            "ArchivedFilter",
            "Doubtful",
            "Lease",
            "ListedSession",
            "OwnershipLost",
            "Store",
        ],
        "agenticx.sessions.store.memory": ["MemoryStore"],
        "agenticx.sessions.store.owner": ["OwnedElsewhere"],
        "agenticx.sessions.store.search": ["SearchExcerpt"],
        "agenticx.sessions.store.sqlite": ["SqliteStore", "VersionMismatch"],
    },
)
