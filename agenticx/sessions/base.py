"""What is remembered of sessions: the records, the stored event, and the protocol every store keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from agenticx.errors import StoreError
from agenticx.messages import new_id
from agenticx.runtime.events import EventType, RuntimeEvent, encode_envelope
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "SequenceConflict",
    "SessionRecord",
    "Store",
    "StoredEvent",
    "TurnRecord",
    "encode_events",
]


class SequenceConflict(StoreError):
    """Somebody else appended to the session first; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """What a session is apart from its events. `tools` None means all; `model` None means the default one."""

    id: str = field(default_factory=lambda: new_id("ses"))
    name: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    workspace: str
    tools: tuple[str, ...] | None = None
    pinned: bool = False
    archived: bool = False
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One claimed turn. `after_seq` is the sequence number just before its first event, None until that is stored.

    `attached` is the fingerprint of what came with the input, "" for nothing.
    """

    id: str = field(default_factory=lambda: new_id("turn"))
    session_id: str
    input: str
    attached: str = ""
    client_turn_id: str | None = None
    after_seq: int | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as it lies in the log.

    `seq` counts within the session from 1 without gaps, `position` rises over the whole log (gaps allowed).
    `frame_json` is the encoded envelope: encoded once, the same bytes for every reader and every replay.
    """

    session_id: str
    turn_id: str | None
    seq: int
    position: int
    type: EventType
    terminal: bool
    frame_json: bytes


class Store(Protocol):
    """Where sessions and their events are kept.

    What `append` returned is durable and visible to readers; what it did not return is neither. All methods that
    name a session raise `SessionNotFound` when there is none, and `StoreError` when the storage fails.
    """

    @property
    def log_id(self) -> str:
        """Names this log, for as long as it exists: positions of another log mean nothing here."""
        ...

    async def create(self, record: SessionRecord) -> None: ...
    async def get(self, session_id: str) -> SessionRecord: ...

    async def sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[SessionRecord]:
        """Newest first; `before` is the id of the last one already known (an unknown id matches nothing)."""
        ...

    async def update(self, record: SessionRecord) -> None: ...

    async def delete(self, session_id: str) -> None:
        """Forget the session with all its events; its readers are woken."""
        ...

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        """Make `turn` the running turn of its session, atomically.

        Returns `turn`; or, if its `client_turn_id` was claimed before, that earlier turn, running or over.
        Raises `SessionBusy` while another turn runs. Either exception leaves no trace.
        """
        ...

    async def release(self, turn: TurnRecord) -> None:
        """Free the session of a turn that ended without a stored terminal event; forget it if it stored nothing."""
        ...

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None: ...

    async def append(
        self, session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, expected_seq: int
    ) -> Sequence[StoredEvent]:
        """Add `events` right behind `expected_seq`, all or none; `SequenceConflict` if that is not the last.

        A terminal event of the running turn frees the session in the same step.
        """
        ...

    async def last_seq(self, session_id: str) -> int: ...
    async def last_position(self) -> int: ...

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Up to `limit` events of the session with a higher `seq` than `after`, in order."""
        ...

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        """Up to `limit` events of all sessions with a higher `position` than `after`, in order."""
        ...

    def subscribe(self, session_id: str | None, news: asyncio.Event) -> AbstractContextManager[None]:
        """While the block lasts, set `news` after each append to the session (None: to any). Subscribe, then read."""
        ...


def encode_events(
    session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, seq: int, position: int, ts: str
) -> list[StoredEvent]:
    """`events` as stored right behind `seq` and `position`; a store that leaves gaps in positions numbers its own."""
    return [
        StoredEvent(
            session_id,
            turn_id,
            seq + offset,
            position + offset,
            event.type,
            event.terminal,
            encode_envelope(event, session_id=session_id, turn_id=turn_id, seq=seq + offset, ts=ts),
        )
        for offset, event in enumerate(events, 1)
    ]
