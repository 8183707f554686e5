"""A session as its log says: the fold of its events and records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, assert_never, cast

from typing_extensions import override

from agenticx.messages import Message
from agenticx.runtime.events import DELTAS, Event, EventType, RuntimeEvent
from agenticx.sessions.log.commits import Commit, LoadedSession
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.log.records import (
    EventsCopied,
    Fact,
    FactT,
    MessageAdded,
    MessagePosted,
    MessageRecord,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    PartRemoved,
    RequestAnswered,
    RequestAsked,
    RequestDecided,
    SessionChanged,
    StoredRecord,
    TextsCopied,
    TextsRemoved,
    TurnAccepted,
)
from agenticx.sessions.log.searchable_texts import SearchableText, searchable_texts
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.subagent_runs import SubagentRuns
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.sessions.log.usage import DailyUsage, UsageCounts

__all__ = ["FoldedSession", "StoredSession", "fold"]

_CHANGES_NOTHING = DELTAS | {EventType.TOOL_PROGRESS, EventType.ARTIFACT, EventType.SESSION_CHANGED}
"""The events that no turn in `StoredSession.tree` has: those only that a reader of the whole turn needs."""


@dataclass(slots=True)
class StoredSession:
    """The open part of a session as it is stored; its owner folds it from its commits.

    `open_turns` are the turns that have not ended, by id, and `tree` has what their events say, without the text of
    messages. `facts` are the facts of these turns, and the work that no fact has closed, in the order in which they
    were stored. `subagents` are all runs of sub-agents.

    It is changed in place, and only by entries: the same entries make the same session, whether they are folded as they
    are committed, or read from the log.
    """

    record: SessionRecord
    last_seq: int = 0
    open_turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    tree: TurnTree = field(default_factory=TurnTree)
    facts: dict[tuple[type[Fact], str], Fact] = field(default_factory=dict[tuple[type[Fact], str], Fact])
    subagents: SubagentRuns = field(default_factory=lambda: SubagentRuns(keeps_texts=False))

    @classmethod
    def of(cls, loaded: LoadedSession) -> Self:
        """Return the session that a store has loaded; `tree` has the ids of the open turns, until their log is read."""
        session = cls(loaded.record, subagents=SubagentRuns.of(loaded.subagent_facts, keeps_texts=False))
        session.reset_to(loaded)
        return session

    def reset_to(self, loaded: LoadedSession) -> None:
        """Take what the store has, after a commit whose outcome it may have reported wrongly."""
        main = [] if loaded.main_turn is None else [loaded.main_turn]
        self.record, self.last_seq = loaded.record, loaded.last_seq
        self.open_turns = {turn.id: turn for turn in (*loaded.child_turns, *main)}
        self.facts = {(type(fact), fact.key): fact for fact in loaded.open_facts}
        for turn_id in [*self.tree.turns]:
            if turn_id not in self.open_turns:
                self.tree.remove(turn_id)
        for turn_id in self.open_turns:
            self.tree.add(turn_id)

    @property
    def main_turn(self) -> TurnRecord | None:
        """The session's own turn that has not ended."""
        return next((turn for turn in self.open_turns.values() if turn.parent_turn_id is None), None)

    @property
    def child_turns(self) -> Sequence[TurnRecord]:
        """The child turns that have not ended, in the order in which they began."""
        return [turn for turn in self.open_turns.values() if turn.parent_turn_id is not None]

    @property
    def queued(self) -> Sequence[MessagePosted]:
        """The user's messages that were accepted and that no turn has taken."""
        return self.open_facts_of(MessagePosted)

    @property
    def open_requests(self) -> Sequence[RequestAsked]:
        """The requests of open turns which have no answer."""
        answered = {fact.key for fact in self.open_facts_of(RequestAnswered, RequestDecided)}
        return [fact for fact in self.open_facts_of(RequestAsked) if fact.key not in answered]

    @property
    def has_work(self) -> bool:
        """True if a turn has not ended or a fact is open."""
        return bool(self.open_turns or self.facts)

    def open_facts_of(self, *types: type[FactT]) -> list[FactT]:
        """Return the facts of these classes that are open, in the order in which they were stored."""
        return [fact for fact in self.facts.values() if isinstance(fact, types)]

    def apply_commit(self, commit: Commit) -> None:
        """Take a commit into account, whose state changes nothing here."""
        if commit.begins is not None:
            self.begin(replace(commit.begins, after_seq=self.last_seq))
        for event in commit.events:
            self.last_seq += 1
            self.apply_event_of(commit.turn_id, event)
        if commit.record is not None:
            self.record = commit.record
        for fact in commit.facts:
            self.apply_fact(fact)

    def begin(self, turn: TurnRecord) -> None:
        """Take a turn into account that begins: the session's own, or a child turn."""
        self.open_turns[turn.id] = turn
        self.tree.add(turn.id)

    def apply_event_of(self, turn_id: str | None, event: RuntimeEvent) -> None:
        """Take an event of a turn into account."""
        if turn_id is None or event.type in _CHANGES_NOTHING or turn_id not in self.open_turns:
            return
        self.tree[turn_id].apply(cast("Event", event))
        if event.terminal:
            del self.open_turns[turn_id]
            self.tree.remove(turn_id)
            self.facts = {id_: fact for id_, fact in self.facts.items() if fact.is_work or fact.turn_id != turn_id}

    def apply_fact(self, fact: Fact) -> None:
        """Put a fact into force unless one of its kind and key is; end the one that it closes."""
        _put_into_force(self.facts, fact, is_kept=fact.is_work or fact.turn_id in self.open_turns)
        self.subagents.apply([fact])


def _put_into_force(facts: dict[tuple[type[Fact], str], Fact], fact: Fact, *, is_kept: bool) -> None:
    if fact.closes is not None:
        facts.pop((fact.closes, fact.key), None)
    if fact.is_replaced:
        facts.pop((type(fact), fact.key), None)
    if is_kept:
        facts.setdefault((type(fact), fact.key), fact)


@dataclass(slots=True)
class FoldedSession(StoredSession):
    """All that the tables of a store have of a session, folded from the entries of its log in their order.

    `rev` is the last commit. The first `copied_count` events were copied from another session. `turns` are all turns,
    `all_facts` the facts in force, `texts` what a search finds, by message, and `usage` the sums by day, model and
    agent.
    """

    copied_count: int = 0
    rev: int = 0
    turns: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    by_client_id: dict[str, str] = field(default_factory=dict[str, str])
    messages: list[Message] = field(default_factory=list[Message])
    compacted: list[Message] = field(default_factory=list[Message])
    parts: dict[str, str] = field(default_factory=dict[str, str])
    texts: dict[str, SearchableText] = field(default_factory=dict[str, SearchableText])
    all_facts: dict[tuple[type[Fact], str], Fact] = field(default_factory=dict[tuple[type[Fact], str], Fact])
    usage: dict[tuple[str, str, str], UsageCounts] = field(default_factory=dict[tuple[str, str, str], UsageCounts])
    _messages_by_key: dict[str, Message] = field(default_factory=dict[str, Message])
    _part_places: dict[str, int] = field(default_factory=dict[str, int])
    _last_part_place: int = 0

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
        return [fact for fact in self.all_facts.values() if isinstance(fact, types) and key in (None, fact.key)]

    def has_message(self, key: str) -> bool:
        """Return True if the log has a message with that key."""
        return key in self._messages_by_key

    def part_place(self, name: str) -> int | None:
        """Return the place of that part of the state, None if it has none of that name."""
        return self._part_places.get(name)

    def next_part_place(self) -> int:
        """Return the place behind all parts of the state."""
        return self._last_part_place + 1

    def sort_parts(self) -> None:
        """Put the parts in order: of one that was changed the log has the last record only."""
        self.parts = {name: self.parts[name] for name in sorted(self.parts, key=self._part_places.__getitem__)}

    def apply_event(self, stored: StoredEvent) -> None:
        """Take an event into account; raises `DamagedData`."""
        self.last_seq = stored.seq
        if stored.turn_id in self.open_turns and stored.type not in _CHANGES_NOTHING:
            self.apply_event_of(stored.turn_id, decode(stored).event)
        if stored.type is EventType.USAGE and stored.seq > self.copied_count:
            call = DailyUsage.of_call(stored)
            key = (call.day, call.model, call.agent_id)
            self.usage[key] = self.usage.get(key, UsageCounts()) + call.counts

    def apply_record(self, stored: StoredRecord) -> None:
        """Take a record into account; raises `DamagedData` if it names a message that no record has."""
        self.rev = stored.rev
        match stored.record:
            case Fact() as fact:
                self.apply_fact(fact)
            case SessionChanged(record=record):
                self.record = record
            case EventsCopied(count=count):
                self.copied_count = count
            case TurnAccepted(turn=turn):
                self.begin(replace(turn, after_seq=stored.seq))
            case PartChanged(key=name, place=place, text=text):
                self.parts[name], self._part_places[name] = text, place
                self._last_part_place = max(self._last_part_place, place)
            case PartRemoved(key=name):
                self.parts.pop(name, None)
                self._part_places.pop(name, None)
            case record:
                self._apply_to_messages(record)

    def _apply_to_messages(self, record: MessageRecord) -> None:
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
            case TextsRemoved(message_ids=ids):
                for id_ in ids:
                    self.texts.pop(id_, None)
            case _:
                assert_never(record)

    @override
    def begin(self, turn: TurnRecord) -> None:
        StoredSession.begin(self, turn)
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

    @override
    def apply_fact(self, fact: Fact) -> None:
        _put_into_force(self.all_facts, fact, is_kept=True)
        StoredSession.apply_fact(self, fact)
        id_ = type(fact), fact.key
        if self.facts.get(id_, first := self.all_facts[id_]) is not first:  # the first is one of a turn that has ended
            del self.facts[id_]


def fold(entries: Iterable[StoredEvent | StoredRecord]) -> FoldedSession:
    """Return the session that these entries make, all of its log; raises `DamagedData`."""
    entries = iter(entries)
    first = next(entries, None)
    if not isinstance(first, StoredRecord) or not isinstance(first.record, SessionChanged):
        raise DamagedData("the log of a session does not begin with its record")
    session = FoldedSession(first.record.record)
    session.apply_record(first)
    for entry in entries:
        if isinstance(entry, StoredRecord):
            session.apply_record(entry)
        else:
            session.apply_event(entry)
    session.sort_parts()
    return session
