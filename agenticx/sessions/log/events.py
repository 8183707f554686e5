"""The events of a session's log as they are stored, and the only place that decodes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from io import StringIO
from typing import Any, NamedTuple, NewType, NotRequired, cast, get_origin, get_type_hints

from pydantic_core import from_json

from agenticx.runtime.events import EVENT_CLASSES, Event, EventType, RuntimeEvent, TokenEvent, encode_envelope
from agenticx.runtime.events.types import PAYLOADS, AnsweringEvent, AskingEvent
from agenticx.runtime.user_requests.kinds import kind_of_event
from agenticx.runtime.user_requests.requests import UserAnswer, UserRequest
from agenticx.sessions.log.damage import DECODE_ERRORS, DamagedData, damaged_data, map_decode_errors

__all__ = [
    "Position",
    "SessionEvent",
    "StoredEvent",
    "TokenMerger",
    "asked_request",
    "check_envelope",
    "copied",
    "decode",
    "decode_line",
    "encode",
    "encode_events",
    "given_answer",
    "renumbered",
    "request_id",
    "stored_request",
]

Position = NewType("Position", int)
"""A position in the log of all sessions, rising with gaps. Only the store compares positions; others keep them."""


class StoredEvent(NamedTuple):
    """An event as it is stored in the log.

    `seq` counts within the session from 1 without gaps, `position` is its position in the log of all sessions, 0 for
    one that was copied from another session.
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
    return [
        StoredEvent(event[0], event[1], event[2], cast("Position", place), event[4], event[5], event[6])
        for place, event in enumerate(events, position + 1)  # each of a turn: `_replace` takes three times as long
    ]


def copied(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return `events` without their positions in the log of all sessions."""
    return [event._replace(position=Position(0)) for event in events]


def decode(stored: StoredEvent) -> SessionEvent:
    """Return a stored event as it was emitted, with all keys that its payload needs; raises `DamagedData`."""
    try:
        return _decode(stored.frame_json)
    except DECODE_ERRORS as exc:
        raise damaged_data(f"event {stored.seq} of session {stored.session_id!r}", exc) from exc


def check_envelope(stored: StoredEvent) -> None:
    """Raise `DamagedData` unless the event can be decoded and its envelope is that of its row."""
    with map_decode_errors(f"event {stored.seq} of session {stored.session_id!r}"):
        envelope = _parse(stored.frame_json)
        event, turn_id, seq, _ = _session_event(envelope)
        found = (envelope["session_id"], turn_id, seq, event.type, event.terminal)
    if found != (stored.session_id, stored.turn_id, stored.seq, stored.type, stored.terminal):
        raise DamagedData(f"event {stored.seq} of session {stored.session_id!r} is another one than its row says")


class TokenMerger:
    """A list of events in which the tokens of a message are one, unless its turn has another event between them.

    So it grows with the texts of a session, not with the number of its events.
    """

    def __init__(self) -> None:
        self._entries: list[SessionEvent] = []
        self._open: dict[str | None, tuple[TokenEvent, StringIO]] = {}  # the first token and the text, by turn

    def add(self, entry: SessionEvent) -> None:
        """Append the next event of the session."""
        event, last = entry.event, self._open.get(entry.turn_id)
        if isinstance(event, TokenEvent):
            if last is not None and _is_same_message(last[0], event):
                last[1].write(event.data["text"])
                return
            self._join(entry.turn_id)
            self._open[entry.turn_id] = event, StringIO()
            self._open[entry.turn_id][1].write(event.data["text"])
        elif last is not None:
            self._join(entry.turn_id)
        self._entries.append(entry)

    def events(self) -> list[SessionEvent]:
        """Return the events so far."""
        for turn_id in list(self._open):
            self._join(turn_id)
        return list(self._entries)

    def _join(self, turn_id: str | None) -> None:
        if (last := self._open.pop(turn_id, None)) is not None:
            first, text = last
            first.data["text"] = text.getvalue()


def _is_same_message(first: TokenEvent, event: TokenEvent) -> bool:
    return first.agent_id == event.agent_id and first.data["message_id"] == event.data["message_id"]


def decode_line(line: bytes) -> SessionEvent:
    """Return the event in a line of an exported log, as `decode` does; raises `DamagedData`."""
    with map_decode_errors("an event of a log"):
        return _decode(line)


def _decode(frame: bytes) -> SessionEvent:
    return _session_event(_parse(frame))


def _session_event(envelope: dict[str, Any]) -> SessionEvent:
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


def asked_request(event: AskingEvent, session_id: str) -> UserRequest:
    """Return what an event asks the user."""
    return kind_of_event(event.type).read_request(event.data, session_id, event.agent_id)


def stored_request(stored: StoredEvent) -> UserRequest:
    """Return what a stored event asks the user; it is one of the `ASKING_EVENTS`. Raises `DamagedData`."""
    event = decode(stored).event
    assert isinstance(event, AskingEvent)
    with map_decode_errors(f"event {stored.seq} of session {stored.session_id!r}"):
        return asked_request(event, stored.session_id)


def given_answer(event: RuntimeEvent) -> UserAnswer:
    """Return the answer in one of the `ANSWERING_EVENTS`."""
    return kind_of_event(event.type).read_answer(event.data)
