"""A session as its log says: the fold of its events and records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agenticx.messages import Message
from agenticx.runtime.events import EventType
from agenticx.sessions.store.damage import DamagedData, map_decode_errors
from agenticx.sessions.store.events import StoredEvent
from agenticx.sessions.store.records import (
    EventsCopied,
    Fact,
    FactT,
    MessageAdded,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    PartRemoved,
    Record,
    RequestAnswered,
    RequestAsked,
    RequestDecided,
    SessionChanged,
    StoredRecord,
    TextsCopied,
    TextsRetained,
    TurnAccepted,
)
from agenticx.sessions.store.search import SearchableText, searchable_texts
from agenticx.sessions.store.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.usage import DailyUsage, UsageCounts

__all__ = ["StoredSession", "fold"]


@dataclass(slots=True)
class StoredSession:
    """A session as it is stored after the entries that it was told of, in the order of the log.

    `rev` and `last_seq` are the last commit and event. Its first `copied_count` events were copied from another
    session. `open_children` are the ids of the child turns that have not ended, oldest first; `texts` those that a
    search finds, by message; `facts` those in force, in the order in which they were stored; `usage` the sums by day,
    model and agent.
    """

    record: SessionRecord
    copied_count: int = 0
    rev: int = 0
    last_seq: int = 0
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    running_turn_id: str | None = None
    open_children: list[str] = field(default_factory=list[str])
    messages: list[Message] = field(default_factory=list[Message])
    compacted: list[Message] = field(default_factory=list[Message])
    parts: dict[str, str] = field(default_factory=dict[str, str])
    texts: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText])
    facts: dict[tuple[type[Fact], str], Fact] = field(default_factory=dict[tuple[type[Fact], str], Fact])
    usage: dict[tuple[str, str, str], UsageCounts] = field(default_factory=dict[tuple[str, str, str], UsageCounts])
    _messages_by_key: dict[str, Message] = field(default_factory=dict[str, Message])
    _part_places: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def running(self) -> TurnRecord | None:
        """The turn without a terminal event."""
        return None if self.running_turn_id is None else self.turns[self.running_turn_id]

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
    def open_requests(self) -> list[RequestAsked]:
        """The requests of turns that have not ended which have no answer."""
        answered = {fact.key for fact in self.facts_of(RequestAnswered, RequestDecided)}
        asked, turns = self.facts_of(RequestAsked), self.open_turns
        return [fact for fact in asked if fact.turn_id in turns and fact.key not in answered]

    @property
    def has_work(self) -> bool:
        """True if a turn has not ended or a fact is open."""
        return bool(self.open_turns or self.open_facts)

    @property
    def daily_usage(self) -> list[DailyUsage]:
        """The usage of model calls by day, model and agent."""
        return [
            DailyUsage(session_id=self.record.id, day=day, model=model, agent_id=agent_id, counts=counts)
            for (day, model, agent_id), counts in self.usage.items()
        ]

    @property
    def message_count(self) -> int:
        """The length of the conversation."""
        return len(self.messages)

    @property
    def compacted_count(self) -> int:
        """The number of messages that summaries replace."""
        return len(self.compacted)

    def facts_of(self, *types: type[FactT], key: str | None = None) -> list[FactT]:
        """Return the facts in force of these classes, with `key` only those of that key, in the order of storage."""
        return [fact for fact in self.facts.values() if isinstance(fact, types) and key in (None, fact.key)]

    def has_message(self, key: str) -> bool:
        """Return True if the log has a message with that key."""
        return key in self._messages_by_key

    def part_place(self, name: str) -> int | None:
        """Return the place of that part of the state, None if it has none of that name."""
        return self._part_places.get(name)

    def next_part_place(self) -> int:
        """Return the place behind all parts of the state."""
        return max(self._part_places.values(), default=0) + 1

    def sort_parts(self) -> None:
        """Put the parts in order: of one that was changed the log has the last record only."""
        self.parts = {name: self.parts[name] for name in sorted(self.parts, key=self._part_places.__getitem__)}

    def apply_event(self, event: StoredEvent) -> None:
        """Take an event into account; raises `DamagedData`."""
        self.last_seq = event.seq
        if event.terminal:
            if self.running_turn_id == event.turn_id:
                self.running_turn_id = None
            elif event.turn_id in self.open_children:
                self.open_children.remove(event.turn_id)
        elif event.type is EventType.USAGE and event.seq > self.copied_count:
            call = DailyUsage.of_call(event)
            key = (call.day, call.model, call.agent_id)
            self.usage[key] = self.usage.get(key, UsageCounts()) + call.counts

    def apply_record(self, stored: StoredRecord) -> None:
        """Take a record into account; raises `DamagedData` if it names a message that no record has."""
        self.rev = stored.rev
        match stored.record:
            case Fact() as fact:
                self._apply_fact(fact)
            case SessionChanged(record=record):
                self.record = record
            case EventsCopied(count=count):
                self.copied_count = count
            case TurnAccepted(turn=turn):
                self._begin(replace(turn, after_seq=stored.seq))
            case PartChanged(key=name, place=place, text=text):
                self.parts[name], self._part_places[name] = text, place
            case PartRemoved(key=name):
                self.parts.pop(name, None)
                self._part_places.pop(name, None)
            case record:
                self._apply_to_messages(record)

    def _apply_to_messages(self, record: Record) -> None:
        match record:
            case MessageAdded(key=key, message=message):
                self._messages_by_key[key] = message
                self._set_messages(len(self.messages), [message])
            case MessagesReplaced(keep=keep, messages=keys):
                self._set_messages(keep, self._named(keys))
            case MessagesCompacted(keep=keep, messages=keys):
                self.compacted[keep:] = self._named(keys)
            case TextsCopied(texts=texts):
                self._add_texts(texts)
            case TextsRetained(message_ids=ids):
                retained = frozenset(ids)
                self.texts = {id_: text for id_, text in self.texts.items() if id_ in retained}
            case _:
                raise DamagedData(f"a record of a session has the unknown kind {record.kind!r}")

    def _begin(self, turn: TurnRecord) -> None:
        """Make `turn` the running one, or an open child turn."""
        if turn.parent_turn_id is None:
            self.running_turn_id = turn.id
        else:
            self.open_children.append(turn.id)
        self.turns[turn.id] = turn
        if turn.client_turn_id is not None:
            self.by_client_id[turn.client_turn_id] = turn.id

    def _set_messages(self, keep: int, messages: Sequence[Message]) -> None:
        self.messages[keep:] = messages
        self._add_texts(searchable_texts(messages))

    def _named(self, keys: Sequence[str]) -> list[Message]:
        with map_decode_errors("a record of a session"):
            return [self._messages_by_key[key] for key in keys]

    def _add_texts(self, texts: Sequence[SearchableText]) -> None:
        for text in texts:
            self.texts.setdefault(text.message_id or "", text)

    def _apply_fact(self, fact: Fact) -> None:
        """Put a fact into force unless one of its kind and key is to be kept; end the one that it closes."""
        if fact.closes is not None:
            self.facts.pop((fact.closes, fact.key), None)
        if fact.is_replaced:
            self.facts.pop((type(fact), fact.key), None)
        self.facts.setdefault((type(fact), fact.key), fact)


def fold(entries: Iterable[StoredEvent | StoredRecord]) -> StoredSession:
    """Return the session that these entries make, all of its log; raises `DamagedData`."""
    entries = iter(entries)
    first = next(entries, None)
    if not isinstance(first, StoredRecord) or not isinstance(first.record, SessionChanged):
        raise DamagedData("the log of a session does not begin with its record")
    session = StoredSession(first.record.record)
    session.apply_record(first)
    for entry in entries:
        if isinstance(entry, StoredRecord):
            session.apply_record(entry)
        else:
            session.apply_event(entry)
    session.sort_parts()
    return session
