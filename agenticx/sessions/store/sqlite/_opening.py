"""Opening of the database file: its creation, checks, recovery of a leftover log, and connections."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.store.segments import line_position, segment_lines
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite._file import check_integrity, map_file_errors
from agenticx.sessions.store.sqlite._records import delete_session
from agenticx.sessions.store.sqlite._wal import keep_damaged_log
from agenticx.sessions.store.sqlite.schema import create_schema

__all__ = ["connect", "prepare_file", "read_log_position"]

_BUSY_SECONDS = 5.0
_CHECKPOINT_PAGES = 4000
"""The size of the write-ahead log at a checkpoint, about 16 MB: a checkpoint syncs twice, so it must be rare."""

_MAX_POSITION = 2**62
"""No log gets as far: a larger position is damage."""

_log = get_logger(__name__)


def prepare_file(path: Path, now: datetime) -> tuple[str, int, int]:
    """Create or check the file; return the result of `read_log_position`. Raises `StoreError`."""
    with map_file_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        damaged_log = keep_damaged_log(path, now)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(_open(path)) as connection:
            if connection.execute("PRAGMA schema_version").fetchone() == (0,):
                create_schema(connection)
            _configure(connection)
            if damaged_log is not None:
                text = "write-ahead log damaged; data after the corruption is lost, and a copy of the log was kept"
                _log.error(text, copy=str(damaged_log))
                # so that the next start does not report it again
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            check_integrity(connection)
            _repair_positions(connection)
            log = read_log_position(connection)
            index.prepare_index(connection)
            _delete_incomplete_sessions(connection)
            index.finish_pending_purge(connection)
            return log


def _repair_positions(connection: sqlite3.Connection) -> None:
    """Correct impossible positions of segments, from the positions of their events.

    Readers of the log of all sessions find segments by their positions: they would miss the events of such a segment.
    """
    damaged = connection.execute(
        """SELECT session, last_seq, last_rev FROM segments
           WHERE typeof(first_position) <> 'integer' OR typeof(last_position) <> 'integer'
           OR first_position > last_position OR last_position > ?
           OR (first_position <= 0 AND last_rev > 1)""",  # 0 for events of a fork
        (_MAX_POSITION,),
    ).fetchall()
    if not damaged:
        return
    connection.execute("BEGIN IMMEDIATE")
    for key in damaged:
        with suppress(DamagedData), map_decode_errors("a segment of the log"):
            (body,) = connection.execute(f"SELECT body FROM segments WHERE {_IS_SEGMENT}", key).fetchone()
            if lines := segment_lines(body, compressed=True):
                connection.execute(
                    f"UPDATE segments SET first_position = ?, last_position = ? WHERE {_IS_SEGMENT}",
                    (line_position(lines[0]), line_position(lines[-1]), *key),
                )
                _log.error("damaged positions in the log; restored from its events", session=key[0], last_seq=key[1])
    connection.execute("COMMIT")


_IS_SEGMENT = "session = ? AND last_seq = ? AND last_rev = ?"


def _delete_incomplete_sessions(connection: sqlite3.Connection) -> None:
    """Delete the sessions that an earlier process did not complete."""
    if found := rows.incomplete_sessions(connection):
        connection.execute("BEGIN IMMEDIATE")
        for number in found:
            delete_session(connection, number)
        connection.execute("COMMIT")


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a database that `prepare_file` has created or checked."""
    connection = _open(path)
    _configure(connection)
    return connection


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode_text
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")


def _decode_text(stored: bytes) -> str:
    """Return the text with U+FFFD for undecodable bytes, so that the rest of it, and of a list, can be read."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        _log.error("damaged text in the database; its undecodable bytes were replaced by U+FFFD", size=len(stored))
        return stored.decode(errors="replace")


def read_log_position(connection: sqlite3.Connection) -> tuple[str, int, int]:
    """Return the log's id, its last position, and the largest span of positions of a segment.

    Raises `StoreError` if the file does not contain them.
    """
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if missing := sorted({"log_id", "position"} - meta.keys()):
        raise StoreError(f"it is damaged: its table meta has no {' and no '.join(missing)}; restore a copy of it")
    try:
        position = int(meta["position"])
    except ValueError as exc:
        raise StoreError("it is damaged: in its table meta, position is no number; restore a copy of it") from exc
    if position > _MAX_POSITION:
        _log.error("damaged position of the log; it goes on behind the last event", position=position)
        position = 0
    last, span = connection.execute(
        """SELECT coalesce(max(last_position), 0), coalesce(max(last_position - first_position), 0) FROM segments
           WHERE typeof(first_position) = 'integer' AND typeof(last_position) = 'integer'
           AND last_position <= ?""",  # others are damaged
        (_MAX_POSITION,),
    ).fetchone()
    query = "SELECT coalesce(max(position), 0) FROM commits WHERE position <= ?"
    (last_commit,) = connection.execute(query, (_MAX_POSITION,)).fetchone()
    return meta["log_id"], max(last, last_commit, position), span
