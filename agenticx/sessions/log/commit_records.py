"""The records that a commit of a session, or its creation, writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

from agenticx.sessions.log.commits import Commit, StateChange
from agenticx.sessions.log.records import (
    EventsCopied,
    Fact,
    MessageAdded,
    MessagesCompacted,
    MessagesReplaced,
    PartChanged,
    PartRemoved,
    Record,
    SessionChanged,
    StoredRecord,
    TextsCopied,
    TextsRemoved,
    TurnAccepted,
    encode_message,
    message_key,
)
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord

__all__ = [
    "Head",
    "PlacedRecords",
    "commit_records",
    "session_records",
]


class Head(Protocol):
    """The session as it is before a commit: its records build on that."""

    @property
    def message_count(self) -> int: ...

    @property
    def compacted_count(self) -> int: ...

    def has_message(self, key: str) -> bool:
        """Return True if the log has a message with that key."""
        ...

    def part_place(self, name: str) -> int | None:
        """Return the place of that part of the state, None if it has none of that name."""
        ...

    def next_part_place(self) -> int:
        """Return the place behind all parts of the state."""
        ...


_TEXTS_CHARS, _MOST_TEXTS = 100_000, 100

PlacedRecords = tuple[Sequence[StoredRecord], Sequence[StoredRecord]]
"""The records of a commit before its events, and those after them."""


def session_records(
    record: SessionRecord,
    head: Head,
    *,
    copied_count: int,
    texts: Sequence[SearchableText],
    state: StateChange | None,
    facts: Sequence[Fact],
) -> PlacedRecords:
    """Return the records of a new session before its copied events, to which `texts` belong, and those after them."""
    before: list[Record] = [SessionChanged(key=record.id, record=record)]
    if copied_count:
        before.append(EventsCopied(key=record.id, count=copied_count))
    after = [TextsCopied(key="", texts=some) for some in _split_texts(texts)]
    return _placed(before, [*after, *_records_after_events(Commit(state=state, facts=facts), head)], 1, 0, copied_count)


def _split_texts(texts: Iterable[SearchableText]) -> Iterator[tuple[SearchableText, ...]]:
    """Yield the texts in lists of limited size, so that a store can write them in several transactions."""
    some, size = list[SearchableText](), 0
    for text in texts:
        some.append(text)
        size += len(text.text)
        if size >= _TEXTS_CHARS or len(some) == _MOST_TEXTS:
            yield tuple(some)
            some, size = [], 0
    if some:
        yield tuple(some)


def commit_records(commit: Commit, head: Head, *, rev: int, seq: int) -> PlacedRecords:
    """Return the records of the commit `rev` before its events, which follow the event `seq`, and those after them."""
    turn = commit.begins
    if turn is None and commit.state is None and commit.record is None and not commit.facts:
        return (), ()
    begun = [] if turn is None else [TurnAccepted(key=turn.id, turn_id=turn.id, turn=replace(turn, after_seq=None))]
    return _placed(begun, _records_after_events(commit, head), rev, seq, len(commit.events))


def _placed(before: Iterable[Record], after: Iterable[Record], rev: int, seq: int, event_count: int) -> PlacedRecords:
    first = [StoredRecord(rev, index, seq, one) for index, one in enumerate(before)]
    return first, [StoredRecord(rev, i, seq + event_count, one) for i, one in enumerate(after, len(first))]


def _records_after_events(commit: Commit, head: Head) -> Iterator[Record]:
    if commit.state is not None:
        yield from _state_records(commit.state, commit.turn_id or "", head)
    if commit.record is not None:
        yield SessionChanged(key=commit.record.id, turn_id=commit.turn_id or "", record=commit.record)
    yield from commit.facts


def _changed_parts(change: StateChange, turn_id: str, head: Head) -> Iterator[PartChanged]:
    following = count(head.next_part_place())
    for name, text in change.parts.items():
        place = None if name in change.removed_parts else head.part_place(name)
        yield PartChanged(key=name, turn_id=turn_id, place=next(following) if place is None else place, text=text)


def _state_records(change: StateChange, turn_id: str, head: Head) -> Iterator[Record]:
    added, keys, compacted = dict[str, MessageAdded](), list[str](), list[str]()
    for messages, named in ((change.messages, keys), (change.compacted, compacted)):
        for message in messages:
            text = encode_message(message)
            key = message_key(text)
            named.append(key)
            if key not in added and not head.has_message(key):
                added[key] = MessageAdded(key=key, turn_id=turn_id, text=text, message=message)
    yield from added.values()
    if change.keep_messages != head.message_count or keys != list(added):
        yield MessagesReplaced(key="", turn_id=turn_id, keep=change.keep_messages, messages=tuple(keys))
    keep = change.keep_compacted
    if keep is not None and (keep != head.compacted_count or compacted):
        yield MessagesCompacted(key="", turn_id=turn_id, keep=keep, messages=tuple(compacted))
    for name in change.removed_parts:
        yield PartRemoved(key=name, turn_id=turn_id)
    if change.parts:
        yield from _changed_parts(change, turn_id, head)
    if change.removed_texts:
        yield TextsRemoved(key="", turn_id=turn_id, message_ids=tuple(sorted(change.removed_texts)))
