"""A store in one SQLite file: one thread writes in groups, the newest events are read from memory.

1. Commits of all sessions that arrive while a transaction runs are stored together by the next one (group commit).
   They are packed together too: see `_newest_commits`.
2. A transaction with a commit that asks for a sync is synced to the disk (synchronous=FULL). A transaction of tokens
   alone is not: it survives the death of the process, but a power cut may lose the last tokens.
3. The file has one owner: a second process is refused, with the owner's process id (`owner`).
4. Events are read from the disk in a thread of their own: reading a session does not wait for a replay.
5. A session that begins with copied events is written in many transactions, and gets its id in the last one: so it
   appears whole, and no other commit waits long. The next start deletes an incomplete session.
6. A deleted session loses its id in one transaction and its rows in many, for the same reasons. The next start deletes
   the remaining rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.log.commit_records import PlacedRecords, session_records
from agenticx.sessions.log.commits import StateChange
from agenticx.sessions.log.events import StoredEvent, copied
from agenticx.sessions.log.records import Fact
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.state import FoldedSession
from agenticx.sessions.store.base import Lease, OutcomeUnknown, OwnershipLost
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.deletions import Deletions
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.segments import full_pages
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite._catalog import SqliteCatalog
from agenticx.sessions.store.sqlite._copies import SqliteCopies
from agenticx.sessions.store.sqlite._cursors import session_number
from agenticx.sessions.store.sqlite._database import Database
from agenticx.sessions.store.sqlite._lease import SqliteOwnership
from agenticx.sessions.store.sqlite._log import SqliteLog
from agenticx.sessions.store.sqlite._newest_commits import add_first_commit
from agenticx.sessions.store.sqlite._records import add_records, delete_part, delete_session
from agenticx.sessions.store.workers import WorkersReport, single_worker_report
from agenticx.threads import run_in_thread

__all__ = ["SqliteStore"]

T = TypeVar("T")

_RECORDS_AT_ONCE = 4

_log = get_logger(__name__)


class SqliteStore:
    """A `Store` in the file `path`; the file is created if it is missing. This object owns it until `aclose`.

    Raises `OwnedElsewhere` while another process owns the file, `StoreError` for a file that cannot be used.
    """

    shared = None

    def __init__(self, path: Path, *, clock: Clock | None = None, blobs: Blobs | None = None) -> None:
        clock = clock or SystemClock()
        self.address = ""
        self._worker_id, self._started = new_id("wrk"), clock.now()
        self._database = Database(path, clock)
        self.log = SqliteLog(self._database)
        self.catalog = SqliteCatalog(self._database.reader, self._database.writer)
        self.ownership = SqliteOwnership(self._database)
        self.blobs = blobs
        self.copies = SqliteCopies(self._database, self.ownership)
        self._deletions = Deletions()

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: AsyncIterable[Sequence[StoredEvent]] | None = None,
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        make_records = partial(session_records, record, FoldedSession(record), texts=texts, state=state, facts=facts)
        if initial_events is not None:
            return await self._create_in_parts(record, initial_events, make_records)
        database = self._database
        position = database.position = database.position + 1
        before, after = make_records(copied_count=0)

        def work(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (record.id,)).fetchone() is not None:
                return
            number = rows.add_session(connection, record)
            add_first_commit(connection, number, new_id("cmt"), position=position)
            add_records(connection, number, [*before, *after])

        await database.writer.submit(work, synced=True)
        database.recent.last_position = max(database.recent.last_position, position)

    async def _create_in_parts(
        self,
        record: SessionRecord,
        pages: AsyncIterable[Sequence[StoredEvent]],
        make_records: Callable[..., PlacedRecords],
    ) -> None:
        """Create a session in many short transactions; it becomes visible, complete, with the last one."""
        writer, commit_id, count = self._database.writer, new_id("cmt"), 0
        try:
            number = await self._write_part(lambda connection: rows.add_session(connection, record, is_complete=False))
            async for events in full_pages(pages):
                count += len(events)
                await self._write_part(
                    partial(add_first_commit, number=number, commit_id=commit_id, events=copied(events))
                )
            if count == 0:
                await self._write_part(partial(add_first_commit, number=number, commit_id=commit_id))
            before, after = await run_in_thread(make_records, copied_count=count, name="agx copy")
            placed = [*before, *after]
            for start in range(0, len(placed), _RECORDS_AT_ONCE):
                some = placed[start : start + _RECORDS_AT_ONCE]
                await self._write_part(partial(add_records, number=number, records=some))
            await writer.submit(lambda connection: rows.complete_session(connection, number, record.id), synced=True)
        except BaseException:
            await self._discard(record)
            raise

    async def _write_part(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write a part of a session that is not complete, and so does not exist if the outcome is unknown."""
        try:
            return await self._database.writer.submit(work)
        except OutcomeUnknown as exc:
            raise StoreError(str(exc)) from exc

    async def _discard(self, record: SessionRecord) -> None:
        """Delete what is stored of a session unless it is complete."""
        with suppress(StoreError):  # which is logged
            await self._deletions.finish(self._delete_incomplete(record))

    async def _delete_incomplete(self, record: SessionRecord) -> None:
        with _logged_errors():
            found = await self._database.writer.submit(lambda connection: rows.incomplete_sessions(connection, record))
            for number in found:
                await self._delete_rows(number)

    async def delete(self, lease: Lease) -> None:
        if lease.lost.is_set():
            raise OwnershipLost(f"session {lease.session_id!r} has another owner")
        await self._deletions.finish(self._delete(lease.session_id))

    async def _delete(self, session_id: str) -> None:
        database, position = self._database, str(self._database.position)

        def hide(connection: sqlite3.Connection) -> int:
            number = session_number(connection, session_id)
            rows.hide_session(connection, number)
            database.cursors.remove(session_id)
            database.newest_commits.remove_session(number)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'position'", (position,))
            return number

        try:
            number = await database.writer.submit(
                hide, synced=True, on_commit=lambda _: self.log.remove_session(session_id)
            )
        except OutcomeUnknown:  # readers find in the file whether the session is deleted
            database.read_again(session_id)
            raise
        self.ownership.remove(session_id)
        with _logged_errors():
            await self.log.clear_cache()
            await self._delete_rows(number)

    async def _delete_rows(self, number: int) -> None:
        """Delete a session that nobody sees, in many short transactions."""
        while await self._write_part(lambda connection: delete_part(connection, number)):
            pass
        await self._write_part(lambda connection: delete_session(connection, number))
        await self._purge()

    async def _purge(self) -> None:
        """Remove deleted content from the file, and truncate the file.

        Works step by step, so that writes of other sessions are not delayed.
        """
        writer = self._database.writer
        done = await writer.submit(lambda connection: index.purge_step(connection, begin=True))
        while not done:
            done = await writer.submit(lambda connection: index.purge_step(connection, begin=False))
        await writer.vacuum()
        await writer.checkpoint()

    async def check(self) -> None:
        self._database.check_ownership()
        await self._database.writer.check()

    async def workers(self) -> WorkersReport:
        database = self._database
        running_turns, size = await database.reader.submit(_running_turns_and_size)
        return single_worker_report(
            self._worker_id,
            self.address,
            this_host(),
            self._started,
            database.clock.now(),
            {
                "name": str(database.path),
                "engine": "sqlite",
                "version": sqlite3.sqlite_version,
                "durability": self.log.durability,
                "primary": None,
                "connections": None,
                "max_connections": None,
                "standbys": None,
                "size_bytes": size,
            },
            sessions=self.ownership.owned,
            running_turns=running_turns,
        )

    async def aclose(self) -> None:
        self._database.close()


def _running_turns_and_size(connection: sqlite3.Connection) -> tuple[int, int]:
    return connection.execute(
        """SELECT (SELECT count(*) FROM sessions WHERE running IS NOT NULL),
                  page_count * page_size FROM pragma_page_count, pragma_page_size"""
    ).fetchone()


@contextmanager
def _logged_errors() -> Generator[None]:
    """Log a `StoreError` of a deletion, as perhaps nobody waits for it any more."""
    try:
        yield
    except StoreError as exc:
        _log.error("part of a session may be left in the file until the next start", error=str(exc))
        raise
