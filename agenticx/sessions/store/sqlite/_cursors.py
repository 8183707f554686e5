"""Cursors at the end of each session's log, cached by the one writer of the database."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from agenticx.errors import SessionNotFound
from agenticx.sessions.log.commits import LogEnd
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.store.sqlite._newest_commits import NewestCommits

__all__ = ["SessionCursor", "SessionCursors", "check_log_end", "log_end", "session_number"]

_MAX_CURSORS = 4096


@dataclass(slots=True)
class SessionCursor:
    """A session's key in all other tables, the end of its log, and the ids of its turns that have not ended."""

    number: int
    rev: int
    last_seq: int
    commit_id: str
    open_turns: set[str]


class SessionCursors:
    """A cache of the cursors of recently written sessions; only the writer's thread uses it.

    `newest` has commits that may not be written yet.
    """

    def __init__(self, newest: NewestCommits) -> None:
        self._newest = newest
        self._cursors: dict[str, SessionCursor] = {}
        self._connection: sqlite3.Connection | None = None
        self._data_version = 0

    def drop_if_stale(self, connection: sqlite3.Connection) -> None:
        """Drop what was read if the last transaction failed or another program wrote; call it as a transaction begins.

        A connection whose transaction fails is dropped. Its version changes with the writes of others:
        https://sqlite.org/pragma.html#pragma_data_version
        """
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if connection is not self._connection or version != self._data_version:
            self._connection, self._data_version = connection, version
            self._cursors.clear()
            self._newest.reset()

    def get(self, connection: sqlite3.Connection, session_id: str) -> SessionCursor:
        """Return the cursor; the caller updates it with its writes. Raises `SessionNotFound`."""
        cursor = self._cursors.get(session_id)
        if cursor is None:
            if len(self._cursors) == _MAX_CURSORS:
                self._cursors.clear()
            self._newest.write(connection)
            cursor = self._cursors[session_id] = _read_cursor(connection, session_id)
        return cursor

    def remove(self, session_id: str) -> None:
        """Remove the cursor of a deleted session."""
        self._cursors.pop(session_id, None)


def session_number(connection: sqlite3.Connection, session_id: str) -> int:
    """Return the session's key in all other tables; raise `SessionNotFound`."""
    row = connection.execute("SELECT number FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(f"no session has the id {session_id!r}")
    return row[0]


def log_end(connection: sqlite3.Connection, number: int) -> LogEnd:
    """Return the end of the session's log; raise `DamagedData`."""
    found = connection.execute(
        """SELECT * FROM (SELECT rev, last_seq, commit_id FROM commits WHERE session = ?1
                          ORDER BY position DESC LIMIT 1)
           UNION ALL
           SELECT * FROM (SELECT last_rev, last_seq, commit_id FROM segments WHERE session = ?1
                          ORDER BY last_seq DESC, last_rev DESC LIMIT 1)
           ORDER BY 1 DESC LIMIT 1""",
        (number,),
    ).fetchone()
    if found is None:
        return LogEnd(0, 0, "")
    if not all(isinstance(value, int) for value in found[:2]):
        raise DamagedData("the log of a session is damaged in the storage: its last commit has no number")
    return LogEnd(*found)


def check_log_end(connection: sqlite3.Connection, number: int, end: LogEnd) -> None:
    """Raise `DamagedData` if the session has records of a later commit than the last one of its log."""
    (last,) = connection.execute("SELECT max(rev) FROM records WHERE session = ?", (number,)).fetchone()
    if last is not None and (not isinstance(last, int) or last > end.rev):
        raise DamagedData(f"the log of a session is damaged in the storage: commits after number {end.rev} are missing")


def _read_cursor(connection: sqlite3.Connection, session_id: str) -> SessionCursor:
    number = session_number(connection, session_id)
    end = log_end(connection, number)
    check_log_end(connection, number, end)
    open_turns = connection.execute(
        """SELECT running FROM sessions WHERE number = ?1 AND running IS NOT NULL
           UNION ALL SELECT id FROM turns WHERE session = ?1 AND is_open_child""",
        (number,),
    )
    return SessionCursor(
        number=number,
        **end._asdict(),
        open_turns={turn_id for (turn_id,) in open_turns},
    )
