"""Cursors at the end of each session's log, cached by the one writer of the database."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

from agenticx.errors import SessionNotFound

__all__ = ["LogEnd", "SessionCursor", "SessionCursors", "log_end", "session_number"]

_MAX_CURSORS = 4096


class LogEnd(NamedTuple):
    """The last commit of a session's log, `rev` with its id, and the number of the last event up to it."""

    rev: int
    last_seq: int
    commit_id: str


@dataclass(slots=True)
class SessionCursor:
    """A session's key in all other tables, the end of its log, and the positions and size of its rows in `commits`.

    `open_turns` are the ids of its turns that have not ended.
    """

    number: int
    rev: int
    last_seq: int
    commit_id: str
    commit_positions: list[int]
    commit_bytes: int
    open_turns: set[str]


class SessionCursors:
    """A cache of the cursors of recently written sessions; only the writer's thread uses it."""

    def __init__(self) -> None:
        self._cursors: dict[str, SessionCursor] = {}
        self._connection: sqlite3.Connection | None = None
        self._data_version = 0

    def drop_if_stale(self, connection: sqlite3.Connection) -> None:
        """Drop all cursors if the last transaction failed or another program wrote; call it as a transaction begins.

        A connection whose transaction fails is dropped. Its version changes with the writes of others:
        https://sqlite.org/pragma.html#pragma_data_version
        """
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if connection is not self._connection or version != self._data_version:
            self._connection, self._data_version = connection, version
            self._cursors.clear()

    def get(self, connection: sqlite3.Connection, session_id: str) -> SessionCursor:
        """Return the cursor, which the caller updates with what it writes; raise `SessionNotFound`."""
        cursor = self._cursors.get(session_id)
        if cursor is None:
            if len(self._cursors) == _MAX_CURSORS:
                self._cursors.clear()
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
    """Return the end of the session's log."""
    found = connection.execute(
        """SELECT * FROM (SELECT rev, last_seq, commit_id FROM commits WHERE session = ?1
                          ORDER BY position DESC LIMIT 1)
           UNION ALL
           SELECT * FROM (SELECT last_rev, last_seq, commit_id FROM segments WHERE session = ?1
                          ORDER BY last_seq DESC, last_rev DESC LIMIT 1)
           ORDER BY 1 DESC LIMIT 1""",
        (number,),
    ).fetchone()
    return LogEnd(0, 0, "") if found is None else LogEnd(*found)


def _read_cursor(connection: sqlite3.Connection, session_id: str) -> SessionCursor:
    number = session_number(connection, session_id)
    rows = connection.execute(
        "SELECT position, length(body) FROM commits WHERE session = ? ORDER BY position", (number,)
    ).fetchall()
    open_turns = connection.execute(
        """SELECT running FROM sessions WHERE number = ?1 AND running IS NOT NULL
           UNION ALL SELECT id FROM turns WHERE session = ?1 AND is_open_child""",
        (number,),
    )
    return SessionCursor(
        number=number,
        **log_end(connection, number)._asdict(),
        commit_positions=[position for position, _ in rows],
        commit_bytes=sum(size for _, size in rows),
        open_turns={turn_id for (turn_id,) in open_turns},
    )
