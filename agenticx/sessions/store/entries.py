"""The entries of a session's log, and the only place that encodes and decodes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, NewType, NotRequired, cast, get_origin, get_type_hints

from pydantic_core import from_json

from agenticx.runtime.events import (
    EVENT_CLASSES,
    ConfirmRequiredEvent,
    ConfirmResponseEvent,
    Event,
    EventType,
    QuestionAnsweredEvent,
    QuestionAskedEvent,
    RuntimeEvent,
    TurnStartedEvent,
    encode_envelope,
)
from agenticx.runtime.events.types import PAYLOADS
from agenticx.sessions.store.damage import DECODE_ERRORS, damaged_data

__all__ = [
    "Position",
    "SessionEvent",
    "StoredEvent",
    "decode",
    "encode",
    "encode_events",
    "parent_turn_id",
    "question_id",
]

Position = NewType("Position", int)
"""A position in the log of all sessions, rising with gaps. Only the store compares positions; others keep them."""


class StoredEvent(NamedTuple):
    """An event as it is stored in the log.

    `seq` counts within the session from 1 without gaps, `position` is its position in the log of all sessions.
    `frame_json` is the encoded envelope: encoded once, the same bytes for every reader and every replay. `type` is a
    plain string for an event that a newer release stored.
    """

    session_id: str
    turn_id: str | None
    seq: int
    position: Position
    type: EventType | str
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


def decode(stored: StoredEvent) -> SessionEvent:
    """Return a stored event as it was emitted, with all keys that its payload needs; raises `DamagedData`.

    One of a type that only a newer release has is a plain `RuntimeEvent`, whose `type` is a string.
    """
    turn_id, type_ = stored.turn_id, stored.type
    try:
        envelope = _parse(stored.frame_json)
        make: Any = EVENT_CLASSES.get(cast("EventType", type_), RuntimeEvent)
        data = envelope["data"]
        if not _required_keys(type_) <= data.keys():
            raise KeyError("a key of the payload is missing")
        event = make(type_, data, envelope["agent_id"], turn_id)
        return SessionEvent(event, turn_id, stored.seq, envelope["ts"])
    except DECODE_ERRORS as exc:
        raise damaged_data(f"event {stored.seq} of session {stored.session_id!r}", exc) from exc


def parent_turn_id(stored: StoredEvent) -> str | None:
    """Return the id of the turn above the one that this event begins, None if there is none; raises `DamagedData`."""
    if stored.type != "turn_started" or not isinstance(started := decode(stored).event, TurnStartedEvent):
        return None
    return started.data.get("parent_turn_id")


def question_id(stored: StoredEvent) -> str:
    """Return the id of the question that an event asks or answers, one of `QUESTION_EVENTS`; raises `DamagedData`."""
    event = decode(stored).event
    assert isinstance(event, ConfirmRequiredEvent | ConfirmResponseEvent | QuestionAskedEvent | QuestionAnsweredEvent)
    return event.data["id"]


@cache
def _required_keys(type_: str) -> frozenset[str]:
    payload = PAYLOADS.get(cast("EventType", type_))
    if payload is None or not payload.__total__:
        return frozenset()
    hints = get_type_hints(payload, include_extras=True)
    return frozenset(key for key, hint in hints.items() if get_origin(hint) is not NotRequired)


def _parse(frame: bytes) -> dict[str, Any]:
    try:
        return from_json(frame)
    except ValueError:  # a lone surrogate or a deep value, which only the slower parser reads
        return json.loads(frame)
