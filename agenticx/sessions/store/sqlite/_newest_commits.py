"""The rows of the newest commits of all sessions, and their packing into segments."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence

from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.store.segments import CommitRow, Segment, encode_segments, merge_commits

__all__ = ["NewestCommits", "add_first_commit", "insert_segments"]

_MAX_ROWS = 2048
_MAX_BYTES = 2 * 1024 * 1024

_log = get_logger(__name__)


class NewestCommits:
    """The rows of the table `commits`, kept in memory too so that they are packed without reading them.

    Only the writer's thread uses it. The commits of a transaction are written together at its end. All rows are packed
    at once when there are many, or when the last open turn ends: each session has rows on most pages of the table, so
    packing one session at a time would write every page many times. Commits of no turn are packed with those of the
    next ones. Readers search the rows of all sessions, so they are bounded.

    A session whose rows are damaged is not packed; its rows stay as they are.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all rows; the rows of the table are read again when they are needed."""
        self._stored: list[CommitRow] | None = None
        self._added: list[CommitRow] = []
        self._size = 0  # of the bodies of both, in bytes
        self._has_ended_turn = False  # in this transaction
        self._damaged = set[int]()  # sessions

    def add(self, commit: CommitRow, *, ends_turn: bool) -> None:
        """Have a commit stored at the end of the transaction; it fails if that cannot be done."""
        self._added.append(commit)
        self._size += len(commit.body)
        self._has_ended_turn |= ends_turn

    def remove_session(self, number: int) -> None:
        """Forget the rows of a session that is deleted."""
        for rows in (self._stored or [], self._added):
            self._size -= sum(len(row.body) for row in rows if row.session == number)
            rows[:] = [row for row in rows if row.session != number]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the rows that were added, so that the transaction can read them."""
        if self._added:
            stored = self._read(connection)
            _insert_rows(connection, self._added)
            stored += self._added
            self._added = []

    def end_transaction(self, connection: sqlite3.Connection) -> None:
        """Write the rows that were added, or pack all; call it before the transaction is committed."""
        if not self._added and not self._has_ended_turn:
            return
        count = len(self._read(connection)) + len(self._added)
        is_full = count >= _MAX_ROWS or self._size >= _MAX_BYTES
        if is_full or (self._has_ended_turn and not _has_open_turn(connection)):
            self._pack(connection)
        else:
            self.write(connection)
        self._has_ended_turn = False

    def _read(self, connection: sqlite3.Connection) -> list[CommitRow]:
        if self._stored is None:
            rows = connection.execute(  # of damaged rows a value can have any type
                """SELECT position, CAST(session AS INTEGER), rev, commit_id, last_seq, CAST(body AS BLOB)
                   FROM commits ORDER BY position"""
            )
            self._stored = [CommitRow(*row) for row in rows]
            self._size += sum(len(row.body) for row in self._stored)
        return self._stored

    def _pack(self, connection: sqlite3.Connection) -> None:
        """Replace all rows, including added rows that are not written yet, by compressed segments."""
        sessions = defaultdict[int, list[CommitRow]](list)
        for row in (*self._read(connection), *self._added):
            sessions[row.session].append(row)
        for number, commits in sessions.items():
            if number not in self._damaged and not _add_segments(connection, number, commits):
                self._damaged.add(number)
        if self._damaged:
            damaged = json.dumps(list(self._damaged))
            connection.execute(
                "DELETE FROM commits WHERE CAST(session AS INTEGER) NOT IN (SELECT value FROM json_each(?))", (damaged,)
            )
            _insert_rows(connection, [row for row in self._added if row.session in self._damaged])
        else:
            connection.execute("DELETE FROM commits")  # without a condition SQLite drops pages, not rows
        self._stored, self._added, self._size = [], [], 0


def _has_open_turn(connection: sqlite3.Connection) -> bool:
    """Return True if a turn of any session has not ended."""
    query = """SELECT EXISTS (SELECT 1 FROM sessions WHERE running IS NOT NULL)
                   OR EXISTS (SELECT 1 FROM turns WHERE is_open_child)"""
    return bool(connection.execute(query).fetchone()[0])


def _insert_rows(connection: sqlite3.Connection, commits: Iterable[CommitRow]) -> None:
    connection.executemany(
        "INSERT INTO commits (position, session, rev, commit_id, last_seq, body) VALUES (?, ?, ?, ?, ?, ?)", commits
    )


def _add_segments(connection: sqlite3.Connection, number: int, commits: Sequence[CommitRow]) -> bool:
    """Store the segments of a session's commits; return False, with nothing stored, if these are damaged."""
    connection.execute("SAVEPOINT packing")
    try:
        insert_segments(connection, number, merge_commits(commits))
    except (DamagedData, sqlite3.IntegrityError) as exc:  # the latter for rows of no session, or the same twice
        _log.error("rows of a session could not be packed", session=number, error=str(exc))
        connection.execute("ROLLBACK TO packing")
        return False
    finally:
        connection.execute("RELEASE packing")
    return True


def add_first_commit(
    connection: sqlite3.Connection, number: int, commit_id: str, events: Sequence[StoredEvent] = (), position: int = 0
) -> None:
    """Store the first commit of a new session, or some of its events; `position` is its own if it has none."""
    segments = encode_segments(events, number, rev=1, commit_id=commit_id, position=position)
    insert_segments(connection, number, segments)


def insert_segments(connection: sqlite3.Connection, number: int, segments: Iterable[Segment]) -> None:
    """Store segments of a session."""
    connection.executemany(
        """INSERT INTO segments
               (session, last_seq, first_rev, last_rev, commit_id, first_position, last_position, body)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        ((number, *segment) for segment in segments),
    )
