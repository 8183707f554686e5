"""Paged reading of the log of all sessions from the database: segments merged in order of position.

A segment's positions span those of other sessions' rows, by at most `segments.MAX_POSITION_SPAN`: so a page reads
rows from that far before its position, not from the beginning of the log. The next page needs most of them again, so
decompressed segments are cached for it.
"""

from __future__ import annotations

import sqlite3
import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import heappop, heappush

from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.store.segments import (
    MAX_POSITION_SPAN,
    PAGE_BYTES,
    decode_event,
    line_position,
    segment_lines,
)

__all__ = ["LogReader"]

_MAX_CACHED_BYTES = 16 * 1024 * 1024

_log = get_logger(__name__)

_HeapItem = tuple[int, StoredEvent, Iterator[StoredEvent]]
_SegmentKey = tuple[int, int, int]  # session, last event and last commit


class LogReader:
    """A reader of the log of all sessions in pages, for one thread; `span` is the largest span of a stored segment."""

    def __init__(self, span: int) -> None:
        self._span = max(span, MAX_POSITION_SPAN)
        self._cache: OrderedDict[_SegmentKey, list[bytes]] = OrderedDict()  # most recently used last
        self._cached_bytes = 0

    def read_page(self, connection: sqlite3.Connection, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events with a higher position than `after`.

        Fewer if they are large, but at least one if there is any.
        """
        events: list[StoredEvent] = []
        size = 0
        with closing(_merge(self._rows(connection, after))) as merged:
            for event in merged:
                events.append(event)
                size += len(event.frame_json)
                if len(events) == limit or size >= PAGE_BYTES:
                    break
        return events

    def clear_cache(self) -> None:
        """Drop the cached segments, after some of them were deleted."""
        self._cache.clear()
        self._cached_bytes = 0

    def _rows(self, connection: sqlite3.Connection, after: int) -> Generator[tuple[int, Generator[StoredEvent]]]:
        """Yield the first position of each row with events after `after`, and those events, decoded on demand."""
        with closing(
            connection.execute(
                """SELECT id, session, last_seq, last_rev, first_position, last_position, 0
                   FROM segments JOIN sessions ON sessions.number = segments.session
                   WHERE id IS NOT NULL AND first_position > ?1 AND last_position > ?2
                   UNION ALL SELECT id, session, last_seq, rev, position, position, position
                   FROM commits JOIN sessions ON sessions.number = commits.session
                   WHERE id IS NOT NULL AND position > ?2 ORDER BY 5""",
                (after - self._span, after),
            )
        ) as rows:
            # A commit is sorted by its last position: no other row has events in between.
            for session_id, number, last_seq, last_rev, *span, commit in rows:
                key = number, last_seq, last_rev
                yield span[0], self._events(connection, session_id, key, span, commit, after)

    def _events(
        self,
        connection: sqlite3.Connection,
        session_id: str,
        key: _SegmentKey,
        span: Sequence[int],
        commit: int,
        after: int,
    ) -> Generator[StoredEvent]:
        """Yield the events of one row; a damaged row is logged and skipped, so that other sessions' can be read."""
        try:
            with map_decode_errors(f"the log of session {session_id!r} up to event {key[1]}"):
                lines = _commit_lines(connection, commit) if commit else self._lines(connection, key, span)
                first_seq = key[1] - len(lines) + 1
                for place in range(bisect_right(lines, after, key=line_position), len(lines)):
                    yield decode_event(session_id, first_seq + place, lines[place])
        except DamagedData as exc:
            _log.error("corrupt row skipped", error=str(exc))
            if not commit:
                self._cache_lines(key, [])

    def _lines(self, connection: sqlite3.Connection, key: _SegmentKey, span: Sequence[int]) -> list[bytes]:
        if (known := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return known
        (body,) = connection.execute(f"SELECT body FROM segments WHERE {_IS_SEGMENT}", key).fetchone()
        lines = segment_lines(body, compressed=True)
        if lines and [line_position(lines[0]), line_position(lines[-1])] != span:
            raise DamagedData(f"the positions of a segment are not those of its events, up to event {key[1]}")
        self._cache_lines(key, lines)
        return lines

    def _cache_lines(self, key: _SegmentKey, lines: list[bytes]) -> None:
        self._cached_bytes += _size(lines) - _size(self._cache.get(key, ()))
        self._cache[key] = lines
        while self._cached_bytes > _MAX_CACHED_BYTES:
            _, evicted = self._cache.popitem(last=False)
            self._cached_bytes -= _size(evicted)


_IS_SEGMENT = "session = ? AND last_seq = ? AND last_rev = ?"


def _commit_lines(connection: sqlite3.Connection, position: int) -> list[bytes]:
    (body,) = connection.execute("SELECT body FROM commits WHERE position = ?", (position,)).fetchone()
    lines = segment_lines(body, compressed=False)
    if lines and line_position(lines[-1]) != position:
        raise DamagedData("the position of a commit is not that of its last event")
    return lines


def _merge(rows: Iterable[tuple[int, Iterator[StoredEvent]]]) -> Generator[StoredEvent]:
    """Yield events in the order of the log: each as soon as no row still to be read can hold an earlier one."""
    heap: list[_HeapItem] = []
    for first_position, events in rows:
        yield from _pop_before(first_position, heap)
        _push_next(heap, events)
    yield from _pop_before(sys.maxsize, heap)


def _pop_before(position: int, heap: list[_HeapItem]) -> Generator[StoredEvent]:
    while heap and heap[0][0] < position:
        _, event, following = heappop(heap)
        yield event
        _push_next(heap, following)


def _push_next(heap: list[_HeapItem], events: Iterator[StoredEvent]) -> None:
    if (event := next(events, None)) is not None:
        heappush(heap, (event.position, event, events))


def _size(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines))
