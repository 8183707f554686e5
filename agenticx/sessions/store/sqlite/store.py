"""A store in one SQLite file: one thread writes in groups, the newest events are read from memory.

1. Commits of all sessions that arrive while a transaction runs are stored together by the next one (group commit).
2. A transaction with a commit that is to be synced is synced to the disk (synchronous=FULL). One of tokens alone is
   not: it survives the death of the process, and a power cut may lose the last of them.
3. The file has one owner: a second process is refused, with the owner's process id (`owner`).
4. Events are read from the disk in a thread of their own: reading a session does not wait for a replay.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from agenticx.clocks import Clock, SystemClock
from agenticx.sessions.store.base import Doubtful, Lease, OwnershipLost
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.commit_records import session_records
from agenticx.sessions.store.commits import StateChange
from agenticx.sessions.store.events import StoredEvent, renumbered
from agenticx.sessions.store.records import Fact
from agenticx.sessions.store.search import SearchableText
from agenticx.sessions.store.session_record import SessionRecord
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite._catalog import SqliteCatalog
from agenticx.sessions.store.sqlite._cursors import session_number
from agenticx.sessions.store.sqlite._database import Database
from agenticx.sessions.store.sqlite._lease import SqliteOwnership
from agenticx.sessions.store.sqlite._log import SqliteLog
from agenticx.sessions.store.sqlite._records import StoredHead, add_records

__all__ = ["SqliteStore"]


class SqliteStore:
    """A `Store` in the file `path`, which is created if there is none and owned by this object until `aclose`.

    Raises `OwnedElsewhere` while another process owns it, and `StoreError` for a file that cannot be used.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, blobs: Blobs | None = None) -> None:
        self._database = Database(path, clock or SystemClock())
        self.log = SqliteLog(self._database)
        self.catalog = SqliteCatalog(self._database.reader, self._database.writer)
        self.ownership = SqliteOwnership(self._database)
        self.blobs = blobs

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: Sequence[StoredEvent] = (),
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        database = self._database
        events = renumbered(initial_events, database.position)
        position = database.position = database.position + max(len(events), 1)

        def work(connection: sqlite3.Connection) -> Sequence[StoredEvent]:
            number = rows.add_session(connection, record)
            rows.add_first_commit(connection, number, events, position)
            head = StoredHead(connection, number)
            before, after = session_records(
                record, head, copied_count=len(events), texts=texts, state=state, facts=facts
            )
            add_records(connection, number, [*before, *after])
            return events

        await database.writer.submit(work, synced=True, on_commit=database.recent.publish)
        database.recent.last_position = max(database.recent.last_position, position)

    async def delete(self, lease: Lease) -> None:
        database, session_id, position = self._database, lease.session_id, str(self._database.position)
        if lease.lost.is_set():
            raise OwnershipLost(f"session {session_id!r} has another owner")

        def work(connection: sqlite3.Connection) -> None:
            number = session_number(connection, session_id)
            index.remove_session(connection, number)
            index.mark_purge_pending(connection)
            rows.delete_session(connection, number)
            database.cursors.remove(session_id)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'position'", (position,))

        try:
            await database.writer.submit(work, synced=True, on_commit=lambda _: self.log.remove_session(session_id))
        except Doubtful:  # readers find in the file whether the session is deleted
            database.read_again(session_id)
            raise
        self.ownership.remove(session_id)
        await self.log.clear_cache()
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

    async def aclose(self) -> None:
        self._database.close()
