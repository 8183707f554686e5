"""The catalog of a PostgreSQL store: lists, search, usage and requests as queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage, UsageCounts
from agenticx.sessions.store.base import ArchivedFilter, ListedSession, ListPlace
from agenticx.sessions.store.decoding import decode_rows
from agenticx.sessions.store.postgres import _rows as rows
from agenticx.sessions.store.postgres._connection import PostgresConnection, Row
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._search import expression, pair_expression
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.search import MATCHES_SHOWN, SearchExcerpt, SearchQuery
from agenticx.threads import run_in_thread

__all__ = ["PostgresCatalog", "read_usage"]

_TEXTS_AT_ONCE = 100
_LARGEST_NUMBER = 2**63 - 1
_COSTS = """SELECT sessions.id, cost_usd FROM usage JOIN sessions ON sessions.number = usage.session
    WHERE sessions.id = ANY($1::text[]) AND cost_usd IS NOT NULL"""

_WORKING = """SELECT DISTINCT ON (sessions.id) sessions.id, records.key
              FROM sessions JOIN records ON records.session = sessions.number
              WHERE sessions.id = ANY($1::text[]) AND records.is_open AND records.kind = 'turn_accepted'
              ORDER BY sessions.id, records.key IS DISTINCT FROM sessions.running, records.rev, records.record_index"""

_KEY = "sessions.pinned, sessions.created_at, sessions.number"
_LISTED = f"""sessions.id IS NOT NULL AND ($1::text IS NULL OR ({_KEY}) < (
                  SELECT known.pinned, known.created_at, known.number FROM sessions AS known WHERE known.id = $1))
              AND ($2 = 'with' OR sessions.archived = ($2 = 'only'))
              AND ($3::boolean IS NULL OR ({_KEY}) < ($3, $4::text, $5::bigint))"""
_FOUND = f"""SELECT {_KEY}, texts.message_id <> '' AS is_message, texts.number,
                 texts.message_id, texts.role, texts.text, {rows.RECORD}, sessions.running, sessions.id
             FROM texts JOIN sessions ON sessions.number = texts.session
             WHERE {_LISTED} AND (texts.words @@ $6::tsquery OR texts.words IS NULL)
             AND ($7::text IS NULL OR NOT texts.has_pairs OR texts.words @@ $7::tsquery)
             AND ($8::boolean IS NULL OR ({_KEY}) < ($8, $9::text, $10::bigint)
                 OR (({_KEY}) = ($8, $9, $10) AND (texts.message_id <> '', texts.number) > ($11::boolean, $12::bigint)))
             ORDER BY sessions.pinned DESC, sessions.created_at DESC, sessions.number DESC, texts.message_id <> '',
                 texts.number LIMIT $13"""


class PostgresCatalog:
    """The `Catalog` of one database, which never lags."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def get(self, session_id: str) -> SessionRecord:
        return await self._database.server.use(lambda connection: rows.read_record(connection, session_id))

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | ListPlace | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        values = _list_values(before, archived)
        if query is not None:
            return await self._search(SearchQuery.parse(query), limit, values)
        found = await self._database.server.fetch(
            f"""SELECT id, {rows.RECORD}, running FROM sessions
                WHERE {_LISTED} ORDER BY pinned DESC, created_at DESC, number DESC LIMIT $6""",
            *(*values, limit),
        )
        return list(decode_rows(found, lambda row: _listed_session(*row, matches=())))

    async def _search(self, terms: SearchQuery, limit: int, values: tuple[Any, ...]) -> Sequence[ListedSession]:
        """Return the sessions with a text that has all terms; false matches of the index are left out."""
        if not terms.phrases or limit < 1:
            return []
        matches, last = dict[int, list[Row]](), (None,) * 5
        while True:
            found = await self._database.server.fetch(
                _FOUND, *values, expression(terms), pair_expression(terms), *last, _TEXTS_AT_ONCE
            )
            for row in await run_in_thread(_matching, terms, found, name="agx search"):
                if row[2] not in matches and len(matches) == limit:
                    break
                matches.setdefault(row[2], []).append(row)
            else:
                if len(found) == _TEXTS_AT_ONCE:
                    last = tuple(found[-1])[:5]
                    continue
            return await run_in_thread(_listed, terms, matches, name="agx search")

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        async def work(connection: PostgresConnection) -> list[DailyUsage]:
            number = None if session_id is None else await rows.session_number(connection, session_id)
            return await read_usage(connection, number=number, since=since, until=until)

        return await self._database.server.use(work)

    async def costs(self, session_ids: Collection[str]) -> Mapping[str, Decimal]:
        async def work(connection: PostgresConnection) -> dict[str, Decimal]:
            found = await connection.fetch(_COSTS, list(map(to_text, session_ids)))
            costs = dict[str, Decimal]()
            for id_, cost in found:
                costs[from_text(id_)] = costs.get(from_text(id_), Decimal(0)) + Decimal(cost)
            return costs

        return await self._database.server.use(work)

    async def working_sessions(self, session_ids: Collection[str]) -> Mapping[str, str]:
        found = await self._database.server.fetch(_WORKING, list(map(to_text, session_ids)))
        return {from_text(id_): from_text(turn_id) for id_, turn_id in found}

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        return await self._database.server.use(
            lambda connection: rows.open_requests(connection, session_id), is_snapshot=True
        )

    async def session_of_request(self, request_id: str) -> str | None:
        return await self._database.server.use(lambda connection: rows.session_of_request(connection, request_id))


async def read_usage(
    connection: PostgresConnection, *, number: int | None, since: str | None, until: str | None
) -> list[DailyUsage]:
    """Return the usage of the session with that number, or of all, of these days."""
    found = await connection.fetch(
        """SELECT sessions.id, day, model, agent_id, calls, uncounted, unpriced, input_tokens, output_tokens,
               cached_tokens, reasoning_tokens, cost_usd
           FROM usage JOIN sessions ON sessions.number = usage.session
           WHERE sessions.id IS NOT NULL AND ($1::bigint IS NULL OR session = $1)
           AND day >= coalesce($2, '') AND day <= coalesce($3, '9999-99-99') ORDER BY sessions.number""",
        *(number, since, until),
    )
    return DailyUsage.merged(_usage(row) for row in found)


def _list_values(before: str | ListPlace | None, archived: ArchivedFilter) -> tuple[Any, ...]:
    """Return the values of `_LISTED`; the numbers of all sessions are greater than 0."""
    if isinstance(before, ListPlace):
        number = 0 if before.follows_equal else _LARGEST_NUMBER
        return None, archived, before.pinned, to_text(before.created_at), number
    return None if before is None else to_text(before), archived, None, None, None


def _listed_session(
    session_id: str, data: str | None, running: str | None, *, matches: Sequence[SearchExcerpt]
) -> ListedSession:
    record = rows.decode_record_row(from_text(session_id), data)
    return ListedSession(record, None if running is None else from_text(running), matches)


def _text(row: Row) -> SearchableText:
    return SearchableText(from_text(row[5]) or None, row[6], from_text(row[7]))


def _matching(terms: SearchQuery, found: Sequence[Row]) -> list[Row]:
    return [row for row in found if terms.matches(from_text(row[7]))]


def _listed(terms: SearchQuery, matches: dict[int, list[Row]]) -> list[ListedSession]:
    def decode(texts: Row) -> ListedSession:
        excerpts = [terms.excerpt(_text(text)) for text in texts[:MATCHES_SHOWN]]
        data, running, session_id = texts[0][8:]
        return _listed_session(session_id, data, running, matches=excerpts)

    return list(decode_rows(matches.values(), decode))


def _usage(row: Row) -> DailyUsage:
    id_, day, model, agent_id, *columns = row
    counts = UsageCounts.of_columns(columns)
    return DailyUsage(
        session_id=from_text(id_), day=day, model=from_text(model), agent_id=from_text(agent_id), counts=counts
    )
