"""Events of one session as the body of one row: a line each, and many of them compressed together.

A turn is stored as it happens, a row per append: behind each other whatever session they are of, so that a commit of
many sessions fills few pages. Once it is over its rows are packed, which makes a tenth of both rows and bytes:
envelopes repeat their ids, and every token comes in one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agenticx.runtime.events import EventType
from agenticx.sessions.base import StoredEvent
from agenticx.sessions.damage import readable

__all__ = [
    "REACH",
    "READ_BYTES",
    "Pack",
    "event_of",
    "lines_of",
    "packs_of",
    "position_of",
    "repacked",
    "size_of",
    "unpack",
]

_PACK_EVENTS = 256
_PACK_BYTES = 256 * 1024
_LEVEL = 1
REACH = 16_384
"""A pack begins anew after so many positions of the log, few of which may be its own: `_replay` looks back as far."""
READ_BYTES = 256 * 1024
"""What one read gives at a time, give or take a row: whoever writes events out piece by piece holds no more of them."""

_TYPES: dict[str, EventType | str] = {type_.value: type_ for type_ in EventType}


class Pack(NamedTuple):
    """One row: events that follow each other without a gap."""

    last_seq: int
    first_position: int
    last_position: int
    body: bytes


def packs_of(events: Sequence[StoredEvent], *, compressed: bool) -> Iterable[Pack]:
    """`events` in as many rows as they are worth."""
    if len(events) == 1 and not compressed:  # a token: the hot path
        (event,) = events
        return (Pack(event.seq, event.position, event.position, _line(event)),)
    lines = [_line(event) for event in events]
    return _packs(lines, [event.position for event in events], events[0].seq, compressed=compressed)


def repacked(bodies: Iterable[bytes], first_seq: int) -> Iterator[Pack]:
    """Bodies that are not compressed, the first one beginning with the number `first_seq`, in fewer that are.

    Raises `Damaged`.
    """
    with readable(f"the log from event {first_seq} on"):
        lines = [line for body in bodies for line in body.split(b"\n")]
        yield from _packs(lines, [position_of(line) for line in lines], first_seq, compressed=True)


def unpack(session_id: str, last_seq: int, body: bytes, *, compressed: bool) -> list[StoredEvent]:
    """The events of a body whose last one has the number `last_seq`; raises `Damaged`."""
    with readable(f"the log of session {session_id!r} up to event {last_seq}"):
        lines = lines_of(body, compressed=compressed)
        first = last_seq - len(lines) + 1
        return [event_of(session_id, seq, line) for seq, line in enumerate(lines, first)]


def lines_of(body: bytes, *, compressed: bool) -> list[bytes]:
    """A line for each event of a body."""
    return (zlib.decompress(body) if compressed else body).split(b"\n")


def size_of(events: Sequence[StoredEvent]) -> int:
    """How many bytes their envelopes are."""
    return sum(len(event.frame_json) for event in events)


def _packs(lines: Sequence[bytes], positions: Sequence[int], first_seq: int, *, compressed: bool) -> Iterator[Pack]:
    start = size = 0
    for place, line in enumerate(lines, 1):
        size += len(line)
        full = place - start == _PACK_EVENTS or size >= _PACK_BYTES
        if full or place == len(lines) or positions[place] - positions[start] >= REACH:
            body = b"\n".join(lines[start:place])
            yield Pack(
                first_seq + place - 1,
                positions[start],
                positions[place - 1],
                zlib.compress(body, _LEVEL) if compressed else body,
            )
            start, size = place, 0


def _line(event: StoredEvent) -> bytes:
    terminal = b"T" if event.terminal else b""
    return b"%d\t%b\t%b\t%b\t%b" % (
        event.position,
        (event.turn_id or "").encode(),
        event.type.encode(),
        terminal,
        event.frame_json,
    )


def position_of(line: bytes) -> int:
    """The place of a line's event in the log."""
    return int(line[: line.index(b"\t")])


def event_of(session_id: str, seq: int, line: bytes) -> StoredEvent:
    """The event that a line tells."""
    position, turn_id, type_, terminal, frame = line.split(b"\t", 4)
    name = type_.decode()
    return StoredEvent(
        session_id,
        turn_id.decode() or None,
        seq,
        int(position),
        _TYPES.get(name, name),
        terminal == b"T",
        frame,
    )
