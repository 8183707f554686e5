"""Sessions of a database file as whole logs, see `copies`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from agenticx.errors import StoreError
from agenticx.sessions.log.commits import LogEnd
from agenticx.sessions.log.records import StoredRecord
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.copies import CopiedEvents, copied_commits, copied_segment
from agenticx.sessions.store.segments import Segment
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import log_end, session_number
from agenticx.sessions.store.sqlite._database import Database
from agenticx.sessions.store.sqlite._lease import SqliteOwnership
from agenticx.sessions.store.sqlite._newest_commits import insert_segments
from agenticx.sessions.store.sqlite._records import add_records, delete_part, delete_session
from agenticx.sessions.store.sqlite._usage import add_usage

__all__ = ["SqliteCopies"]

_SEGMENTS_AT_ONCE = 16
_RECORDS_AT_ONCE = 64
_EVENTS_AT_ONCE = 1000


class SqliteCopies:
    """The `SessionCopies` of one database, which this process owns."""

    def __init__(self, database: Database, ownership: SqliteOwnership) -> None:
        self._database = database
        self._ownership = ownership

    async def session_ids(self) -> Sequence[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            found = connection.execute("SELECT id FROM sessions WHERE id IS NOT NULL ORDER BY number")
            return [session_id for (session_id,) in found]

        return await self._database.reader.submit(work)

    @asynccontextmanager
    async def claimed(self, session_id: str) -> AsyncGenerator[None]:
        lease = await self._ownership.claim(session_id)
        try:
            yield
        finally:
            await lease.release()

    async def end(self, session_id: str) -> LogEnd | None:
        def work(connection: sqlite3.Connection) -> LogEnd | None:
            found = connection.execute("SELECT number FROM sessions WHERE id = ?", (session_id,)).fetchone()
            return None if found is None else log_end(connection, found[0])

        return await self._database.reader.submit(work)

    async def segments(self, session_id: str) -> AsyncGenerator[Sequence[Segment]]:
        last = -1, -1

        def segments(connection: sqlite3.Connection) -> list[Segment]:
            found = connection.execute(
                """SELECT last_seq, first_rev, last_rev, commit_id, first_position, last_position, body FROM segments
                   WHERE session = ? AND (last_seq, last_rev) > (?, ?) ORDER BY last_seq, last_rev LIMIT ?""",
                (session_number(connection, session_id), *last, _SEGMENTS_AT_ONCE),
            )
            return [copied_segment(Segment(*row)) for row in found]

        def commits(connection: sqlite3.Connection) -> list[Segment]:
            found = connection.execute(
                """SELECT last_seq, rev, commit_id, CAST(body AS BLOB) FROM commits WHERE session = ? AND rev > ?
                   ORDER BY rev LIMIT ?""",
                (session_number(connection, session_id), last[1], _EVENTS_AT_ONCE),
            )
            return list(copied_commits(found))

        for read in (segments, commits):
            while page := await self._database.reader.submit(read):
                last = page[-1].last_seq, page[-1].last_rev
                yield page

    async def records(self, session_id: str) -> AsyncGenerator[Sequence[StoredRecord]]:
        last = -1, -1

        def work(connection: sqlite3.Connection) -> list[StoredRecord]:
            found = connection.execute(
                """SELECT rev, record_index, seq, kind, key, turn, data FROM records
                   WHERE session = ? AND (rev, record_index) > (?, ?) ORDER BY rev, record_index LIMIT ?""",
                (session_number(connection, session_id), *last, _RECORDS_AT_ONCE),
            )
            return [rows.read_record_row(row) for row in found]

        while page := await self._database.reader.submit(work):
            last = page[-1].rev, page[-1].record_index
            yield page

    async def add(
        self,
        record: SessionRecord,
        end: LogEnd,
        segments: AsyncGenerator[Sequence[Segment]],
        records: AsyncGenerator[Sequence[StoredRecord]],
    ) -> None:
        writer = self._database.writer
        number = await writer.submit(lambda connection: rows.add_session(connection, record, is_complete=False))
        try:
            await self._add_log(number, record.id, segments, records)
            await writer.submit(lambda connection: rows.complete_session(connection, number, record.id), synced=True)
        except BaseException:
            with suppress(StoreError):  # the next start deletes it
                while await writer.submit(lambda connection: delete_part(connection, number)):
                    pass
                await writer.submit(lambda connection: delete_session(connection, number))
            raise

    async def _add_log(
        self,
        number: int,
        session_id: str,
        segments: AsyncGenerator[Sequence[Segment]],
        records: AsyncGenerator[Sequence[StoredRecord]],
    ) -> None:
        """Write the rows of a session that nobody sees, in short transactions."""
        writer, events = self._database.writer, CopiedEvents()

        def add_segments(connection: sqlite3.Connection, some: Sequence[Segment]) -> None:
            events.add_segments(session_id, some)
            insert_segments(connection, number, some)

        async for some in segments:
            await writer.submit(lambda connection, some=some: add_segments(connection, some))
        async for page in records:
            events.add_records(page)
            await writer.submit(lambda connection, page=page: add_records(connection, number, page))
        usage = events.usage
        for start in range(0, len(usage), _EVENTS_AT_ONCE):
            part = usage[start : start + _EVENTS_AT_ONCE]
            await writer.submit(lambda connection, part=part: add_usage(connection, number, part))

        def end_turns(connection: sqlite3.Connection) -> None:
            for turn_id in events.ended_turns:
                turns.end_turn(connection, number, turn_id)

        await writer.submit(end_turns)
