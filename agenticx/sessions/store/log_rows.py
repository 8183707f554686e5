"""Checks of the rows of a session's log: commits, positions, and the places of records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import MessageAdded, StoredRecord, TurnAccepted, message_key

__all__ = [
    "LogRow",
    "check_record",
    "entry_place",
    "misplaced_records",
    "missing_revs",
    "wrong_ids",
    "wrong_positions",
]


class LogRow(NamedTuple):
    """A row of `segments`, or one of `commits`; `seq` is the number of the last event before it.

    `may_continue`: it may have the rest of the commit that the row before ends with, as segments may.
    """

    seq: int
    last_seq: int
    first_rev: int
    last_rev: int
    commit_id: str
    first_position: int
    last_position: int
    is_segment: bool
    may_continue: bool


def check_record(stored: StoredRecord) -> StoredRecord:
    """Return the record; raise `DamagedData` for a message whose key is not its digest."""
    if isinstance(stored.record, MessageAdded) and message_key(stored.record.text) != stored.record.key:
        raise DamagedData(f"a message in commit {stored.rev} is not the one that was stored")
    return stored


def entry_place(entry: StoredEvent | StoredRecord) -> tuple[int, int, int]:
    """Return the place of an entry in the log; a record comes after the event that it follows."""
    return (entry.seq, 0, 0) if isinstance(entry, StoredEvent) else (entry.seq, entry.rev, entry.record_index)


def missing_revs(log: Sequence[LogRow]) -> Iterator[int]:
    """Yield the first commit that is missing before each segment, and before each of the newest commits."""
    rev = 0
    for row in log:
        if row.first_rev != rev + 1 and not (row.may_continue and row.first_rev == rev):
            yield rev + 1
        rev = row.last_rev


def wrong_ids(log: Sequence[LogRow]) -> Iterator[int]:
    """Yield the commits without an id, and the commits whose two rows have different ids."""
    for row in log:
        if not isinstance(row.commit_id, str) or not row.commit_id:  # pyright: ignore[reportUnnecessaryIsInstance]
            yield row.last_rev
    for before, row in pairwise(log):
        if before.last_rev == row.last_rev and before.commit_id != row.commit_id:
            yield row.last_rev


def wrong_positions(log: Sequence[LogRow], positions_of: Callable[[LogRow], Sequence[int]]) -> Iterator[int]:
    """Yield the commits whose positions differ from their events' positions, or do not rise from commit to commit.

    Copied events have the position 0. `positions_of` returns the positions of a row's events.
    """
    last = 0
    for row in log:
        found, first_of_row = (row.first_position, row.last_position), 0 if row.is_segment else -1
        positions = positions_of(row)
        expected = (positions[first_of_row], positions[-1]) if positions else found
        order = (last, *(positions or dict.fromkeys(found)))
        is_copy = not any(order)
        if found != expected or not (is_copy or all(one < other for one, other in pairwise(order))):
            yield row.last_rev
        last = order[-1]


def misplaced_records(records: Iterable[Sequence[Any]], log: Sequence[LogRow]) -> Iterator[int]:
    """Yield the commits with a record that follows neither an event of the commit nor the last event before it.

    `records` has the commit, the event and the kind of each record, in the order of the log. For a segment of several
    commits it is not stored which event belongs to which commit.
    """
    last = 0
    for rev, some in groupby(records, key=itemgetter(0)):
        start = bisect_left(log, rev, key=attrgetter("last_rev"))
        end = bisect_right(log, rev, lo=start, key=attrgetter("first_rev"))
        if start == end:  # the commit is missing
            continue
        before, after = log[start].seq, log[end - 1].last_seq
        is_whole = rev > 1 and log[start].first_rev == log[end - 1].last_rev
        for _, seq, kind in some:
            expected = before if kind == TurnAccepted.kind else after
            if not max(last, before) <= seq <= after or (is_whole and seq != expected):
                yield rev
            last = seq
