"""The records of a session, its turns, messages and state, and the encoding of all records.

Each message is stored once, in a record whose key is the digest of its JSON. Where the conversation is changed at other
places than its end, a record names the messages that it has then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from itertools import count
from typing import Any, Protocol, Self, get_args

from agenticx.llms.sampling import Sampling
from agenticx.messages import Message
from agenticx.sessions.store.damage import DECODE_ERRORS, damaged_data
from agenticx.sessions.store.entries import (
    FACT_CLASSES,
    Fact,
    Record,
    StoredRecord,
    as_tuple,
    decode_message,
    encode_message,
)
from agenticx.sessions.store.records import Commit, SessionRecord, StateChange, TurnRecord
from agenticx.sessions.store.search import SearchableText
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "RECORD_CLASSES",
    "EventsCopied",
    "Head",
    "MessageAdded",
    "MessagesCompacted",
    "MessagesReplaced",
    "PartChanged",
    "PartRemoved",
    "SessionChanged",
    "TextsCopied",
    "TextsRetained",
    "TurnAccepted",
    "commit_records",
    "decode_record",
    "decode_session",
    "encode_record",
    "encode_session",
    "message_key",
    "session_records",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanged(Record):
    """The properties of the session `key` are these from now on; the first such record creates it."""

    kind = "session_changed"
    record: SessionRecord

    def data(self) -> dict[str, Any]:
        return asdict(self.record)

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, record=_load_session(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsCopied(Record):
    """The first `count` events were copied from another session, in which their usage counts."""

    kind = "events_copied"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAccepted(Record):
    """The turn `key` begins with the next event; without a parent it is the one that runs."""

    kind = "turn_accepted"
    turn: TurnRecord

    def data(self) -> dict[str, Any]:
        turn = self.turn
        sampling = None if turn.sampling is None else dict(turn.sampling.items())
        stored = {one.name: getattr(turn, one.name) for one in fields(turn) if one.name not in ("id", "after_seq")}
        return stored | {"sampling": sampling}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        sampling, vaults, variants = (data[name] for name in ("sampling", "vaults", "variants"))
        known: dict[str, Any] = {
            "sampling": None if sampling is None else Sampling(**sampling),
            "vaults": None if vaults is None else tuple(vaults),
            "variants": as_tuple(variants),
        }
        return cls(key=key, turn_id=turn_id, turn=TurnRecord(id=key, **data | known))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded(Record):
    """A message at the end of the conversation; `key` is the digest of `text`, which is its JSON."""

    kind = "message_added"
    text: str
    message: Message = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesReplaced(Record):
    """The conversation consists of its first `keep` messages and of these, named by the keys of their records."""

    kind = "messages_replaced"
    keep: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesCompacted(Record):
    """Summaries replace the first `keep` of the compacted messages, and these, named by the keys of their records."""

    kind = "messages_compacted"
    keep: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChanged(Record):
    """The part `key` of the session's state has this JSON from now on, see `tool_state.Parts`.

    It is at that place among the parts. It takes the place of the record before it with that key.
    """

    kind = "part_changed"
    place: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRemoved(Record):
    """The session's state has no part `key` any more."""

    kind = "part_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsCopied(Record):
    """A search finds these texts, which belong to copied events."""

    kind = "texts_copied"
    texts: tuple[SearchableText, ...]

    def data(self) -> dict[str, Any]:
        return {"texts": [(text.message_id, text.role, text.text) for text in self.texts]}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, texts=tuple(SearchableText(*text) for text in data["texts"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsRetained(Record):
    """A search finds no messages but these any more, until others are added."""

    kind = "texts_retained"
    message_ids: tuple[str, ...]


RECORD_CLASSES: tuple[type[Record], ...] = (
    *FACT_CLASSES,
    *(SessionChanged, EventsCopied, TurnAccepted, MessageAdded, MessagesReplaced, MessagesCompacted),
    *(PartChanged, PartRemoved, TextsCopied, TextsRetained),
)
"""The classes of records."""

_CLASSES_BY_KIND = {each.kind: each for each in RECORD_CLASSES}


def encode_record(record: Record) -> str:
    """Return the fields of a record other than its key and turn as a JSON object; raises as `json.dumps` does."""
    return record.text if isinstance(record, MessageAdded) else json.dumps(record.data())


def decode_record(kind: str, key: str, turn_id: str, data: str) -> Record:
    """Return the record of `encode_record`; raises `DamagedData`."""
    try:
        if kind == MessageAdded.kind:
            return MessageAdded(key=key, turn_id=turn_id, text=data, message=decode_message(data))
        return _CLASSES_BY_KIND[kind].load(key, turn_id, json.loads(data))
    except DECODE_ERRORS as exc:
        raise damaged_data("a record of a session", exc) from exc


# --- sessions ---------------------------------------------------------------------------------------------------------


def encode_session(record: SessionRecord) -> str:
    """Return the properties of a session as a JSON object."""
    return _dump(asdict(record))


def decode_session(text: str) -> SessionRecord:
    """Return the properties as they were stored; raises `DamagedData`."""
    try:
        return _load_session(json.loads(text))
    except DECODE_ERRORS as exc:
        raise damaged_data("the record of a session", exc) from exc


def _load_session(values: dict[str, Any]) -> SessionRecord:
    values |= {key: tuple(values[key]) for key in ("tools", "vaults") if values[key] is not None}
    record = SessionRecord(**values)
    if wrong := [name for name, is_right in _FIELD_CHECKS.items() if not is_right(getattr(record, name))]:
        raise TypeError(f"fields with wrong values: {wrong}")
    return record


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_text_or_none(value: object) -> bool:
    return value is None or _is_text(value)


_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("id", "workspace", "created_at"), _is_text),
    **dict.fromkeys(
        ("name", "model", "workspace_host", "system_prompt", "agent", "agent_file", "team", "forked_from"),
        _is_text_or_none,
    ),
    **dict.fromkeys(("pinned", "archived"), lambda value: isinstance(value, bool)),
    "permission_mode": lambda value: value in get_args(PermissionMode),
    **dict.fromkeys(("tools", "vaults"), lambda value: value is None or all(map(_is_text, value))),
}
"""Checks of the value of each field of a record."""


# --- the records of a commit ------------------------------------------------------------------------------------------


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


_PlacedRecords = tuple[Sequence[StoredRecord], Sequence[StoredRecord]]
"""The records of a commit before its events, and those after them."""


def session_records(
    record: SessionRecord,
    head: Head,
    *,
    copied_count: int,
    texts: Sequence[SearchableText],
    state: StateChange | None,
    facts: Sequence[Fact],
) -> _PlacedRecords:
    """Return the records of a new session before its copied events, to which `texts` belong, and those after them."""
    before: list[Record] = [SessionChanged(key=record.id, record=record)]
    if copied_count:
        before.append(EventsCopied(key=record.id, count=copied_count))
    after = [TextsCopied(key="", texts=tuple(texts))] if texts else []
    return _placed(before, [*after, *_records_after_events(Commit(state=state, facts=facts), head)], 1, 0, copied_count)


def commit_records(commit: Commit, head: Head, *, rev: int, seq: int) -> _PlacedRecords:
    """Return the records of the commit `rev` before its events, which follow the event `seq`, and those after them."""
    turn = commit.begins
    if turn is None and commit.state is None and commit.record is None and not commit.facts:
        return (), ()
    begun = [] if turn is None else [TurnAccepted(key=turn.id, turn_id=turn.id, turn=replace(turn, after_seq=None))]
    return _placed(begun, _records_after_events(commit, head), rev, seq, len(commit.events))


def _placed(before: Iterable[Record], after: Iterable[Record], rev: int, seq: int, event_count: int) -> _PlacedRecords:
    first = [StoredRecord(rev, index, seq, one) for index, one in enumerate(before)]
    return first, [StoredRecord(rev, i, seq + event_count, one) for i, one in enumerate(after, len(first))]


def _records_after_events(commit: Commit, head: Head) -> Iterator[Record]:
    if commit.state is not None:
        yield from _state_records(commit.state, commit.turn_id or "", head)
    if commit.record is not None:
        yield SessionChanged(key=commit.record.id, turn_id=commit.turn_id or "", record=commit.record)
    yield from commit.facts


def message_key(text: str) -> str:
    """Return the key of the record of a message with that JSON: its digest."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


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
    if change.searchable_ids is not None:
        yield TextsRetained(key="", turn_id=turn_id, message_ids=tuple(sorted(change.searchable_ids)))


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
