"""Segments: events of one session in the body of one row, a line each, usually compressed.

While a turn runs each append is stored as a row of its own, in the order of the log of all sessions, so that
a commit of many sessions fills few pages. When the turn is over its rows are merged into compressed segments, which
takes a tenth of both rows and bytes: envelopes repeat their ids, and every token is an event.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from agenticx.runtime.events import EventType
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.entries import Position, StoredEvent

__all__ = [
    "MAX_POSITION_SPAN",
    "PAGE_BYTES",
    "Segment",
    "decode_event",
    "decode_segment",
    "encode_event",
    "encode_segments",
    "envelope_bytes",
    "line_position",
    "merge_bodies",
    "segment_lines",
]

_MAX_SEGMENT_EVENTS = 256
_MAX_SEGMENT_BYTES = 256 * 1024
_COMPRESSION_LEVEL = 1
MAX_POSITION_SPAN = 16_384
"""The limit of positions that a segment spans, including those of other sessions; `_replay` reads back as far."""
PAGE_BYTES = 256 * 1024
"""The approximate size of one read in bytes, so that sending a long log page by page needs no more memory."""

_TYPES: dict[str, EventType | str] = {type_.value: type_ for type_ in EventType}


class Segment(NamedTuple):
    """The content of one row: events that follow each other without a gap."""

    last_seq: int
    first_position: int
    last_position: int
    body: bytes


def encode_segments(events: Sequence[StoredEvent], *, compressed: bool) -> Iterable[Segment]:
    """Return `events` as segments of limited size."""
    lines = [encode_event(event) for event in events]
    return _split(lines, [event.position for event in events], events[0].seq, compressed=compressed)


def merge_bodies(bodies: Iterable[bytes], first_seq: int) -> Iterator[Segment]:
    """Yield compressed segments of uncompressed bodies, the first of which begins with the event number `first_seq`.

    Raises `DamagedData`.
    """
    with map_decode_errors(f"the log from event {first_seq} on"):
        lines = [line for body in bodies for line in body.split(b"\n")]
        yield from _split(lines, [line_position(line) for line in lines], first_seq, compressed=True)


def decode_segment(session_id: str, last_seq: int, body: bytes, *, compressed: bool) -> list[StoredEvent]:
    """Return the events of a body whose last one has the number `last_seq`; raise `DamagedData`."""
    with map_decode_errors(f"the log of session {session_id!r} up to event {last_seq}"):
        lines = segment_lines(body, compressed=compressed)
        first = last_seq - len(lines) + 1
        return [decode_event(session_id, seq, line) for seq, line in enumerate(lines, first)]


def segment_lines(body: bytes, *, compressed: bool) -> list[bytes]:
    """Return the lines of a body, one per event."""
    return (zlib.decompress(body) if compressed else body).split(b"\n")


def envelope_bytes(events: Sequence[StoredEvent]) -> int:
    """Return the size of the events' envelopes in bytes."""
    return sum(len(event.frame_json) for event in events)


def _split(lines: Sequence[bytes], positions: Sequence[int], first_seq: int, *, compressed: bool) -> Iterator[Segment]:
    start = size = 0
    for place, line in enumerate(lines, 1):
        size += len(line)
        full = place - start == _MAX_SEGMENT_EVENTS or size >= _MAX_SEGMENT_BYTES
        if full or place == len(lines) or positions[place] - positions[start] >= MAX_POSITION_SPAN:
            body = b"\n".join(lines[start:place])
            yield Segment(
                first_seq + place - 1,
                positions[start],
                positions[place - 1],
                zlib.compress(body, _COMPRESSION_LEVEL) if compressed else body,
            )
            start, size = place, 0


def encode_event(event: StoredEvent) -> bytes:
    """Return the line of an event, which alone is an uncompressed body too."""
    terminal = b"T" if event.terminal else b""
    return b"%d\t%b\t%b\t%b\t%b" % (
        event.position,
        (event.turn_id or "").encode(),
        event.type.encode(),
        terminal,
        event.frame_json,
    )


def line_position(line: bytes) -> int:
    """Return the log position of a line's event."""
    return int(line[: line.index(b"\t")])


_to_position = cast("Callable[[bytes], Position]", int)  # without the call of a `NewType`, once per event of a replay


def decode_event(session_id: str, seq: int, line: bytes) -> StoredEvent:
    """Return the event of a line."""
    position, turn_id, type_, terminal, frame = line.split(b"\t", 4)
    name = type_.decode()
    return StoredEvent(
        session_id,
        turn_id.decode() or None,
        seq,
        _to_position(position),
        _TYPES.get(name, name),
        terminal == b"T",
        frame,
    )
