"""Rows of turns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from agenticx.llms.sampling import Sampling
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.records import TurnRecord
from agenticx.sessions.store.sqlite._cursors import session_number
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "begin_turn",
    "end_turn",
    "find_client_turn",
    "find_turn",
    "is_known",
    "open_children",
    "running_turn",
    "running_turn_ids",
]

_TURN_COLUMNS = """turns.id, sessions.id, turns.input, turns.attachments_digest, turns.client_turn_id,
    turns.model, turns.permission_mode, turns.sampling, turns.mode, turns.vaults, turns.variants,
    turns.after_seq, turns.parent_turn_id"""


def begin_turn(connection: sqlite3.Connection, number: int, turn: TurnRecord, after_seq: int) -> None:
    """Store `turn`, whose first event follows `after_seq`, as the running one of its session, or as an open child."""
    sampling = None if turn.sampling is None else json.dumps(dict(turn.sampling.items()))
    vaults = None if turn.vaults is None else json.dumps(turn.vaults)
    variants = None if turn.variants is None else json.dumps(turn.variants)
    is_child = turn.parent_turn_id is not None
    if not is_child:
        connection.execute("UPDATE sessions SET running = ? WHERE number = ?", (turn.id, number))
    connection.execute(
        """INSERT INTO turns (session, id, client_turn_id, input, attachments_digest, model, permission_mode, sampling,
               mode, vaults, variants, after_seq, parent_turn_id, is_open_child)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(number, turn.id, turn.client_turn_id, turn.input, turn.attachments_digest),
            *(turn.model, turn.permission_mode, sampling, turn.mode, vaults, variants),
            *(after_seq, turn.parent_turn_id, is_child),
        ),
    )


def end_turn(connection: sqlite3.Connection, number: int, turn_id: str) -> None:
    """Store that the turn runs no more."""
    connection.execute("UPDATE sessions SET running = NULL WHERE number = ? AND running = ?", (number, turn_id))
    connection.execute("UPDATE turns SET is_open_child = 0 WHERE id = ? AND is_open_child", (turn_id,))


def is_known(connection: sqlite3.Connection, turn_id: str) -> bool:
    """Return True if the turn has begun, and perhaps ended."""
    return connection.execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,)).fetchone() is not None


def find_client_turn(connection: sqlite3.Connection, session_id: str, client_turn_id: str) -> TurnRecord | None:
    """Return the session's turn of that `client_turn_id`, else None."""
    key = (session_number(connection, session_id), client_turn_id)
    found = _select_turns(connection, "turns.session = ? AND turns.client_turn_id = ?", key)
    return found[0] if found else None


def find_turn(connection: sqlite3.Connection, session_id: str, turn_id: str) -> TurnRecord | None:
    """Return a turn of the session by its id, else None."""
    found = _select_turns(
        connection, "turns.session = ? AND turns.id = ?", (session_number(connection, session_id), turn_id)
    )
    return found[0] if found else None


def running_turn(connection: sqlite3.Connection, number: int) -> TurnRecord | None:
    """Return the session's turn without a terminal event, else None."""
    found = _select_turns(connection, "sessions.number = ? AND sessions.running = turns.id", (number,))
    return found[0] if found else None


def open_children(connection: sqlite3.Connection, number: int) -> list[TurnRecord]:
    """Return the session's child turns that have not ended, oldest first."""
    return _select_turns(connection, "turns.session = ? AND turns.is_open_child", (number,))


def running_turn_ids(connection: sqlite3.Connection, session_ids: Collection[str]) -> dict[str, str]:
    """Return the ids of the running turns of these sessions by session id."""
    found = connection.execute(
        "SELECT id, running FROM sessions WHERE running IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(session_ids)),),
    )
    return dict(found.fetchall())


def _select_turns(connection: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[TurnRecord]:
    rows = connection.execute(
        f"SELECT {_TURN_COLUMNS} FROM turns JOIN sessions ON sessions.number = turns.session"
        f" WHERE {where} ORDER BY turns.number",
        values,
    )
    return [_decode_turn(*row) for row in rows]


def _decode_turn(
    id_: str,
    session_id: str,
    input_: str,
    digest: str,
    client_turn_id: str | None,
    model: str | None,
    permission_mode: PermissionMode | None,
    sampling: str | None,
    mode: str | None,
    vaults: str | None,
    variants: str | None,
    after_seq: int,
    parent_turn_id: str | None,
) -> TurnRecord:
    with map_decode_errors(f"turn {id_!r}"):
        made: int | list[str] | None = None if variants is None else json.loads(variants)
        return TurnRecord(
            id=id_,
            session_id=session_id,
            input=input_,
            attachments_digest=digest,
            client_turn_id=client_turn_id,
            model=model,
            permission_mode=permission_mode,
            sampling=None if sampling is None else Sampling(**json.loads(sampling)),
            mode=mode,
            vaults=None if vaults is None else tuple(json.loads(vaults)),
            variants=tuple(made) if isinstance(made, list) else made,
            after_seq=after_seq,
            parent_turn_id=parent_turn_id,
        )
