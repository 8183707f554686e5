"""The log of all sessions as it is read from the disk: rows of many sessions, merged into one order, page by page.

A row reaches over positions of other sessions' rows, though not far (`_packs.REACH`): a page looks at the rows that
begin a little before its place, at none of the log's beginning. The next page needs most of them again, so what was
unpacked is kept for it.
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
from agenticx.sessions.base import StoredEvent
from agenticx.sessions.damage import Damaged, readable
from agenticx.sessions.sqlite._packs import REACH, READ_BYTES, event_of, lines_of, position_of

__all__ = ["Replay"]

_KEPT_BYTES = 16 * 1024 * 1024

_log = get_logger(__name__)

_Places = tuple[int, StoredEvent, Iterator[StoredEvent]]


class Replay:
    """Pages of the log of all sessions; belongs to one thread. `reach` is the furthest that a stored row reaches."""

    def __init__(self, reach: int) -> None:
        self._reach = max(reach, REACH)
        self._unpacked: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()  # what was used last stands last
        self._bytes = 0

    def page(self, connection: sqlite3.Connection, after: int, limit: int) -> Sequence[StoredEvent]:
        """Up to `limit` events with a higher position than `after`; fewer where they are large, never none."""
        events: list[StoredEvent] = []
        size = 0
        with closing(_merged(self._rows(connection, after))) as merged:
            for event in merged:
                events.append(event)
                size += len(event.frame_json)
                if len(events) == limit or size >= READ_BYTES:
                    break
        return events

    def forget(self) -> None:
        """Drop what is kept: some of it was deleted."""
        self._unpacked.clear()
        self._bytes = 0

    def _rows(self, connection: sqlite3.Connection, after: int) -> Generator[tuple[int, Generator[StoredEvent]]]:
        """Where each row that has events behind `after` begins, and those events, which are unpacked when asked for."""
        with closing(
            connection.execute(
                """SELECT id, session, last_seq, first_position, 0
                   FROM events JOIN sessions ON sessions.number = events.session
                   WHERE first_position > ?1 AND last_position > ?2
                   UNION ALL SELECT id, session, last_seq, position, position
                   FROM fresh JOIN sessions ON sessions.number = fresh.session WHERE position > ?2 ORDER BY 4""",
                (after - self._reach, after),
            )
        ) as rows:
            for session_id, number, last_seq, first_position, fresh in rows:  # no other row reaches into a fresh one
                yield first_position, self._events(connection, session_id, (number, last_seq), fresh, after)

    def _events(
        self, connection: sqlite3.Connection, session_id: str, key: tuple[int, int], fresh: int, after: int
    ) -> Generator[StoredEvent]:
        """Those of one row; a damaged one is passed over: the other sessions' log goes on without it."""
        try:
            with readable(f"the log of session {session_id!r} up to event {key[1]}"):
                lines = _fresh_lines(connection, fresh) if fresh else self._lines(connection, key)
                first_seq = key[1] - len(lines) + 1
                for place in range(bisect_right(lines, after, key=position_of), len(lines)):
                    yield event_of(session_id, first_seq + place, lines[place])
        except Damaged as exc:
            _log.error("a row of the database was passed over", error=str(exc))
            if not fresh:
                self._keep(key, [])

    def _lines(self, connection: sqlite3.Connection, key: tuple[int, int]) -> list[bytes]:
        if (known := self._unpacked.get(key)) is not None:
            self._unpacked.move_to_end(key)
            return known
        (body,) = connection.execute("SELECT body FROM events WHERE session = ? AND last_seq = ?", key).fetchone()
        lines = lines_of(body, compressed=True)
        self._keep(key, lines)
        return lines

    def _keep(self, key: tuple[int, int], lines: list[bytes]) -> None:
        self._bytes += _size(lines) - _size(self._unpacked.get(key, ()))
        self._unpacked[key] = lines
        while self._bytes > _KEPT_BYTES:
            _, gone = self._unpacked.popitem(last=False)
            self._bytes -= _size(gone)


def _fresh_lines(connection: sqlite3.Connection, position: int) -> list[bytes]:
    (body,) = connection.execute("SELECT body FROM fresh WHERE position = ?", (position,)).fetchone()
    return lines_of(body, compressed=False)


def _merged(rows: Iterable[tuple[int, Iterator[StoredEvent]]]) -> Generator[StoredEvent]:
    """Events in the order of the log: each once no row that has not been looked at can hold an earlier one."""
    waiting: list[_Places] = []
    for first_position, events in rows:
        yield from _before(first_position, waiting)
        _add(waiting, events)
    yield from _before(sys.maxsize, waiting)


def _before(position: int, waiting: list[_Places]) -> Generator[StoredEvent]:
    while waiting and waiting[0][0] < position:
        _, event, following = heappop(waiting)
        yield event
        _add(waiting, following)


def _add(waiting: list[_Places], events: Iterator[StoredEvent]) -> None:
    if (event := next(events, None)) is not None:
        heappush(waiting, (event.position, event, events))


def _size(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines))
