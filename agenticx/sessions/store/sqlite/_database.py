"""The threads, caches and checks that the parts of one SQLite store share."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

from agenticx.clocks import Clock, rfc3339
from agenticx.errors import StoreError
from agenticx.sessions.store.owner import FileIdentity, OwnerLock
from agenticx.sessions.store.recent_events import RecentEvents
from agenticx.sessions.store.sqlite._cursors import SessionCursors
from agenticx.sessions.store.sqlite._file import require_database_file
from agenticx.sessions.store.sqlite._newest_commits import NewestCommits
from agenticx.sessions.store.sqlite._opening import connect, prepare_file, read_log_position
from agenticx.sessions.store.sqlite._threads import Reader, Writer

__all__ = ["Database"]


_MILLISECOND = timedelta(milliseconds=1)


class Database:
    """An open database file that this process owns: one writing thread, two reading ones, and the newest events.

    `position` is the last position that was given out; `span` the largest span of positions of a stored segment.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.clock = clock
        path = self.path = path.resolve()
        require_database_file(path)
        self._owner = OwnerLock(path)
        try:
            self.log_id, self.position, self.span = prepare_file(path, clock.now())
        except BaseException:
            self._owner.release()
            raise
        self._now = clock.now()
        self._timestamp = rfc3339(self._now)
        self.recent = RecentEvents(self.position)
        self.newest_commits = NewestCommits()  # this and the next one are used by the writer's thread
        self.cursors = SessionCursors(self.newest_commits)
        self._file_identity = FileIdentity(path)
        self.writer = Writer(
            self._connect, "agx store writer", self._before_transaction, self.newest_commits.end_transaction
        )
        self.reader = Reader(self._connect, "agx store reader")
        self.replayer = Reader(self._connect, "agx store replayer")

    def timestamp(self) -> str:
        """Return the time of a commit as RFC 3339, at most a millisecond old: commits of a group share one text."""
        now = self.clock.now()
        if abs(now - self._now) >= _MILLISECOND:
            self._now, self._timestamp = now, rfc3339(now)
        return self._timestamp

    def read_again(self, session_id: str) -> None:
        """Have readers read from the file all up to the last position that was given out."""
        self.recent.restart(self.position)
        self.recent.notifier.notify(session_id)

    async def refresh(self, session_id: str) -> None:
        """Have readers and later commits go on from the end of the file, as another process wrote to the session."""
        _, last_position, _ = await self.reader.submit(read_log_position)
        self.position = max(self.position, last_position)
        self.recent.last_position = max(self.recent.last_position, last_position)
        self.read_again(session_id)

    def check_ownership(self) -> None:
        """Raise `StoreError` if writes would be lost now, or mixed with writes of another process."""
        self._owner.check()
        if not self._file_identity.is_unchanged():
            raise StoreError(
                f"the database {str(self.path)!r} was removed or replaced while it was in use: nothing more is stored;"
                " put it back and restart"
            )

    def close(self) -> None:
        """End the threads and release the file."""
        self.reader.close()
        self.replayer.close()
        self.writer.close()
        self._owner.release()

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path)

    def _before_transaction(self, connection: sqlite3.Connection) -> None:
        """Check the ownership and the cursors before each transaction, on the writer's thread."""
        self.check_ownership()
        self.cursors.drop_if_stale(connection)
