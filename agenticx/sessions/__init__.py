"""Sessions: the store protocol, its implementations, and the hub that runs turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.sessions.history.export import export_jsonl, export_markdown
    from agenticx.sessions.history.fork import fork
    from agenticx.sessions.history.transcript import MessageNotFound, read_messages, transcript
    from agenticx.sessions.hub.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
    from agenticx.sessions.hub.session_fields import WorkspaceGone
    from agenticx.sessions.hub.submission import Submission
    from agenticx.sessions.log.commits import Commit, SessionState, StateChange
    from agenticx.sessions.log.damage import DamagedData
    from agenticx.sessions.log.events import Position, SessionEvent, StoredEvent
    from agenticx.sessions.log.records import Fact
    from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
    from agenticx.sessions.log.usage import DailyUsage, UsageCounts
    from agenticx.sessions.store.base import (
        ArchivedFilter,
        Catalog,
        Durability,
        Lease,
        ListedSession,
        Log,
        NoOwner,
        OutcomeUnknown,
        Ownership,
        OwnershipLost,
        SessionOwnedElsewhere,
        Store,
        TurnEnded,
        read_log_pages,
    )
    from agenticx.sessions.store.blobs import BlobFolder, Blobs, MemoryBlobs
    from agenticx.sessions.store.factory import open_store
    from agenticx.sessions.store.memory import MemoryStore
    from agenticx.sessions.store.owner import OwnedElsewhere
    from agenticx.sessions.store.postgres import PostgresStore as PostgresStore
    from agenticx.sessions.store.search import SearchExcerpt
    from agenticx.sessions.store.sharded import ShardedStore
    from agenticx.sessions.store.sqlite import SqliteStore, VersionMismatch

__all__ = [  # without PostgresStore, which needs the extra postgres: `import *` works without it
    "ArchivedFilter",
    "BlobFolder",
    "Blobs",
    "Catalog",
    "Commit",
    "DailyUsage",
    "DamagedData",
    "Durability",
    "Fact",
    "Hub",
    "HubClosed",
    "Lease",
    "ListedSession",
    "Log",
    "MemoryBlobs",
    "MemoryStore",
    "MessageNotFound",
    "NoOwner",
    "OutcomeUnknown",
    "OwnedElsewhere",
    "Ownership",
    "OwnershipLost",
    "Position",
    "SearchExcerpt",
    "SessionEvent",
    "SessionOwnedElsewhere",
    "SessionRecord",
    "SessionState",
    "ShardedStore",
    "SqliteStore",
    "StateChange",
    "Store",
    "StoredEvent",
    "Submission",
    "TurnConflict",
    "TurnEnded",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "UsageCounts",
    "VersionMismatch",
    "WorkspaceGone",
    "export_jsonl",
    "export_markdown",
    "fork",
    "open_store",
    "read_log_pages",
    "read_messages",
    "transcript",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.sessions.history.export": ["export_jsonl", "export_markdown"],
        "agenticx.sessions.history.fork": ["fork"],
        "agenticx.sessions.history.transcript": ["MessageNotFound", "read_messages", "transcript"],
        "agenticx.sessions.hub.hub": ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"],
        "agenticx.sessions.hub.session_fields": ["WorkspaceGone"],
        "agenticx.sessions.hub.submission": ["Submission"],
        "agenticx.sessions.log.commits": ["Commit", "SessionState", "StateChange"],
        "agenticx.sessions.log.damage": ["DamagedData"],
        "agenticx.sessions.log.events": ["Position", "SessionEvent", "StoredEvent"],
        "agenticx.sessions.log.records": ["Fact"],
        "agenticx.sessions.log.session_record": ["SessionRecord", "TurnRecord"],
        "agenticx.sessions.log.usage": ["DailyUsage", "UsageCounts"],
        "agenticx.sessions.store.base": [
            "ArchivedFilter",
            "Catalog",
            "OutcomeUnknown",
            "Durability",
            "Lease",
            "ListedSession",
            "Log",
            "NoOwner",
            "Ownership",
            "OwnershipLost",
            "SessionOwnedElsewhere",
            "Store",
            "TurnEnded",
            "read_log_pages",
        ],
        "agenticx.sessions.store.blobs": ["BlobFolder", "Blobs", "MemoryBlobs"],
        "agenticx.sessions.store.factory": ["open_store"],
        "agenticx.sessions.store.memory": ["MemoryStore"],
        "agenticx.sessions.store.owner": ["OwnedElsewhere"],
        "agenticx.sessions.store.postgres": ["PostgresStore"],
        "agenticx.sessions.store.search": ["SearchExcerpt"],
        "agenticx.sessions.store.sharded": ["ShardedStore"],
        "agenticx.sessions.store.sqlite": ["SqliteStore", "VersionMismatch"],
    },
)
