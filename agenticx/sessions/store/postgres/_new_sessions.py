"""The statements that write a new session."""

from __future__ import annotations

from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.postgres._connection import PostgresConnection
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._writer import Changes, encode_changes

__all__ = ["ADD_SEGMENTS", "add_session", "apply_changes"]

_ADD_SESSION = """WITH added AS (
        INSERT INTO sessions (id, hidden_id, hidden_by, created_at, pinned, archived, workspace_host)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        RETURNING number
    ), fenced AS (
        INSERT INTO fences (session) SELECT number FROM added
    )
    SELECT number FROM added"""
ADD_SEGMENTS = """INSERT INTO segments (
        session, last_seq, first_rev, last_rev, commit_id, first_position, last_position, body)
    SELECT $1, given.* FROM unnest(
        $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bytea[]) AS given"""


async def add_session(connection: PostgresConnection, record: SessionRecord, worker: str, *, is_complete: bool) -> int:
    """Store a new session and return its number; until it is complete only `worker`, its writer, sees it."""
    session_id, host = to_text(record.id), record.workspace_host
    rows = await connection.fetch(
        _ADD_SESSION,
        *((session_id, None, None) if is_complete else (None, session_id, worker)),
        *(to_text(record.created_at), record.pinned, record.archived, None if host is None else to_text(host)),
    )
    return rows[0][0]


async def apply_changes(connection: PostgresConnection, number: int, changes: Changes | None) -> None:
    """Change the tables that are made of the log, as the records of a new session say."""
    if changes is not None:
        await connection.fetch("SELECT apply_changes($1, $2)", [number], encode_changes(changes))
        await connection.fetch(
            """UPDATE fences SET has_work = EXISTS (SELECT FROM records WHERE records.session = $1 AND is_open)
               WHERE session = $1""",
            number,
        )
