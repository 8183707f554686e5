"""The store that forgets when the process ends: for tests, for one-off runs, and as the protocol's plain meaning."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import SessionBusy, SessionNotFound
from agenticx.messages import new_id
from agenticx.runtime.events import RuntimeEvent
from agenticx.sessions.base import SequenceConflict, SessionRecord, StoredEvent, TurnRecord, encode_events
from agenticx.sessions.bell import Bell

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Shelf:
    """All that is kept of one session."""

    record: SessionRecord
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    running: str | None = None


class MemoryStore:
    """`Store` in plain lists. No method awaits, so each is atomic on its event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._log_id = new_id("log")
        self._shelves: dict[str, _Shelf] = {}
        self._log: list[StoredEvent] = []
        self._position = 0
        self._bell = Bell()

    @property
    def log_id(self) -> str:
        return self._log_id

    async def create(self, record: SessionRecord) -> None:
        self._shelves[record.id] = _Shelf(record)

    async def get(self, session_id: str) -> SessionRecord:
        return self._shelf(session_id).record

    async def sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[SessionRecord]:
        records = [shelf.record for shelf in reversed(self._shelves.values())]
        if before is not None:
            ids = [record.id for record in records]
            records = records[ids.index(before) + 1 :] if before in ids else []
        if query is not None:
            records = [record for record in records if query.casefold() in (record.name or "").casefold()]
        return records[:limit]

    async def update(self, record: SessionRecord) -> None:
        self._shelf(record.id).record = record

    async def delete(self, session_id: str) -> None:
        self._shelf(session_id)
        del self._shelves[session_id]
        self._log = [event for event in self._log if event.session_id != session_id]
        self._bell.ring(session_id)

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        shelf = self._shelf(turn.session_id)
        if turn.client_turn_id is not None and turn.client_turn_id in shelf.by_client_id:
            return shelf.turns[shelf.by_client_id[turn.client_turn_id]]
        if shelf.running is not None:
            raise SessionBusy(f"session {turn.session_id!r} already runs turn {shelf.running!r}")
        shelf.running = turn.id
        shelf.turns[turn.id] = turn
        if turn.client_turn_id is not None:
            shelf.by_client_id[turn.client_turn_id] = turn.id
        return turn

    async def release(self, turn: TurnRecord) -> None:
        shelf = self._shelf(turn.session_id)
        if shelf.running == turn.id:
            shelf.running = None
        if shelf.turns[turn.id].after_seq is None:
            del shelf.turns[turn.id]
            if turn.client_turn_id is not None:
                del shelf.by_client_id[turn.client_turn_id]

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        return self._shelf(session_id).turns.get(turn_id)

    async def append(
        self, session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, expected_seq: int
    ) -> Sequence[StoredEvent]:
        shelf = self._shelf(session_id)
        if len(shelf.events) != expected_seq:
            raise SequenceConflict(f"session {session_id!r} is at {len(shelf.events)}, not at {expected_seq}")
        ts = rfc3339(self._clock.now())
        stored = encode_events(session_id, turn_id, events, seq=expected_seq, position=self._position, ts=ts)
        shelf.events += stored
        self._log += stored
        self._position += len(stored)
        if turn_id is not None and (turn := shelf.turns.get(turn_id)) is not None:
            if turn.after_seq is None:
                shelf.turns[turn_id] = replace(turn, after_seq=expected_seq)
            if shelf.running == turn_id and stored[-1].terminal:
                shelf.running = None
        self._bell.ring(session_id)
        return stored

    async def last_seq(self, session_id: str) -> int:
        return len(self._shelf(session_id).events)

    async def last_position(self) -> int:
        return self._position

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        return self._shelf(session_id).events[after : after + limit]

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        start = bisect_right(self._log, after, key=attrgetter("position"))
        return self._log[start : start + limit]

    def subscribe(self, session_id: str | None, news: asyncio.Event) -> AbstractContextManager[None]:
        return self._bell.subscribe(session_id, news)

    def _shelf(self, session_id: str) -> _Shelf:
        shelf = self._shelves.get(session_id)
        if shelf is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return shelf
