"""A store in memory: for tests, for one-off runs, and as the reference for the protocols."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from decimal import Decimal
from itertools import islice
from operator import attrgetter, itemgetter

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.messages import Message, new_id
from agenticx.sessions.log.commits import Commit, LoadedSession, SessionState, StateChange
from agenticx.sessions.log.events import Position, StoredEvent, copied, encode_events
from agenticx.sessions.log.records import Fact, FactT, RequestAsked, SubagentFact
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.base import (
    ArchivedFilter,
    CommandHandler,
    Durability,
    Lease,
    ListedSession,
    ListPlace,
    NoOwner,
    OwnershipLost,
    SessionOwnedElsewhere,
    check_turn,
)
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.memory_sessions import MemoryData, MemorySession
from agenticx.sessions.store.search import MATCHES_SHOWN, SearchQuery
from agenticx.sessions.store.workers import WorkersReport, single_worker_report
from agenticx.shared_state.state import SharedState

__all__ = ["MemoryStore"]


class MemoryStore:
    """A `Store` in plain lists. It is its own log, catalog and ownership.

    No method awaits anything but the events that it is given, so each is atomic on its event loop. Several workers
    share sessions through stores that `other_worker` of the first store returns.
    """

    def __init__(
        self, clock: Clock | None = None, *, blobs: Blobs | None = None, shared: SharedState | None = None
    ) -> None:
        self.shared = shared
        self.address = ""
        self._clock = clock or SystemClock()
        self._started = self._clock.now()
        self._blobs = blobs
        self._data = MemoryData()
        self._worker = new_id("wrk")

    def other_worker(self) -> MemoryStore:
        """Return a store with the same sessions for another worker."""
        other = type(self)(self._clock, blobs=self._blobs)
        other._data = self._data
        return other

    @property
    def log(self) -> MemoryStore:
        return self

    @property
    def catalog(self) -> MemoryStore:
        return self

    @property
    def ownership(self) -> MemoryStore:
        return self

    @property
    def blobs(self) -> Blobs | None:
        return self._blobs

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: AsyncIterable[Sequence[StoredEvent]] | None = None,
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        pages = [] if initial_events is None else [copied(page) async for page in initial_events]
        events = [event for page in pages for event in page]
        self._data.change(lambda data: data.create(record, events, texts, state, facts))

    async def delete(self, lease: Lease) -> None:
        data, session_id = self._data, lease.session_id
        owner = data.session(session_id).owner
        if owner is not lease:
            raise OwnershipLost(f"session {session_id!r} has another owner")
        lease.lost.set()
        data.change(lambda data: data.delete(session_id))

    async def check(self) -> None:
        return None

    async def workers(self) -> WorkersReport:
        sessions = self._data.sessions.values()
        return single_worker_report(
            self._worker,
            self.address,
            this_host(),
            self._started,
            self._clock.now(),
            {
                "name": "memory",
                "engine": "memory",
                "version": None,
                "durability": self.durability,
                "primary": None,
                "connections": None,
                "max_connections": None,
                "standbys": None,
                "size_bytes": None,
            },
            sessions=sum(each.owner is not None and each.owner.worker == self._worker for each in sessions),
            running_turns=sum(each.main_turn is not None for each in sessions),
        )

    async def aclose(self) -> None:
        if self.shared is not None:
            self.shared.close()

    # --- ownership ----------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str) -> Lease:
        session = self._data.session(session_id)
        if session.owner is not None:
            if session.owner.worker != self._worker:
                raise SessionOwnedElsewhere(f"session {session_id!r} has an owner", owner=session.owner.worker)
            session.owner.lost.set()  # of this worker before a restart
        session.owner = _MemoryLease(self._data, self._clock, session_id, self._worker)
        return session.owner

    async def call(self, session_id: str, command: bytes) -> bytes:
        owner = self._data.session(session_id).owner
        handler = None if owner is None else self._data.handlers.get(owner.worker)
        if handler is None:
            raise NoOwner(f"session {session_id!r} has no owner")
        return await handler(session_id, command)

    @asynccontextmanager
    async def serve(self, handler: CommandHandler) -> AsyncGenerator[None]:
        self._data.handlers[self._worker] = handler
        try:
            yield
        finally:
            if self._data.handlers.get(self._worker) is handler:
                del self._data.handlers[self._worker]

    async def orphans(self, *, follow: bool = False) -> AsyncGenerator[str]:
        while True:
            seen = self._data.orphan_count
            waiting = [
                (session.turn_position, session_id)
                for session_id, session in self._data.sessions.items()
                if session.owner is None and session.has_work
            ]
            for _, session_id in sorted(waiting, key=itemgetter(0)):
                yield session_id
            if not follow:
                return
            await self._data.wait_for_orphan(seen)

    # --- log ----------------------------------------------------------------------------------------------------------

    @property
    def durability(self) -> Durability:
        return "memory"

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def log_id(self) -> str:
        return self._data.log_id

    async def head(self, session_id: str) -> int:
        return len(self._data.session(session_id).events)

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        return self._data.session(session_id).events[after : after + limit]

    async def last_events(self, session_ids: Collection[str]) -> Mapping[str, StoredEvent]:
        found = {id_: self._data.sessions[id_].events for id_ in session_ids if id_ in self._data.sessions}
        return {session_id: events[-1] for session_id, events in found.items() if events}

    async def position(self, given: int | None = None) -> Position | None:
        last = self._data.position
        return Position(last if given is None else given) if given is None or given <= last else None

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        log = self._data.log
        start = bisect_right(log, after, key=attrgetter("position"))
        return log[start : start + limit]

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        return self._data.notifier.subscribe(session_id, wakeup)

    async def turn(
        self, session_id: str, turn_id: str | None = None, *, client_turn_id: str | None = None
    ) -> TurnRecord | None:
        session = self._data.session(session_id)
        if client_turn_id is not None:
            turn_id = session.by_client_id.get(client_turn_id)
        elif turn_id is None:
            return session.main_turn
        return None if turn_id is None else session.turns.get(turn_id)

    async def state(self, session_id: str) -> SessionState:
        session = self._data.session(session_id)
        return SessionState(session.messages.copy(), session.parts.copy())

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        return tuple(self._data.session(session_id).compacted)

    async def facts(self, session_id: str, *types: type[FactT], key: str | None = None) -> Sequence[FactT]:
        return self._data.session(session_id).facts_of(*types, key=key)

    # --- catalog ------------------------------------------------------------------------------------------------------

    async def get(self, session_id: str) -> SessionRecord:
        return self._data.session(session_id).record

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | ListPlace | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        sessions = self._listed(before, archived)
        if query is None:
            found = (session.listed() for session in sessions)
        else:
            found = _matching(sessions, SearchQuery.parse(query))
        return list(islice(found, limit))

    def _listed(self, before: str | ListPlace | None, archived: ArchivedFilter) -> Iterator[MemorySession]:
        """Yield sessions, pinned ones first, then newest first, after `before`."""
        newest = list(self._data.sessions.values())[::-1]
        newest.sort(key=lambda session: (session.record.pinned, session.record.created_at), reverse=True)
        if isinstance(before, ListPlace):
            newest = [session for session in newest if before.precedes(session.record)]
        elif before is not None:
            ids = [session.record.id for session in newest]
            newest = newest[ids.index(before) + 1 :] if before in ids else []
        wanted = {"without": (False,), "only": (True,), "with": (False, True)}[archived]
        return (session for session in newest if session.record.archived in wanted)

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        if session_id is not None:
            self._data.session(session_id)
        rows = [row for session in self._data.sessions.values() for row in session.daily_usage]
        return DailyUsage.merged(
            row
            for row in rows
            if (session_id is None or row.session_id == session_id)
            and (since is None or row.day >= since)
            and (until is None or row.day <= until)
        )

    async def costs(self, session_ids: Collection[str]) -> Mapping[str, Decimal]:
        sessions = {id_: self._data.sessions[id_] for id_ in session_ids if id_ in self._data.sessions}
        costs = {id_: DailyUsage.total(session.daily_usage).cost_usd for id_, session in sessions.items()}
        return {id_: cost for id_, cost in costs.items() if cost is not None}

    async def working_sessions(self, session_ids: Collection[str]) -> Mapping[str, str]:
        sessions = {id_: self._data.sessions[id_] for id_ in session_ids if id_ in self._data.sessions}
        turns = {id_: session.open_turns.values() for id_, session in sessions.items()}
        return {
            id_: min(open_turns, key=lambda turn: turn.parent_turn_id is not None).id
            for id_, open_turns in turns.items()
            if open_turns
        }

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        sessions = self._data.sessions.values() if session_id is None else [self._data.session(session_id)]
        asked = [session.events[fact.seq - 1] for session in sessions for fact in session.open_requests]
        return sorted(asked, key=attrgetter("position"))

    async def session_of_request(self, request_id: str) -> str | None:
        asked = RequestAsked, request_id
        return next((id_ for id_, session in self._data.sessions.items() if asked in session.all_facts), None)


def _matching(sessions: Iterable[MemorySession], terms: SearchQuery) -> Iterator[ListedSession]:
    """Yield the sessions that have a text with all terms."""
    for session in sessions:
        texts = islice((text for text in session.searchable() if terms.matches(text.text)), MATCHES_SHOWN)
        if matches := [terms.excerpt(text) for text in texts]:
            yield session.listed(matches)


class _MemoryLease:
    """The `Lease` of one session.

    It remembers its last commit, so that the same one twice is one commit: one at a time is made, so nothing comes in
    between.
    """

    def __init__(self, data: MemoryData, clock: Clock, session_id: str, worker: str) -> None:
        self.session_id = session_id
        self.lost = asyncio.Event()
        self.worker = worker
        self._data = data
        self._clock = clock
        self._last: tuple[str, Sequence[StoredEvent]] = ("", ())

    def _session(self) -> MemorySession:
        session = self._data.session(self.session_id)
        if session.owner is not self:
            self.lost.set()
            raise OwnershipLost(f"session {self.session_id!r} has another owner")
        return session

    async def check(self) -> None:
        self._session()

    async def load(self) -> LoadedSession:
        session = self._session()
        return LoadedSession(
            record=session.record,
            state=SessionState(session.messages.copy(), session.parts.copy()),
            last_seq=len(session.events),
            main_turn=session.main_turn,
            child_turns=session.child_turns,
            open_facts=list(session.facts.values()),
            subagent_facts=session.facts_of(SubagentFact),
        )

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        data, session, ts = self._data, self._session(), rfc3339(self._clock.now())
        last_id, last_events = self._last
        if last_id == commit.id:
            return last_events
        check_turn(commit, session.open_turns, session.turns.__contains__)
        stored = encode_events(
            self.session_id, commit.turn_id, commit.events, seq=len(session.events), position=data.position, ts=ts
        )
        data.change(lambda data: data.commit(self.session_id, commit, stored))
        self._last = commit.id, stored
        return stored

    async def release(self, *, work_left: bool = False) -> None:
        session = self._data.sessions.get(self.session_id)
        if session is not None and session.owner is self:
            session.owner = None
            self._data.notify_of_work(session)
        self.lost.set()
