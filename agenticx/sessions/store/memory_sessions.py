"""The sessions of a store in memory, and the changes that are made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agenticx.errors import SessionNotFound
from agenticx.messages import Message, new_id
from agenticx.sessions.store.base import CommandHandler, Lease
from agenticx.sessions.store.entries import (
    Fact,
    StoredEvent,
    StoredRecord,
)
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.records import Commit, SessionRecord, StateChange, TurnRecord
from agenticx.sessions.store.search import SearchableText, searchable_texts

__all__ = ["Change", "MemoryData", "MemorySession", "WorkerLease"]


class WorkerLease(Lease, Protocol):
    """A lease of the worker of that name."""

    worker: str


@dataclass(slots=True)
class MemorySession:
    """The data of one session; its first `inherited_count` events were copied from the session it was forked from.

    `rev` is the number of its commits, `last_commit` the id of the last one with its events. `records` are those of the
    log, `facts` those of them that are in force. `owner` is the lease that may write, `epoch` the number
    of leases so far. `open_children` holds the ids of the child turns that have not ended, oldest first.
    """

    record: SessionRecord
    inherited_count: int = 0
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    running_turn_id: str | None = None
    open_children: list[str] = field(default_factory=list[str])
    messages: list[Message] = field(default_factory=list[Message])
    compacted: list[Message] = field(default_factory=list[Message])
    texts: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText])
    state_json: str | None = None
    facts: dict[tuple[type[Fact], str], Fact] = field(default_factory=dict[tuple[type[Fact], str], Fact])
    records: list[StoredRecord] = field(default_factory=list[StoredRecord])
    rev: int = 0
    last_commit: tuple[str, Sequence[StoredEvent]] = ("", ())
    owner: WorkerLease | None = None
    epoch: int = 0

    @property
    def running(self) -> TurnRecord | None:
        """The turn without a terminal event."""
        return None if self.running_turn_id is None else self.turns[self.running_turn_id]

    @property
    def turn_position(self) -> int:
        """The position of the first event of the running turn, 0 if none runs."""
        first = [] if self.running is None else self.events[self.running.after_seq or 0 :][:1]
        return first[0].position if first else 0

    @property
    def open_turns(self) -> set[str]:
        """The ids of the turns that have not ended."""
        return {*self.open_children, *([] if self.running_turn_id is None else [self.running_turn_id])}

    @property
    def open_facts(self) -> list[Fact]:
        """The facts of the turns that have not ended, and those that no fact has closed."""
        turns = self.open_turns
        return [fact for fact in self.facts.values() if fact.turn_id in turns or fact.is_work]

    @property
    def has_work(self) -> bool:
        """True if a turn has not ended or a fact is open."""
        return bool(self.open_turns or self.open_facts)

    @property
    def subagent_facts(self) -> list[Fact]:
        """The facts about sub-agents."""
        return [fact for fact in self.facts.values() if fact.about_subagents]

    @property
    def file_facts(self) -> list[Fact]:
        """The facts about files."""
        return [fact for fact in self.facts.values() if fact.about_files]

    def begin(self, turn: TurnRecord) -> None:
        """Make `turn`, whose first event comes next, the running one, or an open one below another."""
        if turn.parent_turn_id is None:
            self.running_turn_id = turn.id
        else:
            self.open_children.append(turn.id)
        self.turns[turn.id] = replace(turn, after_seq=len(self.events))
        if turn.client_turn_id is not None:
            self.by_client_id[turn.client_turn_id] = turn.id

    def add_commit(self, commit_id: str, events: Sequence[StoredEvent], facts: Sequence[Fact]) -> None:
        """Add a commit to the log."""
        self.rev += 1
        self.events += events
        self.last_commit = commit_id, events
        for index, fact in enumerate(facts):
            self.records.append(StoredRecord(self.rev, index, len(self.events), fact))
            self._apply_fact(fact)

    def _apply_fact(self, fact: Fact) -> None:
        """Put a fact into force unless one of its kind and key is to be kept; end the one that it closes."""
        if fact.closes is not None:
            self.facts.pop((fact.closes, fact.key), None)
        if fact.is_replaced:
            self.facts[type(fact), fact.key] = fact
        else:
            self.facts.setdefault((type(fact), fact.key), fact)

    def apply(self, change: StateChange) -> None:
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

    def store(self, commit: Commit, events: Sequence[StoredEvent]) -> None:
        """Store a commit with its events."""
        if commit.begins is not None:
            self.begin(commit.begins)
        self.add_commit(commit.id, events, commit.facts)
        if events and events[-1].terminal:
            if self.running_turn_id == commit.turn_id:
                self.running_turn_id = None
            elif commit.turn_id in self.open_children:
                self.open_children.remove(commit.turn_id)
        if commit.state is not None:
            self.apply(commit.state)
        if commit.record is not None:
            self.record = commit.record

    def searchable(self) -> Iterator[SearchableText]:
        """Yield the texts that a search looks at: the name, then the messages."""
        if self.record.name:
            yield SearchableText(None, "name", self.record.name)
        yield from self.texts.values()


@dataclass(slots=True)
class MemoryData:
    """The data of a store; `handlers` are those of its workers by their names, `followers` get each change.

    `orphan_count` rises with each session with work that loses its owner, and wakes the subscribers of `orphaned`.
    """

    log_id: str = field(default_factory=lambda: new_id("log"))
    sessions: dict[str, MemorySession] = field(default_factory=dict[str, MemorySession])
    log: list[StoredEvent] = field(default_factory=list[StoredEvent])
    position: int = 0
    notifier: Notifier = field(default_factory=Notifier)
    orphaned: Notifier = field(default_factory=Notifier)
    orphan_count: int = 0
    handlers: dict[str, CommandHandler] = field(default_factory=dict[str, CommandHandler])
    followers: list[Callable[[Change], None]] = field(default_factory=list["Callable[[Change], None]"])

    def change(self, change: Change) -> None:
        """Make a change, which is made in the same order wherever the store is copied to."""
        change(self)
        for follower in self.followers:
            follower(change)

    def create(
        self,
        record: SessionRecord,
        events: Sequence[StoredEvent],
        texts: Sequence[SearchableText],
        state: StateChange | None,
        facts: Sequence[Fact],
    ) -> None:
        """Add a session with the events and facts that it has from the start."""
        session = self.sessions[record.id] = MemorySession(record, inherited_count=len(events))
        session.add_commit(new_id("cmt"), events, facts)
        self._add_to_log(events)
        session.add_texts(texts)
        if state is not None:
            session.apply(state)
        self.notifier.notify(record.id)

    def commit(self, session_id: str, commit: Commit, events: Sequence[StoredEvent]) -> None:
        """Store a commit with its events and wake their readers."""
        self.session(session_id).store(commit, events)
        self._add_to_log(events)
        if events:
            self.notifier.notify(session_id)

    def _add_to_log(self, events: Sequence[StoredEvent]) -> None:
        self.log += events
        self.position += len(events)

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
"""A change of a store's data, which can be repeated in a copy of it."""
