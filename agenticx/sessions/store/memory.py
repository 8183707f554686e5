"""A store in memory: for tests, for one-off runs, and as the reference for the protocol."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import SessionBusy, SessionNotFound
from agenticx.messages import Message, new_id
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions.store.base import (
    CLOSED_KINDS,
    ArchivedFilter,
    JournalEntry,
    JournalKind,
    SearchResult,
    SequenceConflict,
    SessionRecord,
    SessionState,
    StoredEvent,
    TurnRecord,
    encode_events,
)
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.search import MATCHES_SHOWN, SearchableText, SearchQuery, searchable_texts
from agenticx.sessions.store.usage import DailyUsage, counts_of_call

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _SessionData:
    """The data of one session; its first `inherited_count` events were copied from the session it was forked from."""

    record: SessionRecord
    inherited_count: int = 0
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    running_turn_id: str | None = None
    messages: list[Message] = field(default_factory=list[Message])
    compacted: list[Message] = field(default_factory=list[Message])
    texts: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText])
    state_json: str | None = None

    def apply(self, change: SessionState) -> None:
        """Apply a change."""
        self.messages[change.keep_messages :] = change.messages
        if change.keep_compacted is not None:
            self.compacted[change.keep_compacted :] = change.compacted
        self.state_json = change.state_json if change.state_json is not None else self.state_json
        self.add_texts(searchable_texts(change.messages))
        if change.searchable_ids is not None:
            self.texts = {id_: text for id_, text in self.texts.items() if id_ in change.searchable_ids}

    def add_texts(self, texts: Sequence[SearchableText]) -> None:
        """Add texts that a search can find."""
        for text in texts:
            self.texts.setdefault(text.message_id or "", text)

    def searchable(self) -> Iterator[SearchableText]:
        """Yield the texts that a search looks at: the name, then the messages."""
        if self.record.name:
            yield SearchableText(None, "name", self.record.name)
        yield from self.texts.values()


class MemoryStore:
    """A `Store` in plain lists; no method awaits, so each is atomic on its event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._log_id = new_id("log")
        self._sessions: dict[str, _SessionData] = {}
        self._log: list[StoredEvent] = []
        self._position = 0
        self._journal: dict[tuple[JournalKind, str], JournalEntry] = {}
        self._notifier = Notifier()

    @property
    def is_persistent(self) -> bool:
        return False

    @property
    def log_id(self) -> str:
        return self._log_id

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: Sequence[StoredEvent] = (),
        texts: Sequence[SearchableText] = (),
        state: SessionState | None = None,
    ) -> None:
        events = [event._replace(position=self._position + place) for place, event in enumerate(initial_events, 1)]
        self._position += len(events)
        session = self._sessions[record.id] = _SessionData(record, inherited_count=len(events), events=events)
        self._log += events
        session.add_texts(texts)
        if state is not None:
            session.apply(state)
        self._notifier.notify(record.id)

    async def get(self, session_id: str) -> SessionRecord:
        return self._session(session_id).record

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SessionRecord]:
        return [session.record for session in islice(self._listed(before, archived), limit)]

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SearchResult]:
        terms = SearchQuery.parse(query)
        results: list[SearchResult] = []
        for session in self._listed(before, archived):
            texts = list(islice((text for text in session.searchable() if terms.matches(text.text)), MATCHES_SHOWN))
            if texts:
                results.append(SearchResult(session.record, [terms.excerpt(text) for text in texts]))
            if len(results) == limit:
                break
        return results

    def _listed(self, before: str | None, archived: ArchivedFilter) -> Iterator[_SessionData]:
        """Yield sessions, pinned ones first, then newest first, after `before`."""
        newest = list(self._sessions.values())[::-1]
        newest.sort(key=lambda session: not session.record.pinned)
        ids = [session.record.id for session in newest]
        start = 0 if before is None else ids.index(before) + 1 if before in ids else len(ids)
        wanted = {"without": (False,), "only": (True,), "with": (False, True)}[archived]
        return (session for session in newest[start:] if session.record.archived in wanted)

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        if session_id is not None:
            self._session(session_id)
        rows = [row for session in self._sessions.values() for row in _usage_rows(session)]
        return DailyUsage.merged(
            row
            for row in rows
            if (session_id is None or row.session_id == session_id)
            and (since is None or row.day >= since)
            and (until is None or row.day <= until)
        )

    async def update(self, record: SessionRecord) -> None:
        self._session(record.id).record = record

    async def delete(self, session_id: str) -> None:
        self._session(session_id)
        del self._sessions[session_id]
        self._log = [event for event in self._log if event.session_id != session_id]
        self._journal = {key: entry for key, entry in self._journal.items() if entry.session_id != session_id}
        self._notifier.notify(session_id)

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        session = self._session(turn.session_id)
        if turn.client_turn_id is not None and turn.client_turn_id in session.by_client_id:
            return session.turns[session.by_client_id[turn.client_turn_id]]
        if session.running_turn_id is not None:
            raise SessionBusy(f"session {turn.session_id!r} already runs turn {session.running_turn_id!r}")
        session.running_turn_id = turn.id
        session.turns[turn.id] = turn
        if turn.client_turn_id is not None:
            session.by_client_id[turn.client_turn_id] = turn.id
        return turn

    async def release(self, turn: TurnRecord) -> None:
        session = self._session(turn.session_id)
        if session.running_turn_id == turn.id:
            session.running_turn_id = None
        if session.turns[turn.id].after_seq is None:
            del session.turns[turn.id]
            if turn.client_turn_id is not None:
                del session.by_client_id[turn.client_turn_id]

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        return self._session(session_id).turns.get(turn_id)

    async def unfinished_turns(self) -> Sequence[TurnRecord]:
        return [
            session.turns[session.running_turn_id]
            for session in self._sessions.values()
            if session.running_turn_id is not None
        ]

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        state: SessionState | None = None,
        journal: Sequence[JournalEntry] = (),
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        session = self._session(session_id)
        if len(session.events) != expected_seq:
            raise SequenceConflict(f"session {session_id!r} is at {len(session.events)}, not at {expected_seq}")
        ts = rfc3339(self._clock.now())
        stored = encode_events(session_id, turn_id, events, seq=expected_seq, position=self._position, ts=ts)
        session.events += stored
        self._log += stored
        self._position += len(stored)
        if turn_id is not None and (turn := session.turns.get(turn_id)) is not None:
            if turn.after_seq is None:
                session.turns[turn_id] = replace(turn, after_seq=expected_seq)
            if session.running_turn_id == turn_id and stored[-1].terminal:
                session.running_turn_id = None
        if state is not None:
            session.apply(state)
        if record is not None:
            session.record = record
        for entry in journal:
            self._add_entry(entry)
        self._notifier.notify(session_id)
        return stored

    async def add_journal_entry(self, entry: JournalEntry) -> JournalEntry:
        self._session(entry.session_id)
        return self._add_entry(entry)

    def _add_entry(self, entry: JournalEntry) -> JournalEntry:
        if (closed := CLOSED_KINDS.get(entry.kind)) is not None:
            self._journal.pop((closed, entry.key), None)
        return self._journal.setdefault((entry.kind, entry.key), entry)

    async def journal_entry(self, kind: JournalKind, key: str) -> JournalEntry | None:
        return self._journal.get((kind, key))

    async def turn_journal(self, session_id: str, turn_id: str) -> Sequence[JournalEntry]:
        self._session(session_id)
        entries = self._journal.values()
        return [entry for entry in entries if (entry.session_id, entry.turn_id) == (session_id, turn_id)]

    async def open_journal_entries(self, kind: JournalKind, closing: JournalKind) -> Sequence[JournalEntry]:
        entries = self._journal.values()
        return [entry for entry in entries if entry.kind == kind and (closing, entry.key) not in self._journal]

    async def session_state(self, session_id: str) -> SessionState:
        session = self._session(session_id)
        return SessionState(session.messages.copy(), session.state_json)

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        return tuple(self._session(session_id).compacted)

    async def last_seq(self, session_id: str) -> int:
        return len(self._session(session_id).events)

    async def last_position(self) -> int:
        return self._position

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        return self._session(session_id).events[after : after + limit]

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        start = bisect_right(self._log, after, key=attrgetter("position"))
        return self._log[start : start + limit]

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        return self._notifier.subscribe(session_id, wakeup)

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

    def _session(self, session_id: str) -> _SessionData:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return session


def _usage_rows(session: _SessionData) -> Iterator[DailyUsage]:
    for event in session.events[session.inherited_count :]:
        if event.type is EventType.USAGE:
            envelope = json.loads(event.frame_json)
            day, model = envelope["ts"][:10], envelope["data"]["model"]
            yield DailyUsage(session_id=event.session_id, day=day, model=model, counts=counts_of_call(envelope["data"]))
