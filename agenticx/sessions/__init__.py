"""What is remembered, and who runs: the store's protocol, the store in memory, and the hub that owns running turns."""

from __future__ import annotations

from agenticx.sessions.base import SequenceConflict, SessionRecord, Store, StoredEvent, TurnRecord
from agenticx.sessions.hub import Hub, HubClosed, TurnConflict, TurnFailed, TurnRequest
from agenticx.sessions.memory import MemoryStore
from agenticx.sessions.transcript import transcript

__all__ = [
    "Hub",
    "HubClosed",
    "MemoryStore",
    "SequenceConflict",
    "SessionRecord",
    "Store",
    "StoredEvent",
    "TurnConflict",
    "TurnFailed",
    "TurnRecord",
    "TurnRequest",
    "transcript",
]
