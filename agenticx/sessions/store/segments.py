"""Segments: events of one session in the body of one row, a line each, usually compressed.

While turns run, each commit is stored as a row of its own, in the order of the log of all sessions, so that a
transaction with many sessions fills few pages. Later the rows of each session are merged into compressed segments, a
tenth of the rows and of the bytes: envelopes repeat their ids, and every token is an event. See `_newest_commits`.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Sequence
from typing import NamedTuple, cast

from agenticx.runtime.events import EventType
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import Position, StoredEvent

__all__ = [
    "MAX_POSITION_SPAN",
    "MAX_SEGMENT_BYTES",
    "PAGE_BYTES",
    "SEGMENT_EVENTS",
    "CommitRow",
    "Segment",
    "at_position",
    "decode_event",
    "decode_segment",
    "encode_body",
    "encode_segments",
    "full_pages",
    "line_position",
    "merge_commits",
    "segment_lines",
]

SEGMENT_EVENTS = 256
"""The most events of a segment."""
MAX_SEGMENT_BYTES = 256 * 1024
_COMPRESSION_LEVEL = 4
MAX_POSITION_SPAN = 16_384
"""The limit of positions that a segment spans, including those of other sessions; `_replay` reads back as far."""
PAGE_BYTES = 256 * 1024
"""The approximate size of one read in bytes, so that sending a long log page by page needs no more memory."""

_TYPES = {type_.value.encode(): type_ for type_ in EventType}


class CommitRow(NamedTuple):
    """A commit as it is stored at first: the last position of its events or its own, and the lines of its events."""

    position: int
    session: int
    rev: int
    commit_id: str
    last_seq: int
    body: bytes


class Segment(NamedTuple):
    """The content of one row: events of consecutive commits, from `first_rev` to `last_rev`.

    A large commit may be in several rows. A row has no events if none of its commits has.
    """

    last_seq: int
    first_rev: int
    last_rev: int
    commit_id: str
    first_position: int
    last_position: int
    body: bytes


def encode_body(events: Sequence[StoredEvent]) -> bytes:
    """Return the uncompressed body of these events."""
    if len(events) == 1:  # a token: the hot path
        return _encode_event(events[0])
    return b"\n".join(map(_encode_event, events))


def encode_segments(
    events: Sequence[StoredEvent], session: int, *, rev: int, commit_id: str, position: int
) -> Iterator[Segment]:
    """Yield the segments of a commit; `position` is its last event's, or its own if it has no events."""
    last_seq = events[-1].seq if events else 0
    return merge_commits([CommitRow(position, session, rev, commit_id, last_seq, encode_body(events))])


def merge_commits(commits: Sequence[CommitRow], *, max_span: int = MAX_POSITION_SPAN) -> Iterator[Segment]:
    """Yield segments of limited size with the events of these consecutive commits.

    `max_span` is the limit of positions from the first to the last. Raises `DamagedData`.
    """
    first, last = commits[0], commits[-1]
    with map_decode_errors(f"the log up to event {last.last_seq}"):
        lines, owners = list[bytes](), list[CommitRow]()
        for commit in commits:
            some = segment_lines(commit.body, compressed=False)
            lines += some
            owners += [commit] * len(some)
        if not lines:
            body = _compress(b"")
            yield Segment(last.last_seq, first.rev, last.rev, last.commit_id, first.position, last.position, body)
            return
        owners[-1] = last  # with those behind it that have no events
        first_seq = first.last_seq - len(segment_lines(first.body, compressed=False)) + 1
        positions = [line_position(line) for line in lines]
        start = size = 0
        first_rev = first.rev
        for place, line in enumerate(lines, 1):
            size += len(line)
            full = place - start == SEGMENT_EVENTS or size >= MAX_SEGMENT_BYTES
            if full or place == len(lines) or positions[place] - positions[start] >= max_span:
                body, commit = _compress(b"\n".join(lines[start:place])), owners[place - 1]
                last_seq = first_seq + place - 1
                span = positions[start], positions[place - 1]
                yield Segment(last_seq, first_rev, commit.rev, commit.commit_id, *span, body)
                start, size = place, 0
                if place < len(lines):  # the next row begins with the rest of this commit, or behind it
                    first_rev = commit.rev if owners[place] is commit else commit.rev + 1


def _compress(body: bytes) -> bytes:
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, memLevel=9, strategy=zlib.Z_FILTERED)  # few short matches
    return compressor.compress(body) + compressor.flush()


def decode_segment(
    session_id: str, last_seq: int, body: bytes, *, compressed: bool, after: int = 0, limit: int | None = None
) -> list[StoredEvent]:
    """Return the events with a higher number than `after`, at most `limit`, of a body that ends with event `last_seq`.

    Raises `DamagedData`.
    """
    with map_decode_errors(f"the log of session {session_id!r} up to event {last_seq}"):
        lines = segment_lines(body, compressed=compressed)
        first = last_seq - len(lines) + 1
        skipped = max(after + 1 - first, 0)
        wanted = lines[skipped : None if limit is None else skipped + limit]
        return [decode_event(session_id, seq, line) for seq, line in enumerate(wanted, first + skipped)]


def segment_lines(body: bytes, *, compressed: bool) -> list[bytes]:
    """Return the lines of a body, one per event."""
    text = zlib.decompress(body) if compressed else body
    return text.split(b"\n") if text else []


def _encode_event(event: StoredEvent) -> bytes:
    """Return the line of an event; a single line is also a valid, uncompressed body."""
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


def at_position(body: bytes, base: int) -> bytes:
    """Return an uncompressed body with `base` added to the positions of its events.

    Raises an error of `DECODE_ERRORS`.
    """
    lines = segment_lines(body, compressed=False)
    return b"\n".join(b"%d%b" % (base + line_position(line), line[line.index(b"\t") :]) for line in lines)


def decode_event(session_id: str, seq: int, line: bytes) -> StoredEvent:
    """Return the event of a line; raises an error of `DECODE_ERRORS`."""
    position, turn_id, type_, terminal, frame = line.split(b"\t", 4)
    return StoredEvent(
        session_id,
        turn_id.decode() or None,
        seq,
        _to_position(position),
        _TYPES[type_],
        terminal == b"T",
        frame,
    )


async def full_pages(pages: AsyncIterable[Sequence[StoredEvent]]) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the events of `pages` in pages of a segment at least, but for the last one."""
    events = list[StoredEvent]()
    async for page in pages:
        events += page
        if len(events) >= SEGMENT_EVENTS:
            yield events
            events = []
    if events:
        yield events
