"""Where each session's log stands: asked of the database once, and then known to its one writer."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from agenticx.errors import SessionNotFound

__all__ = ["SessionCursor", "SessionCursors", "last_seq", "session_number"]

_MAX_CURSORS = 4096


@dataclass(slots=True)
class SessionCursor:
    """A session's key in all other tables, the number of its last event, and the places of its rows in `fresh`."""

    number: int
    last_seq: int
    fresh_positions: list[int]


class SessionCursors:
    """The heads of the sessions that were written to of late; belongs to the thread that writes."""

    def __init__(self) -> None:
        self._cursors: dict[str, SessionCursor] = {}
        self._connection: sqlite3.Connection | None = None
        self._data_version = 0

    def drop_if_stale(self, connection: sqlite3.Connection) -> None:
        """A transaction has begun: nothing is known any more if the one before failed or another program wrote.

        A connection whose transaction fails is dropped. Its version changes with what others write:
        https://sqlite.org/pragma.html#pragma_data_version
        """
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if connection is not self._connection or version != self._data_version:
            self._connection, self._data_version = connection, version
            self._cursors.clear()

    def get(self, connection: sqlite3.Connection, session_id: str) -> SessionCursor:
        """The head, to be moved along with what is written; raises `SessionNotFound`."""
        cursor = self._cursors.get(session_id)
        if cursor is None:
            if len(self._cursors) == _MAX_CURSORS:
                self._cursors.clear()
            cursor = self._cursors[session_id] = _read_cursor(connection, session_id)
        return cursor

    def remove(self, session_id: str) -> None:
        """The session is deleted."""
        self._cursors.pop(session_id, None)


def session_number(connection: sqlite3.Connection, session_id: str) -> int:
    """The session's key in all other tables; raises `SessionNotFound`."""
    row = connection.execute("SELECT number FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(f"no session has the id {session_id!r}")
    return row[0]


def last_seq(connection: sqlite3.Connection, number: int) -> int:
    """The number of the session's last event, 0 if it has none."""
    return connection.execute(
        """SELECT max(coalesce((SELECT max(last_seq) FROM events WHERE session = ?1), 0),
                      coalesce((SELECT max(last_seq) FROM fresh WHERE session = ?1), 0))""",
        (number,),
    ).fetchone()[0]


def _read_cursor(connection: sqlite3.Connection, session_id: str) -> SessionCursor:
    number = session_number(connection, session_id)
    positions = connection.execute("SELECT position FROM fresh WHERE session = ? ORDER BY position", (number,))
    return SessionCursor(number, last_seq(connection, number), [position for (position,) in positions])
