"""The entries of a session's log, and the only place that encodes and decodes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Self,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)

from pydantic_core import from_json

from agenticx.llms.sampling import Sampling
from agenticx.messages import Message, UserMessage, message_adapter, new_id
from agenticx.runtime.events import (
    EVENT_CLASSES,
    Event,
    EventType,
    RuntimeEvent,
    encode_envelope,
)
from agenticx.runtime.events.types import PAYLOADS, AnsweringEvent, AskingEvent
from agenticx.runtime.user_requests.kinds import KINDS, kind_of, kind_of_event
from agenticx.runtime.user_requests.requests import UserAnswer, UserRequest
from agenticx.sessions.store.damage import DECODE_ERRORS, DamagedData, damaged_data, map_decode_errors
from agenticx.sessions.store.tool_state import Parts
from agenticx.subagents.records import SubagentEnding, SubagentRun
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "FACT_CLASSES",
    "CallBegan",
    "Fact",
    "FactT",
    "FileEdited",
    "FileFact",
    "FileRewound",
    "ForkedPath",
    "MessagePosted",
    "MessageTaken",
    "NameAnnounced",
    "NameDerived",
    "Position",
    "ProcessStarted",
    "Record",
    "RequestAnswered",
    "RequestAsked",
    "RequestDecided",
    "RewindBegan",
    "RewindEnded",
    "SessionEvent",
    "StoredEvent",
    "StoredRecord",
    "SubagentAnnounced",
    "SubagentDelivered",
    "SubagentEnded",
    "SubagentFact",
    "SubagentMessageTaken",
    "SubagentMessaged",
    "SubagentStarted",
    "SubagentUnannounced",
    "TurnWaiting",
    "as_tuple",
    "asked_request",
    "check_envelope",
    "decode",
    "decode_line",
    "decode_message",
    "encode",
    "encode_events",
    "encode_message",
    "given_answer",
    "renumbered",
    "request_id",
    "stored_request",
]

Position = NewType("Position", int)
"""A position in the log of all sessions, rising with gaps. Only the store compares positions; others keep them."""


class StoredEvent(NamedTuple):
    """An event as it is stored in the log.

    `seq` counts within the session from 1 without gaps, `position` is its position in the log of all sessions.
    `frame_json` is the encoded envelope: encoded once, the same bytes for every reader and every replay.
    """

    session_id: str
    turn_id: str | None
    seq: int
    position: Position
    type: EventType
    terminal: bool
    frame_json: bytes


class SessionEvent(NamedTuple):
    """An event of a session's log with its cursor, `seq`, and the time `ts` of its commit (RFC 3339, UTC).

    `turn_id` is None for events of the session as a whole.
    """

    event: Event
    turn_id: str | None
    seq: int
    ts: str


def encode(
    event: RuntimeEvent, *, session_id: str, turn_id: str | None, seq: int, position: int, ts: str
) -> StoredEvent:
    """Return an event as it is stored; raises as `encode_envelope` does."""
    frame = encode_envelope(event, session_id=session_id, turn_id=turn_id, seq=seq, ts=ts)
    return StoredEvent(session_id, turn_id, seq, Position(position), event.type, event.terminal, frame)


def encode_events(
    session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, seq: int, position: int, ts: str
) -> list[StoredEvent]:
    """Return `events` as stored right after `seq` and `position`; a store with gaps between positions sets its own.

    A `session_changed` belongs to no turn, also in the commit of one that caused it.
    """
    return [
        encode(
            event,
            session_id=session_id,
            turn_id=None if event.type is EventType.SESSION_CHANGED else turn_id,
            seq=seq + offset,
            position=position + offset,
            ts=ts,
        )
        for offset, event in enumerate(events, 1)
    ]


def renumbered(events: Sequence[StoredEvent], position: int) -> list[StoredEvent]:
    """Return `events` at the positions after `position`."""
    return [event._replace(position=Position(place)) for place, event in enumerate(events, position + 1)]


def decode(stored: StoredEvent) -> SessionEvent:
    """Return a stored event as it was emitted, with all keys that its payload needs; raises `DamagedData`."""
    try:
        return _decode(stored.frame_json)
    except DECODE_ERRORS as exc:
        raise damaged_data(f"event {stored.seq} of session {stored.session_id!r}", exc) from exc


def check_envelope(stored: StoredEvent) -> None:
    """Raise `DamagedData` unless the event can be decoded and its envelope is that of its row."""
    entry = decode(stored)
    session_id = _parse(stored.frame_json)["session_id"]
    expected = (stored.session_id, stored.turn_id, stored.seq, stored.type, stored.terminal)
    if (session_id, entry.turn_id, entry.seq, entry.event.type, entry.event.terminal) != expected:
        raise DamagedData(f"event {stored.seq} of session {stored.session_id!r} is another one than its row says")


def decode_line(line: bytes) -> SessionEvent:
    """Return the event in a line of an exported log, as `decode` does; raises `DamagedData`."""
    with map_decode_errors("an event of a log"):
        return _decode(line)


def _decode(frame: bytes) -> SessionEvent:
    envelope = _parse(frame)
    type_, data, turn_id = _TYPES[envelope["type"]], envelope["data"], envelope["turn_id"]
    if not _required_keys(type_) <= data.keys():
        raise KeyError("a key of the payload is missing")
    event = EVENT_CLASSES[type_](type_, data, envelope["agent_id"], turn_id)
    return SessionEvent(event, turn_id, envelope["seq"], envelope["ts"])


_TYPES = {type_.value: type_ for type_ in EventType}


def request_id(stored: StoredEvent) -> str:
    """Return the id of the request to the user in an event of `REQUEST_EVENTS`; raises `DamagedData`."""
    event = decode(stored).event
    assert isinstance(event, AskingEvent | AnsweringEvent)
    return event.data["id"]


@cache
def _required_keys(type_: EventType) -> frozenset[str]:
    payload = PAYLOADS[type_]
    if not payload.__total__:
        return frozenset()
    hints = get_type_hints(payload, include_extras=True)
    return frozenset(key for key, hint in hints.items() if get_origin(hint) is not NotRequired)


def _parse(frame: bytes) -> dict[str, Any]:
    try:
        return from_json(frame)
    except ValueError:  # a lone surrogate or a deep value, which only the slower parser reads
        return json.loads(frame)


# --- messages ---------------------------------------------------------------------------------------------------------


def encode_message(message: Message) -> str:
    """Return a message as a JSON object."""
    try:
        return message.model_dump_json()
    except ValueError:  # a lone surrogate, which JSON has only as an escape
        return json.dumps(message.model_dump())


def decode_message(text: str) -> Message:
    """Return a message from the JSON of its record; raises an error of `DECODE_ERRORS`."""
    try:
        return message_adapter().validate_json(text)
    except ValueError:  # a lone surrogate, which only the slower parser reads
        return message_adapter().validate_python(json.loads(text))


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForkedPath:
    """The part of a session that a fork has: the ids of the calls, and `new_turn_id` of those of its turns there."""

    calls: Collection[str]
    new_turn_id: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An entry of a session's log that is not relayed: it has no number of its own, and a place among the events.

    `turn_id` is "" for those of no turn. Fields other than that and `key` are stored as a JSON object.
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

    def forked(self, path: ForkedPath) -> Self | None:
        """Return the record that a fork has of this one, None if it has none.

        That is so for most: the turns of a fork have ended, and its conversation and state have records of its own.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Record):
    """A record of which one for its kind and its `key` is in force.

    Facts say what the events cannot: that a call is about to run, before it runs, and the answer to a request, before
    its turn continues. Those of a turn are read as long as it is open. The first one with a key stays in force, or with
    `is_replaced` the last one, of which alone the log has the record. One ends that of the class which it `closes` with
    the same key. With `is_work` one that is not closed is work for the next owner of the session. One that
    `is_skippable` and cannot be decoded is left out where facts are read.
    """

    closes: ClassVar[type[Fact] | None] = None
    is_replaced: ClassVar[bool] = False
    is_work: ClassVar[bool] = False
    is_skippable: ClassVar[bool] = False


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
    """The user's message was accepted and is queued; it begins the turn `turn_id`, or joins it if it `steers`."""

    kind = "message_posted"
    is_work = True
    message: UserMessage
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
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
    """The outcome of a posted message: the event after `after_seq` or a later one tells of it.

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
    """A rewind is about to change a file of `host`: it undoes the edits of the calls `undone`, and redoes others.

    `mode` are the permissions of a file that it removes. One `in_place` may be cut off, as that of a `FileEdited`.
    `checksum` is that of the other fields.
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
class TurnWaiting(Fact):
    """The turn `key`, below another one, has asked the user, and goes on after a restart with these messages.

    `state` are the parts of its tool state, see `decode_tool_state`; None once the turn has ended.
    """

    kind = "turn_waiting"
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
    """The run `key` of a sub-agent, which is the turn of that id once it has begun, is about to begin."""

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
    """The ending of the run `key` `is_due`, the message `message_id` has it, or it is not to be told.

    The latter is so for a sub-agent whose start was rewound away. The message is one of the turn `told_in`, which is
    that of another sub-agent if the ending is for that one, or of the turn `told_to` below it, such as a speech in a
    team.
    """

    kind = "subagent_delivered"
    closes = SubagentEnded
    is_replaced = True
    is_due: bool = False
    message_id: str = ""
    told_in: str = ""
    told_to: str = ""

    def forked(self, path: ForkedPath) -> Self | None:
        """Return the delivery with the ids that its turns have in the fork."""
        ending = replace(self.ending, turn_id=path.new_turn_id(self.ending.turn_id))
        told_in, told_to = (id_ and path.new_turn_id(id_) for id_ in (self.told_in, self.told_to))
        return replace(self, key=ending.turn_id, ending=ending, told_in=told_in, told_to=told_to)


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
    """The conversation of a sub-agent has the message `key`, or began anew."""

    kind = "subagent_message_taken"
    closes = SubagentMessaged


class StoredRecord(NamedTuple):
    """A record with its place in the log: number `record_index` of the commit `rev`, behind the event `seq`."""

    rev: int
    record_index: int
    seq: int
    record: Record


FactT = TypeVar("FactT", bound=Fact)

FACT_CLASSES: tuple[type[Fact], ...] = (
    *(CallBegan, ProcessStarted, RequestAsked, RequestAnswered, RequestDecided, MessagePosted, MessageTaken),
    *(NameDerived, NameAnnounced, FileEdited, FileRewound, RewindBegan, RewindEnded, TurnWaiting),
    *(SubagentStarted, SubagentEnded, SubagentDelivered, SubagentMessaged, SubagentUnannounced, SubagentAnnounced),
    SubagentMessageTaken,
)
"""The classes of facts."""


def asked_request(event: AskingEvent, session_id: str) -> UserRequest:
    """Return what an event asks the user."""
    return kind_of_event(event.type).read_request(event.data, session_id, event.agent_id)


def stored_request(stored: StoredEvent) -> UserRequest:
    """Return what a stored event asks the user; it is one of the `ASKING_EVENTS`. Raises `DamagedData`."""
    event = decode(stored).event
    assert isinstance(event, AskingEvent)
    return asked_request(event, stored.session_id)


def given_answer(event: RuntimeEvent) -> UserAnswer:
    """Return the answer in one of the `ANSWERING_EVENTS`."""
    return kind_of_event(event.type).read_answer(event.data)
