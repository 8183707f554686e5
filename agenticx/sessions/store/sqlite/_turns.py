"""Rows of turns."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import TurnAccepted, decode_record
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.store.sqlite._cursors import session_number

__all__ = [
    "all_turns",
    "begin_turn",
    "end_turn",
    "find_turn",
    "is_known",
    "open_children",
    "running_turn",
]


def begin_turn(connection: sqlite3.Connection, number: int, turn: TurnRecord, rev: int, index: int) -> None:
    """Store `turn`, which the record accepts, as the running turn of its session or as an open child turn."""
    is_child = turn.parent_turn_id is not None
    if not is_child:
        connection.execute("UPDATE sessions SET running = ? WHERE number = ?", (turn.id, number))
    connection.execute(
        """INSERT INTO turns (session, id, client_turn_id, is_open_child, rev, record_index)
           VALUES (?, ?, ?, ?, ?, ?)""",
        (number, turn.id, turn.client_turn_id, is_child, rev, index),
    )


def end_turn(connection: sqlite3.Connection, number: int, turn_id: str) -> None:
    """Store that the turn runs no more."""
    connection.execute("UPDATE sessions SET running = NULL WHERE number = ? AND running = ?", (number, turn_id))
    connection.execute("UPDATE turns SET is_open_child = 0 WHERE id = ? AND is_open_child", (turn_id,))


def is_known(connection: sqlite3.Connection, turn_id: str) -> bool:
    """Return True if the turn has begun, and perhaps ended."""
    return connection.execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,)).fetchone() is not None


def find_turn(
    connection: sqlite3.Connection, session_id: str, turn_id: str | None, client_turn_id: str | None
) -> TurnRecord | None:
    """Return the session's turn with this id or `client_turn_id`, without either the running turn, or None."""
    number = session_number(connection, session_id)
    if turn_id is None and client_turn_id is None:
        return running_turn(connection, number)
    column, value = ("id", turn_id) if client_turn_id is None else ("client_turn_id", client_turn_id)
    found = _select_turns(connection, f"turns.session = ? AND turns.{column} = ?", (number, value))
    return found[0] if found else None


def running_turn(connection: sqlite3.Connection, number: int) -> TurnRecord | None:
    """Return the session's turn without a terminal event, or None."""
    found = _select_turns(connection, "sessions.number = ? AND sessions.running = turns.id", (number,))
    return found[0] if found else None


def all_turns(connection: sqlite3.Connection, number: int) -> list[TurnRecord]:
    """Return the session's turns, oldest first."""
    return _select_turns(connection, "turns.session = ?", (number,))


def open_children(connection: sqlite3.Connection, number: int) -> list[TurnRecord]:
    """Return the session's child turns that have not ended, oldest first."""
    return _select_turns(connection, "turns.session = ? AND turns.is_open_child", (number,))


def _select_turns(connection: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[TurnRecord]:
    rows = connection.execute(
        f"""SELECT turns.id, seq, data FROM turns JOIN sessions ON sessions.number = turns.session
            LEFT JOIN records ON records.session = turns.session
                AND records.rev = turns.rev AND records.record_index = turns.record_index
            WHERE {where} ORDER BY turns.number""",
        values,
    )
    return [_decode_turn(*row) for row in rows]


def _decode_turn(id_: str, seq: int, data: str) -> TurnRecord:
    if not isinstance(id_, str) or not isinstance(seq, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DamagedData("a turn of a session is damaged in the storage")
    record = decode_record(TurnAccepted.kind, id_, id_, data)
    assert isinstance(record, TurnAccepted)
    return replace(record.turn, after_seq=seq)
