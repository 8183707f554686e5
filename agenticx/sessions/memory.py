"""The store that forgets when the process ends: for tests, for one-off runs, and as the protocol's plain meaning."""

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
from agenticx.sessions.base import (
    CLOSED_BY,
    Archived,
    Found,
    JournalKind,
    Journalled,
    Keepsake,
    SequenceConflict,
    SessionRecord,
    StoredEvent,
    TurnRecord,
    encode_events,
)
from agenticx.sessions.bell import Notifier
from agenticx.sessions.search import MATCHES_SHOWN, Said, Terms, said_in
from agenticx.sessions.usage import Spent, counted

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Shelf:
    """All that is kept of one session; `past` of its events are those of the session it was made of."""

    record: SessionRecord
    past: int = 0
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    running: str | None = None
    messages: list[Message] = field(default_factory=list[Message])
    compacted: list[Message] = field(default_factory=list[Message])
    said: dict[str, Said] = field(default_factory=dict[str, Said])
    state: str | None = None

    def keep(self, kept: Keepsake) -> None:
        """Apply a change."""
        self.messages[kept.keep :] = kept.messages
        if kept.compacted_keep is not None:
            self.compacted[kept.compacted_keep :] = kept.compacted
        self.state = kept.state if kept.state is not None else self.state
        self.find(said_in(kept.messages))
        if kept.findable is not None:
            self.said = {id_: said for id_, said in self.said.items() if id_ in kept.findable}

    def find(self, texts: Sequence[Said]) -> None:
        """Let a search find them."""
        for said in texts:
            self.said.setdefault(said.message_id or "", said)

    def texts(self) -> Iterator[Said]:
        """What a search looks at: the name, then what was said."""
        if self.record.name:
            yield Said(None, "name", self.record.name)
        yield from self.said.values()


class MemoryStore:
    """`Store` in plain lists. No method awaits, so each is atomic on its event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._log_id = new_id("log")
        self._shelves: dict[str, _Shelf] = {}
        self._log: list[StoredEvent] = []
        self._position = 0
        self._journal: dict[tuple[JournalKind, str], Journalled] = {}
        self._bell = Notifier()

    @property
    def outlives_the_process(self) -> bool:
        return False

    @property
    def log_id(self) -> str:
        return self._log_id

    async def create(
        self,
        record: SessionRecord,
        *,
        past: Sequence[StoredEvent] = (),
        said: Sequence[Said] = (),
        kept: Keepsake | None = None,
    ) -> None:
        events = [event._replace(position=self._position + place) for place, event in enumerate(past, 1)]
        self._position += len(events)
        shelf = self._shelves[record.id] = _Shelf(record, past=len(events), events=events)
        self._log += events
        shelf.find(said)
        if kept is not None:
            shelf.keep(kept)
        self._bell.notify(record.id)

    async def get(self, session_id: str) -> SessionRecord:
        return self._shelf(session_id).record

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[SessionRecord]:
        return [shelf.record for shelf in islice(self._listed(before, archived), limit)]

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[Found]:
        terms = Terms.of(query)
        found: list[Found] = []
        for shelf in self._listed(before, archived):
            texts = list(islice((said for said in shelf.texts() if terms.match(said.text)), MATCHES_SHOWN))
            if texts:
                found.append(Found(shelf.record, [terms.excerpt(said) for said in texts]))
            if len(found) == limit:
                break
        return found

    def _listed(self, before: str | None, archived: Archived) -> Iterator[_Shelf]:
        """Pinned ones first, then newest first, from behind `before`."""
        newest = list(self._shelves.values())[::-1]
        newest.sort(key=lambda shelf: not shelf.record.pinned)
        ids = [shelf.record.id for shelf in newest]
        start = 0 if before is None else ids.index(before) + 1 if before in ids else len(ids)
        wanted = {"without": (False,), "only": (True,), "with": (False, True)}[archived]
        return (shelf for shelf in newest[start:] if shelf.record.archived in wanted)

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[Spent]:
        if session_id is not None:
            self._shelf(session_id)
        rows = [row for shelf in self._shelves.values() for row in _spent(shelf)]
        return Spent.summed(
            row
            for row in rows
            if (session_id is None or row.session_id == session_id)
            and (since is None or row.day >= since)
            and (until is None or row.day <= until)
        )

    async def update(self, record: SessionRecord) -> None:
        self._shelf(record.id).record = record

    async def delete(self, session_id: str) -> None:
        self._shelf(session_id)
        del self._shelves[session_id]
        self._log = [event for event in self._log if event.session_id != session_id]
        self._journal = {key: entry for key, entry in self._journal.items() if entry.session_id != session_id}
        self._bell.notify(session_id)

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

    async def unfinished(self) -> Sequence[TurnRecord]:
        return [shelf.turns[shelf.running] for shelf in self._shelves.values() if shelf.running is not None]

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        kept: Keepsake | None = None,
        journal: Sequence[Journalled] = (),
        record: SessionRecord | None = None,
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
        if kept is not None:
            shelf.keep(kept)
        if record is not None:
            shelf.record = record
        for entry in journal:
            self._note(entry)
        self._bell.notify(session_id)
        return stored

    async def journal(self, entry: Journalled) -> Journalled:
        self._shelf(entry.session_id)
        return self._note(entry)

    def _note(self, entry: Journalled) -> Journalled:
        if (closed := CLOSED_BY.get(entry.kind)) is not None:
            self._journal.pop((closed, entry.key), None)
        return self._journal.setdefault((entry.kind, entry.key), entry)

    async def journalled(self, kind: JournalKind, key: str) -> Journalled | None:
        return self._journal.get((kind, key))

    async def journal_of(self, session_id: str, turn_id: str) -> Sequence[Journalled]:
        self._shelf(session_id)
        whose = (session_id, turn_id)
        return [entry for entry in self._journal.values() if (entry.session_id, entry.turn_id) == whose]

    async def journal_open(self, kind: JournalKind, closing: JournalKind) -> Sequence[Journalled]:
        facts = self._journal.values()
        return [fact for fact in facts if fact.kind == kind and (closing, fact.key) not in self._journal]

    async def keepsake(self, session_id: str) -> Keepsake:
        shelf = self._shelf(session_id)
        return Keepsake(shelf.messages.copy(), shelf.state)

    async def compacted(self, session_id: str) -> Sequence[Message]:
        return tuple(self._shelf(session_id).compacted)

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

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

    def _shelf(self, session_id: str) -> _Shelf:
        shelf = self._shelves.get(session_id)
        if shelf is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return shelf


def _spent(shelf: _Shelf) -> Iterator[Spent]:
    for event in shelf.events[shelf.past :]:
        if event.type is EventType.USAGE:
            envelope = json.loads(event.frame_json)
            day, model = envelope["ts"][:10], envelope["data"]["model"]
            yield Spent(session_id=event.session_id, day=day, model=model, counts=counted(envelope["data"]))
