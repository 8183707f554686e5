"""Usage of model calls in the database: a row for each session, day, model and agent."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import astuple
from decimal import Decimal
from typing import Any

from agenticx.messages import clean_text
from agenticx.runtime.events import EventType
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.usage import DailyUsage, UsageCounts
from agenticx.sessions.store.decoding import decode_rows
from agenticx.sessions.store.sqlite._cursors import session_number

__all__ = ["add_usage", "read_costs", "read_usage"]

_COUNT_COLUMNS = "calls, uncounted, unpriced, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_usd"


def add_usage(connection: sqlite3.Connection, session: int, events: Sequence[StoredEvent]) -> None:
    """Add the counts of the `usage` events among these."""
    for event in events:
        if event.type is EventType.USAGE:
            call = DailyUsage.of_call(event)
            key = (session, call.day, call.model, clean_text(call.agent_id))
            known = connection.execute(
                f"SELECT {_COUNT_COLUMNS} FROM usage WHERE session = ? AND day = ? AND model = ? AND agent_id = ?", key
            ).fetchall()
            sums = sum(decode_rows(known, UsageCounts.of_columns), call.counts)
            *numbers, cost = astuple(sums)
            values = (*key, *numbers, None if cost is None else str(cost))
            connection.execute(f"INSERT OR REPLACE INTO usage VALUES ({', '.join('?' * len(values))})", values)


def read_usage(
    connection: sqlite3.Connection, *, session_id: str | None, since: str | None, until: str | None
) -> list[DailyUsage]:
    """Return the rows of these days, of one session or of all; a row that cannot be decoded is left out."""
    session = None if session_id is None else session_number(connection, session_id)
    found = connection.execute(
        f"""SELECT sessions.id, CAST(day AS TEXT), CAST(model AS TEXT), CAST(agent_id AS TEXT), {_COUNT_COLUMNS}
            FROM usage JOIN sessions ON sessions.number = usage.session
            WHERE sessions.id IS NOT NULL AND (?1 IS NULL OR session = ?1)
            AND day >= coalesce(?2, '') AND day <= coalesce(?3, '9999-99-99')
            ORDER BY sessions.number""",
        (session, since, until),
    )
    return DailyUsage.merged(decode_rows(found, _decode_row))


def read_costs(connection: sqlite3.Connection, session_ids: Collection[str]) -> dict[str, Decimal]:
    """Return the cost of each of these sessions; sessions without a readable cost are left out."""
    costs = dict[str, Decimal]()
    for session_id in session_ids:
        found = connection.execute(
            """SELECT cost_usd FROM usage JOIN sessions ON sessions.number = usage.session
               WHERE sessions.id = ? AND cost_usd IS NOT NULL""",
            (session_id,),
        )
        known = list(decode_rows(found, _decode_cost))
        if known:
            costs[session_id] = sum(known, Decimal(0))
    return costs


def _decode_cost(row: tuple[Any, ...]) -> Decimal:
    with map_decode_errors("the usage of a session"):
        return Decimal(row[0])


def _decode_row(row: tuple[Any, ...]) -> DailyUsage:
    id_, day, model, agent_id, *counts = row
    return DailyUsage(session_id=id_, day=day, model=model, agent_id=agent_id, counts=UsageCounts.of_columns(counts))
