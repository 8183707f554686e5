"""The sessions of a store in memory, and the changes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agenticx.errors import SessionNotFound
from agenticx.messages import new_id
from agenticx.sessions.log.commit_records import commit_records, session_records
from agenticx.sessions.log.commits import Commit, StateChange
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import Fact, StoredRecord
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.state import FoldedSession
from agenticx.sessions.store.base import CommandHandler, Lease, ListedSession
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.search import SearchExcerpt

__all__ = ["Change", "MemoryData", "MemorySession", "WorkerLease"]


class WorkerLease(Lease, Protocol):
    """A lease of the worker of that name."""

    worker: str


@dataclass(slots=True)
class MemorySession(FoldedSession):
    """The data of one session: its log, and the fold of it.

    `owner` is the lease that may write.
    """

    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    owner: WorkerLease | None = None

    @property
    def turn_position(self) -> int:
        """The position of the first event of the running turn, 0 if none runs."""
        first = [] if self.main_turn is None else self.events[self.main_turn.after_seq or 0 :][:1]
        return first[0].position if first else 0

    def store(
        self, before: Sequence[StoredRecord], events: Sequence[StoredEvent], after: Sequence[StoredRecord]
    ) -> None:
        """Store a commit: records, events and records behind them."""
        self.rev += 1
        self.events += events
        for record in before:
            self.apply_record(record)
        for event in events:
            self.apply_event(event)
        for record in after:
            self.apply_record(record)

    def listed(self, matches: Sequence[SearchExcerpt] = ()) -> ListedSession:
        """Return the session as lists have it, with the matches of a search."""
        return ListedSession(self.record, self.main_turn and self.main_turn.id, matches)

    def searchable(self) -> Iterator[SearchableText]:
        """Yield the texts that a search looks at: the name, then the messages."""
        if self.record.name:
            yield SearchableText(None, "name", self.record.name)
        yield from self.texts.values()


@dataclass(slots=True)
class MemoryData:
    """The data of a store; `handlers` has each worker's command handler by the worker's name.

    `orphan_count` rises when a session with work loses its owner; the subscribers of `orphaned` are woken then.
    """

    log_id: str = field(default_factory=lambda: new_id("log"))
    sessions: dict[str, MemorySession] = field(default_factory=dict[str, MemorySession])
    log: list[StoredEvent] = field(default_factory=list[StoredEvent])
    position: int = 0
    notifier: Notifier = field(default_factory=Notifier)
    orphaned: Notifier = field(default_factory=Notifier)
    orphan_count: int = 0
    handlers: dict[str, CommandHandler] = field(default_factory=dict[str, CommandHandler])

    def change(self, change: Change) -> None:
        """Make a change. Every change goes through this method: a copy that repeats all changes in order is equal."""
        change(self)

    def create(
        self,
        record: SessionRecord,
        events: Sequence[StoredEvent],
        texts: Sequence[SearchableText],
        state: StateChange | None,
        facts: Sequence[Fact],
    ) -> None:
        """Add a session with the facts and the copied events that it has from the start, unless it is there."""
        if record.id in self.sessions:
            return
        session = MemorySession(record)
        before, after = session_records(
            record, session, copied_count=len(events), texts=texts, state=state, facts=facts
        )
        session.store(before, events, after)
        self.sessions[record.id] = session
        self.notifier.notify(record.id)

    def commit(self, session_id: str, commit: Commit, events: Sequence[StoredEvent]) -> None:
        """Store a commit with its events and wake their readers."""
        session = self.session(session_id)
        before, after = commit_records(commit, session, rev=session.rev + 1, seq=session.last_seq)
        session.store(before, events, after)
        self.log += events
        self.position += len(events)
        if events:
            self.notifier.notify(session_id)

    def delete(self, session_id: str) -> None:
        """Delete a session."""
        del self.sessions[session_id]
        self.log = [event for event in self.log if event.session_id != session_id]
        self.notifier.notify(session_id)

    def notify_of_work(self, session: MemorySession) -> None:
        """Count a session that has just lost its owner, if it has work."""
        if session.has_work:
            self.orphan_count += 1
            self.orphaned.notify(session.record.id)

    async def wait_for_orphan(self, seen: int) -> None:
        """Wait until `orphan_count` is no longer `seen`."""
        wakeup = asyncio.Event()
        with self.orphaned.subscribe(None, wakeup):
            if self.orphan_count == seen:
                await wakeup.wait()

    def session(self, session_id: str) -> MemorySession:
        """Return a session; raises `SessionNotFound`."""
        session = self.sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return session


Change = Callable[[MemoryData], None]
"""A change of a store's data that can be repeated in a copy of the store."""
