"""Sessions of a PostgreSQL database as whole logs, see `copies`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from agenticx.errors import StoreError
from agenticx.messages import Message
from agenticx.sessions.log.commits import LogEnd
from agenticx.sessions.log.records import MessageAdded, MessagesReplaced, StoredRecord
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.copies import CopiedEvents, copied_commits, copied_segment
from agenticx.sessions.store.postgres import _rows as rows
from agenticx.sessions.store.postgres._changes import changes_of
from agenticx.sessions.store.postgres._connection import PostgresConnection, Row
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._new_sessions import ADD_SEGMENTS, add_session, apply_changes
from agenticx.sessions.store.postgres._ownership import PostgresOwnership
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.segments import Segment
from agenticx.threads import run_in_thread

__all__ = ["PostgresCopies"]

_SEGMENTS_AT_ONCE = 16
_RECORDS_AT_ONCE = 64
_EVENTS_AT_ONCE = 1000

_ADD_COMMIT = """INSERT INTO commits (session, rev, commit_id, last_seq, position, body)
    VALUES ($1, $2, $3, $4, position_base() + 1, '')"""


class PostgresCopies:
    """The `SessionCopies` of one database."""

    def __init__(self, database: PostgresDatabase, ownership: PostgresOwnership) -> None:
        self._database = database
        self._ownership = ownership

    async def session_ids(self) -> Sequence[str]:
        found = await self._database.server.fetch("SELECT id FROM sessions WHERE id IS NOT NULL ORDER BY number")
        return [from_text(session_id) for (session_id,) in found]

    @asynccontextmanager
    async def claimed(self, session_id: str) -> AsyncGenerator[None]:
        lease = await self._ownership.claim(session_id)
        try:
            yield
        finally:
            await lease.release(work_left=True)

    async def end(self, session_id: str) -> LogEnd | None:
        async def work(connection: PostgresConnection) -> LogEnd | None:
            found = await connection.fetch("SELECT number FROM sessions WHERE id = $1", to_text(session_id))
            return await rows.log_end(connection, found[0][0]) if found else None

        return await self._database.server.use(work)

    async def segments(self, session_id: str) -> AsyncGenerator[Sequence[Segment]]:
        server, number = self._database.server, await self._number(session_id)
        last_seq = last_rev = -1
        while found := await server.fetch(
            """SELECT last_seq, first_rev, last_rev, commit_id, first_position, last_position, body FROM segments
               WHERE session = $1 AND (last_seq, last_rev) > ($2, $3) ORDER BY last_seq, last_rev LIMIT $4""",
            *(number, last_seq, last_rev, _SEGMENTS_AT_ONCE),
        ):
            segments = [Segment(*row) for row in found]
            last_seq, last_rev = segments[-1].last_seq, segments[-1].last_rev
            yield await run_in_thread(_copied, segments, name="agx copy")
        while found := await server.fetch(
            """SELECT last_seq, rev, commit_id, body FROM commits WHERE session = $1 AND rev > $2
               ORDER BY rev LIMIT $3""",
            *(number, last_rev, _EVENTS_AT_ONCE),
        ):
            last_rev = found[-1][1]
            yield await run_in_thread(_copied_commits, found, name="agx copy")

    async def records(self, session_id: str) -> AsyncGenerator[Sequence[StoredRecord]]:
        server, number = self._database.server, await self._number(session_id)
        rev = index = -1
        while found := await server.fetch(
            """SELECT rev, record_index, seq, kind, key, turn, data FROM records
               WHERE session = $1 AND (rev, record_index) > ($2, $3) ORDER BY rev, record_index LIMIT $4""",
            *(number, rev, index, _RECORDS_AT_ONCE),
        ):
            rev, index = found[-1][0], found[-1][1]
            yield [rows.read_record_row(row) for row in found]

    async def _number(self, session_id: str) -> int:
        return await self._database.server.use(lambda connection: rows.session_number(connection, session_id))

    async def add(
        self,
        record: SessionRecord,
        end: LogEnd,
        segments: AsyncGenerator[Sequence[Segment]],
        records: AsyncGenerator[Sequence[StoredRecord]],
    ) -> None:
        await self._database.start()
        server, worker_id = self._database.server, self._database.worker.id
        async with server.connection() as connection:
            number = await add_session(connection, record, worker_id, is_complete=False)
        try:
            async with server.connection() as connection:
                await _add_log(connection, number, record.id, segments, records)
                await connection.fetch(_ADD_COMMIT, number, end.rev, end.commit_id, end.last_seq)
                await connection.fetch(
                    "UPDATE sessions SET id = $2, hidden_id = NULL, hidden_by = NULL WHERE number = $1",
                    *(number, to_text(record.id)),
                )
        except BaseException:
            with suppress(StoreError):  # the next worker removes it
                await self._database.maintenance.remove(number, record.id)
            raise


def _copied(segments: Sequence[Segment]) -> list[Segment]:
    return [copied_segment(segment) for segment in segments]


def _copied_commits(found: Sequence[Row]) -> list[Segment]:
    return list(copied_commits((seq, rev, commit_id, body) for seq, rev, commit_id, body in found))


async def _add_log(
    connection: PostgresConnection,
    number: int,
    session_id: str,
    segments: AsyncGenerator[Sequence[Segment]],
    records: AsyncGenerator[Sequence[StoredRecord]],
) -> None:
    """Write the rows of a session that nobody sees, in short transactions."""
    events = CopiedEvents()
    async for some in segments:
        await run_in_thread(events.add_segments, session_id, some, name="agx copy")
        columns = [list(column) for column in zip(*some, strict=True)]
        await connection.fetch(ADD_SEGMENTS, number, *columns)
    messages = dict[str, Message]()
    async for page in records:
        events.add_records(page)
        for one in page:  # alone, as a `MessagesReplaced` needs its messages
            restored: Sequence[Message] = ()
            match one.record:
                case MessageAdded(key=key, message=message):
                    messages[key] = message
                case MessagesReplaced(messages=keys):
                    restored = [messages[key] for key in keys]
                case _:
                    pass
            await apply_changes(connection, number, changes_of(number, [one], restored=restored))
    usage = events.usage
    for start in range(0, len(usage), _EVENTS_AT_ONCE):
        await apply_changes(connection, number, changes_of(number, (), usage[start : start + _EVENTS_AT_ONCE]))
    ended = [{"session": number, "turn": to_text(turn_id)} for turn_id in events.ended_turns]
    if ended:
        await apply_changes(connection, number, {"ended": ended})
