"""The records of a session's log: their classes, and the only place that encodes and decodes them.

Each message is stored once, in a record whose key is the digest of its JSON. Where the conversation is changed at other
places than its end, a record names the messages that it has then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast, get_args

from agenticx.llms.sampling import Sampling
from agenticx.messages import Message, UserMessage, message_adapter, new_id
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime.user_requests.kinds import KINDS, kind_of
from agenticx.runtime.user_requests.requests import UserAnswer
from agenticx.sessions.log.damage import DECODE_ERRORS, damaged_data
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.tool_state import Parts
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = [
    "CLOSING_CLASSES",
    "FACT_CLASSES",
    "FORKED_CLASSES",
    "RECORD_CLASSES",
    "BaseRecord",
    "CallBegan",
    "ChildTurnSaved",
    "EventsCopied",
    "Fact",
    "FactT",
    "FileEdited",
    "FileFact",
    "FileRewound",
    "ForkedPath",
    "MessageAdded",
    "MessagePosted",
    "MessageRecord",
    "MessageTaken",
    "MessagesCompacted",
    "MessagesReplaced",
    "NameAnnounced",
    "NameDerived",
    "PartChanged",
    "PartRemoved",
    "ProcessStarted",
    "Record",
    "RequestAnswered",
    "RequestAsked",
    "RequestDecided",
    "RewindBegan",
    "RewindEnded",
    "SessionChanged",
    "StoredRecord",
    "SubagentAnnounced",
    "SubagentDelivered",
    "SubagentEnded",
    "SubagentFact",
    "SubagentMessageTaken",
    "SubagentMessaged",
    "SubagentStarted",
    "SubagentUnannounced",
    "TextsCopied",
    "TextsRemoved",
    "TurnAccepted",
    "as_tuple",
    "decode_message",
    "decode_record",
    "decode_session",
    "encode_message",
    "encode_record",
    "encode_session",
    "message_key",
]


@dataclass(frozen=True, slots=True)
class ForkedPath:
    """The part of a session that is forked.

    `calls` are the ids of its calls; `new_turn_id` returns the id that one of its turns has in the fork.
    """

    calls: Collection[str]
    new_turn_id: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """An entry of a session's log that is not relayed. It has no number of its own, but a place among the events.

    `turn_id` is "" for a record of no turn. The fields other than `turn_id` and `key` are stored as a JSON object.
    """

    kind: ClassVar[str]

    key: str
    turn_id: str = ""

    def data(self) -> dict[str, Any]:
        """Return the fields other than `key` and `turn_id` as JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("key", "turn_id")}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        """Return the record with the `data` of one; raises an error of `DECODE_ERRORS` for other data."""
        values = {name: as_tuple(value) for name, value in data.items()}
        return cls(key=key, turn_id=turn_id, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(BaseRecord):
    """A record for what the events do not say.

    For example, a call is about to run, or a request has an answer which its turn has not taken yet. A fact is in force
    from its commit on. If another one of the same kind and `key` is stored, the first one stays in force, and the
    second has no effect. The facts of a turn are read as long as the turn is open. A class can change this:

    - `is_replaced`: the last fact of a key is in force instead, and the record of the one before it is deleted.
    - `closes`: a fact ends the one of that class with the same key.
    - `is_work`: a fact that none has closed is work for the next owner of the session.
    - `is_skippable`: a fact that cannot be decoded is left out when facts are read; for others `DamagedData` is raised.
    """

    closes: ClassVar[type[Fact] | None] = None
    is_replaced: ClassVar[bool] = False
    is_work: ClassVar[bool] = False
    is_skippable: ClassVar[bool] = False

    def forked(self, path: ForkedPath) -> Self | None:
        """Return the fact that a fork has of this one, None if it has none.

        By default it has none: most facts are about open turns, and the turns of a fork have ended.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact(Fact):
    """A fact about a file that is read as long as its session is kept, to rewind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentFact(Fact):
    """A fact about a sub-agent that is read as long as its session is kept."""

    is_skippable = True


def as_tuple(value: Any) -> Any:
    """Return a list of JSON as the tuple that it was, and any other value as it is."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan(Fact):
    """A call is about to run. Models repeat their call ids, so the key has the turn as well."""

    kind = "call_began"
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted(Fact):
    """A call has started a process of `host`, with the fields of a `StartedProcess`; the key is that of the call."""

    kind = "process_started"
    call_id: str
    host: str
    pid: int
    started: int
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAsked(Fact):
    """The request to the user `key` was asked in the event `seq`."""

    kind = "request_asked"
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered(Fact):
    answer: UserAnswer

    def data(self) -> dict[str, Any]:
        kind = kind_of(self.answer)
        return {"kind": kind.name, **kind.answer_data(self.answer)}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, answer=KINDS[data["kind"]].read_answer(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswered(_Answered):
    """The user's answer to the request `key`, before its turn takes it."""

    kind = "request_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDecided(_Answered):
    """The final answer to the request `key`, which its turn took."""

    kind = "request_decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePosted(Fact):
    """The user's message was accepted and is queued; it begins the turn `turn_id`, or joins it if it `steers`.

    Another one with the same key has the message as the user changed it.
    """

    kind = "message_posted"
    is_work = True
    is_replaced = True
    message: UserMessage
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
    output_schema: Mapping[str, Any] | None = None
    mode: str | None = None
    vaults: tuple[str, ...] | None = None
    steers: bool = False
    interrupts: bool = False

    def data(self) -> dict[str, Any]:
        sampling = None if self.sampling is None else dict(self.sampling.items())
        return Fact.data(self) | {"message": self.message.model_dump(mode="json"), "sampling": sampling}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        message = UserMessage.model_validate(data.pop("message"))
        sampling, vaults = data.pop("sampling"), data.pop("vaults")
        return cls(
            key=key,
            turn_id=turn_id,
            message=message,
            sampling=None if sampling is None else Sampling(**sampling),
            vaults=None if vaults is None else tuple(vaults),
            **data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTaken(Fact):
    """The outcome of a posted message, which an event after `after_seq` reports.

    `attached` is the fingerprint of the attachments.
    """

    kind = "message_taken"
    closes = MessagePosted
    state: Literal["started", "steered", "handed_back"]
    after_seq: int
    message_id: str
    client_turn_id: str | None
    input: str
    attached: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameDerived(Fact):
    """The turn `key` gave its session a name."""

    kind = "name_derived"
    is_work = True
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameAnnounced(Fact):
    """The event that reports a derived name is in the log."""

    kind = "name_announced"
    closes = NameDerived


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdited(FileFact):
    """A call is about to change a file of `host`; `before` and `after` are digests of its contents (None: no file).

    A file that is written `in_place` has parts of both contents if the process ends meanwhile. `root` is the folder in
    which the call could change files, such as a vault of notes, for a file outside the session's workspace. `checksum`
    is that of the other fields.
    """

    kind = "file_edited"
    call_id: str
    path: str
    before: str | None
    after: str | None
    host: str
    in_place: bool
    root: str | None
    checksum: str

    def forked(self, path: ForkedPath) -> Self | None:
        """Return the edit of a call on the path, under a key of its own: the keys of a store are distinct."""
        return replace(self, key=new_id("chg")) if self.call_id in path.calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRewound(FileFact):
    """A rewind is about to change a file of `host`: it undoes the edits of the calls `undone`, and redoes `redone`.

    `mode` are the permissions of a file that it removes. A file that is written `in_place` has parts of both contents
    if the process ends meanwhile. `checksum` is that of the other fields.
    """

    kind = "file_rewound"
    path: str
    undone: tuple[str, ...]
    redone: tuple[str, ...]
    mode: int | None
    host: str
    in_place: bool
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindBegan(Fact):
    """Files are about to be restored for a rewind to a message, where the log ends at `after_seq`."""

    kind = "rewind_began"
    is_work = True
    message_id: str | None
    after_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindEnded(Fact):
    """The conversation is rewound too, or the session went on without it."""

    kind = "rewind_ended"
    closes = RewindBegan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTurnSaved(Fact):
    """The child turn `key` as it is saved when it asks the user, to go on from there after a restart.

    `messages` is its conversation, and `state` are the parts of its tool state, see `decode_tool_state`. Another one
    without messages and with the state None replaces it when the turn ends.
    """

    kind = "child_turn_saved"
    is_replaced = True
    messages: tuple[Message, ...] = ()
    state: Parts | None = None
    agent_path: tuple[str, ...] = ()
    detached: bool = False

    def data(self) -> dict[str, Any]:
        return Fact.data(self) | {"messages": [encode_message(message) for message in self.messages]}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        messages = tuple(map(decode_message, data.pop("messages")))
        return cls(key=key, turn_id=turn_id, messages=messages, agent_path=tuple(data.pop("agent_path")), **data)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStarted(SubagentFact):
    """A run of a sub-agent is about to begin; `key` is the id of its turn."""

    kind = "subagent_started"
    run: SubagentRun

    def data(self) -> dict[str, Any]:
        return self.run.dump()

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, run=SubagentRun.load(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended(SubagentFact):
    ending: SubagentEnding

    def data(self) -> dict[str, Any]:
        return Fact.data(self) | {"ending": self.ending.dump()}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, **data | {"ending": SubagentEnding.load(data["ending"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnded(_Ended):
    """The run `key` has ended."""

    kind = "subagent_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentDelivered(_Ended):
    """The notice of the ending of the run `key` is due, delivered or dropped.

    - `is_due`: no conversation has the notice yet.
    - With a `message_id` it is delivered. `recipient_turn_id` is a turn of the main agent or of a sub-agent, and
      `message_turn_id` the turn with the message: the same, or a child turn of it, such as a speech in a team.
    - With neither it is dropped: it is not delivered. For example, the start of the sub-agent was rewound away.
    """

    kind = "subagent_delivered"
    closes = SubagentEnded
    is_replaced = True
    is_due: bool = False
    message_id: str = ""
    recipient_turn_id: str = ""
    message_turn_id: str = ""

    def forked(self, path: ForkedPath) -> Self | None:
        """Return the delivery with the ids that its turns have in the fork."""
        ending = replace(self.ending, turn_id=path.new_turn_id(self.ending.turn_id))
        recipient, message_turn = (
            id_ and path.new_turn_id(id_) for id_ in (self.recipient_turn_id, self.message_turn_id)
        )
        return replace(
            self, key=ending.turn_id, ending=ending, recipient_turn_id=recipient, message_turn_id=message_turn
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentUnannounced(Fact):
    """The event of the ending of the run `key` is not in the log yet: the next owner of the session appends it."""

    kind = "subagent_unannounced"
    is_work = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentAnnounced(SubagentFact):
    """The event of the ending of the run `key` is in the log."""

    kind = "subagent_announced"
    closes = SubagentUnannounced


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentMessaged(SubagentFact):
    """The message `key` for a sub-agent was accepted."""

    kind = "subagent_messaged"
    agent_id: str
    text: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentMessageTaken(Fact):
    """The message `key` is not unread any more: the conversation of its sub-agent has it."""

    kind = "subagent_message_taken"
    closes = SubagentMessaged


# --- a session, its turns, messages and state -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanged(BaseRecord):
    """The properties of the session `key` are these from now on; the first such record creates it."""

    kind = "session_changed"
    record: SessionRecord

    def data(self) -> dict[str, Any]:
        return asdict(self.record)

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, record=_load_session(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsCopied(BaseRecord):
    """The first `count` events were copied from another session, in which their usage counts."""

    kind = "events_copied"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAccepted(BaseRecord):
    """The turn `key` begins with the next event; it is the session's own turn, or a child turn if it has a parent."""

    kind = "turn_accepted"
    turn: TurnRecord

    def data(self) -> dict[str, Any]:
        """Return what of the turn is not as by default, as JSON."""
        turn = self.turn
        values = {one.name: value for one in fields(turn) if (value := getattr(turn, one.name)) != one.default}
        if turn.sampling is not None:
            values["sampling"] = dict(turn.sampling.items())
        return {name: value for name, value in values.items() if name not in ("id", "after_seq")}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        sampling, vaults, variants = (data.get(name) for name in ("sampling", "vaults", "variants"))
        known: dict[str, Any] = {
            "sampling": None if sampling is None else Sampling(**sampling),
            "vaults": None if vaults is None else tuple(vaults),
            "variants": as_tuple(variants),
        }
        return cls(key=key, turn_id=turn_id, turn=TurnRecord(id=key, **data | known))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded(BaseRecord):
    """A message at the end of the conversation; `key` is the digest of `text`, which is its JSON."""

    kind = "message_added"
    text: str
    message: Message = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesReplaced(BaseRecord):
    """The conversation consists of its first `keep` messages and of these, named by the keys of their records."""

    kind = "messages_replaced"
    keep: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesCompacted(BaseRecord):
    """Summaries replace the first `keep` of the compacted messages, and these, named by the keys of their records."""

    kind = "messages_compacted"
    keep: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChanged(BaseRecord):
    """The part `key` of the session's state has this JSON from now on, see `tool_state.Parts`.

    `place` orders the parts. The record before it with the same key is deleted.
    """

    kind = "part_changed"
    place: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRemoved(BaseRecord):
    """The session's state has no part `key` any more."""

    kind = "part_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsCopied(BaseRecord):
    """A search finds these texts, which belong to copied events."""

    kind = "texts_copied"
    texts: tuple[SearchableText, ...]

    def data(self) -> dict[str, Any]:
        return {"texts": [(text.message_id, text.role, text.text) for text in self.texts]}

    @classmethod
    def load(cls, key: str, turn_id: str, data: dict[str, Any]) -> Self:
        return cls(key=key, turn_id=turn_id, texts=tuple(SearchableText(*text) for text in data["texts"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsRemoved(BaseRecord):
    """A search finds these messages no more, until they are added again."""

    kind = "texts_removed"
    message_ids: tuple[str, ...]


# --- all records ------------------------------------------------------------------------------------------------------

FACT_CLASSES: tuple[type[Fact], ...] = (
    *(CallBegan, ProcessStarted, RequestAsked, RequestAnswered, RequestDecided, MessagePosted, MessageTaken),
    *(NameDerived, NameAnnounced, FileEdited, FileRewound, RewindBegan, RewindEnded, ChildTurnSaved),
    *(SubagentStarted, SubagentEnded, SubagentDelivered, SubagentMessaged, SubagentUnannounced, SubagentAnnounced),
    SubagentMessageTaken,
)
"""The classes of facts."""

MessageRecord: TypeAlias = MessageAdded | MessagesReplaced | MessagesCompacted | TextsCopied | TextsRemoved
"""A record that changes the conversation or the texts that a search finds."""

Record: TypeAlias = Fact | SessionChanged | EventsCopied | TurnAccepted | PartChanged | PartRemoved | MessageRecord
"""Any record.

Pyright checks that `FoldedSession` and `store.sqlite._records` have a case for facts and one for each other class.
"""

RECORD_CLASSES: tuple[type[Record], ...] = (*FACT_CLASSES, *(each for each in get_args(Record) if each is not Fact))
"""The classes of records."""

FORKED_CLASSES: tuple[type[Fact], ...] = tuple(each for each in FACT_CLASSES if each.forked is not Fact.forked)
"""The classes of the facts that a fork can have."""

CLOSING_CLASSES: dict[str, type[Fact]] = {
    each.closes.kind: each for each in FACT_CLASSES if each.closes is not None and each.closes.is_work
}
"""For each kind of fact that is work for the next owner, the class of the fact that closes it."""

FactT = TypeVar("FactT", bound=Fact)


class StoredRecord(NamedTuple):
    """A record with its place in the log: number `record_index` of the commit `rev`, behind the event `seq`."""

    rev: int
    record_index: int
    seq: int
    record: Record


_CLASSES_BY_KIND = {each.kind: each for each in RECORD_CLASSES}


def encode_record(record: Record) -> str:
    """Return the fields of a record other than its key and turn as a JSON object; raises as `json.dumps` does."""
    return record.text if isinstance(record, MessageAdded) else _dump(record.data())


def decode_record(kind: str, key: str, turn_id: str, data: str) -> Record:
    """Return the record of `encode_record`; raises `DamagedData`."""
    try:
        if not isinstance(key, str) or not isinstance(turn_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("the key of a record is no text")
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


# --- messages ---------------------------------------------------------------------------------------------------------


def encode_message(message: Message) -> str:
    """Return a message as a JSON object, without what is as by default."""
    try:
        text = message.model_dump_json(exclude_defaults=True)
    except ValueError:  # a lone surrogate, which JSON has only as an escape
        text = _dump(message.model_dump(exclude_defaults=True))
    return f'{{"role":"{message.role}",{text[1:]}'  # the class has it by default


def decode_message(text: str) -> Message:
    """Return a message from the JSON of its record; raises an error of `DECODE_ERRORS`."""
    try:
        return message_adapter().validate_json(text)
    except ValueError:  # a lone surrogate, which only the slower parser reads
        return message_adapter().validate_python(json.loads(text))


def message_key(text: str) -> str:
    """Return the key of the record of a message with that JSON: its digest."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
