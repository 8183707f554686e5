"""A store in one SQLite file: one thread writes in groups, the newest events are read from memory.

1. Appends of all sessions that arrive while a commit runs are committed together by the next one (group commit).
2. A commit that holds an event of `SYNCED_EVENTS` or a journal entry is synced to the disk (synchronous=FULL). One of
   tokens alone is not: it survives the death of the process, and a power cut may lose the last of them.
3. The file has one owner: a second process is refused, with the owner's process id (`owner`).
4. Events are read from the disk in a thread of their own: reading a session does not wait for a replay.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from datetime import datetime
from pathlib import Path

from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.events import RuntimeEvent
from agenticx.sessions.store.base import (
    SYNCED_EVENTS,
    ArchivedFilter,
    JournalEntry,
    JournalKind,
    SearchResult,
    SequenceConflict,
    SessionRecord,
    SessionState,
    StoredEvent,
    TurnRecord,
    encode_events,
)
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.search import SearchableText, searchable_texts
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _search as index
from agenticx.sessions.store.sqlite._cursors import SessionCursors, last_seq, session_number
from agenticx.sessions.store.sqlite._file import (
    FileIdentity,
    check_integrity,
    map_file_errors,
    read_only_uri,
    require_database_file,
)
from agenticx.sessions.store.sqlite._log_reader import LogReader
from agenticx.sessions.store.sqlite._recent_events import RecentEvents
from agenticx.sessions.store.sqlite._threads import Reader, Writer
from agenticx.sessions.store.sqlite._usage import add_usage, read_usage
from agenticx.sessions.store.sqlite._wal import LeftoverLog, open_leftover_log
from agenticx.sessions.store.sqlite.migrations import applied_migrations, migrate
from agenticx.sessions.store.sqlite.owner import OwnerLock
from agenticx.sessions.store.usage import DailyUsage

__all__ = ["SqliteStore"]

_BUSY_SECONDS = 5.0
_MAX_FRESH_ROWS = 256
_CHECKPOINT_PAGES = 4000
"""The size of the write-ahead log at a checkpoint, about 16 MB: a checkpoint syncs twice, so it must be rare."""


_log = get_logger(__name__)


class SqliteStore:
    """A `Store` in the file `path`, which is created if there is none and owned by this object until `aclose`.

    Raises `OwnedElsewhere` while another process owns it, and `StoreError` for a file that cannot be used.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        path = self._path = path.resolve()
        require_database_file(path)
        self._owner = OwnerLock(path)
        try:
            self._log_id, self._position, span = _prepare_file(path, self._clock.now())
        except BaseException:
            self._owner.release()
            raise
        self._notifier = Notifier()
        self._recent = RecentEvents(self._position)
        self._file_identity = FileIdentity(path)
        self._cursors = SessionCursors()  # used by the writer's thread
        self._writer = Writer(self._connect, "agx store writer", self._before_transaction)
        self._reader = Reader(self._connect, "agx store reader")
        self._replayer = Reader(self._connect, "agx store replayer")
        self._log_reader = LogReader(span)  # used by the replayer's thread
        self._pending_reads: dict[tuple[str | None, int, int, int], asyncio.Future[Sequence[StoredEvent]]] = {}

    @property
    def is_persistent(self) -> bool:
        return True

    @property
    def log_id(self) -> str:
        return self._log_id

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: Sequence[StoredEvent] = (),
        texts: Sequence[SearchableText] = (),
        state: SessionState | None = None,
    ) -> None:
        events = [event._replace(position=self._position + place) for place, event in enumerate(initial_events, 1)]
        self._position += len(events)

        def work(connection: sqlite3.Connection) -> None:
            number = rows.add_session(connection, record)
            index.set_name(connection, number, record.name)
            rows.add_initial_events(connection, number, events)
            index.add_texts(connection, number, texts)
            if state is not None:
                _apply_state(connection, number, state)

        await self._writer.submit(work, synced=True, on_commit=lambda: self._publish(record.id, events))

    async def get(self, session_id: str) -> SessionRecord:
        def work(connection: sqlite3.Connection) -> SessionRecord:
            number = session_number(connection, session_id)
            (text,) = connection.execute("SELECT record FROM sessions WHERE number = ?", (number,)).fetchone()
            return rows.decode_record(text)

        return await self._reader.submit(work)

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SessionRecord]:
        return await self._reader.submit(
            lambda connection: rows.list_records(connection, limit=limit, before=before, archived=archived)
        )

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SearchResult]:
        def work(connection: sqlite3.Connection) -> Sequence[SearchResult]:
            return index.search(connection, query, limit=limit, before=before, archived=archived)

        try:
            return await self._reader.submit(work)
        except DamagedData:
            await self._writer.submit(index.mark_damaged)
            raise

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        return await self._reader.submit(
            lambda connection: read_usage(connection, session_id=session_id, since=since, until=until)
        )

    async def update(self, record: SessionRecord) -> None:
        def work(connection: sqlite3.Connection) -> None:
            index.set_name(connection, rows.update_record(connection, record), record.name)

        await self._writer.submit(work, synced=True)

    async def delete(self, session_id: str) -> None:
        position = str(self._position)

        def work(connection: sqlite3.Connection) -> None:
            number = session_number(connection, session_id)
            index.remove_session(connection, number)
            index.mark_purge_pending(connection)
            connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
            self._cursors.remove(session_id)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'position'", (position,))

        await self._writer.submit(work, synced=True, on_commit=lambda: self._publish_deletion(session_id))
        await self._replayer.submit(lambda _: self._log_reader.clear_cache())
        await self._purge()

    async def _purge(self) -> None:
        """Remove deleted content from the file, and truncate the file.

        Works step by step, so that writes of other sessions are not delayed.
        """
        done = await self._writer.submit(lambda connection: index.purge_step(connection, begin=True))
        while not done:
            done = await self._writer.submit(lambda connection: index.purge_step(connection, begin=False))
        await self._writer.vacuum()
        await self._writer.checkpoint()

    def _publish_deletion(self, session_id: str) -> None:
        self._recent.remove_session(session_id)
        self._pending_reads.clear()  # later reads must raise SessionNotFound
        self._notifier.notify(session_id)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        return await self._writer.submit(lambda connection: rows.claim_turn(connection, turn))

    async def release(self, turn: TurnRecord) -> None:
        await self._writer.submit(lambda connection: rows.release_turn(connection, turn), synced=True)

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        return await self._reader.submit(lambda connection: rows.find_turn(connection, session_id, turn_id))

    async def unfinished_turns(self) -> Sequence[TurnRecord]:
        return await self._reader.submit(rows.unfinished_turns)

    # --- the log ------------------------------------------------------------------------------------------------------

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        state: SessionState | None = None,
        journal: Sequence[JournalEntry] = (),
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        ts = rfc3339(self._clock.now())
        stored = encode_events(session_id, turn_id, events, seq=expected_seq, position=self._position, ts=ts)
        self._position += len(stored)  # a failed append leaves a gap

        def work(connection: sqlite3.Connection) -> Sequence[StoredEvent]:
            cursor = self._cursors.get(connection, session_id)
            rows.add_events(connection, cursor, turn_id, stored, expected_seq=expected_seq)
            add_usage(connection, cursor.number, stored)
            if state is not None:
                _apply_state(connection, cursor.number, state)
            if record is not None:
                index.set_name(connection, rows.update_record(connection, record), record.name)
            for entry in journal:
                rows.add_journal_entry(connection, cursor.number, entry)
            if stored[-1].terminal or len(cursor.fresh_positions) >= _MAX_FRESH_ROWS:
                rows.pack_fresh_rows(connection, cursor)
            return stored

        synced = bool(journal) or record is not None or any(event.type in SYNCED_EVENTS for event in events)
        try:
            return await self._writer.submit(work, synced=synced, on_commit=lambda: self._publish(session_id, stored))
        except SequenceConflict:  # another process wrote: the cache in memory is stale, so read the file's end
            _, position, _ = await self._reader.submit(_read_log_position)
            self._position = max(self._position, position)
            self._recent = RecentEvents(self._position)
            raise

    def _publish(self, session_id: str, stored: Sequence[StoredEvent]) -> None:
        if stored:
            self._recent.extend(stored)
            self._notifier.notify(session_id)

    async def last_seq(self, session_id: str) -> int:
        recent = self._recent.last_seq(session_id)
        if recent is not None:
            return recent

        return await self._reader.submit(
            lambda connection: last_seq(connection, session_number(connection, session_id))
        )

    async def last_position(self) -> int:
        return self._recent.last_position

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        recent = self._recent.session_events_after(session_id, after, limit)
        if recent is not None:
            return recent
        request = (session_id, after, limit)
        return await self._replay(request, lambda connection: rows.events_after(connection, session_id, after, limit))

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        recent = self._recent.all_events_after(after, limit)
        if recent is not None:
            return recent
        request = (None, after, limit)
        return await self._replay(request, lambda connection: self._log_reader.read_page(connection, after, limit))

    async def _replay(
        self, request: tuple[str | None, int, int], work: Callable[[sqlite3.Connection], Sequence[StoredEvent]]
    ) -> Sequence[StoredEvent]:
        """Return the result of `work`, shared by all callers with the same request until more is stored.

        The result may be megabytes. Two hundred readers that return at once to a log of 5,000 events cost 0.05 s
        together instead of 3.6.
        """
        key = (*request, self._recent.last_position)
        reading = self._pending_reads.get(key)
        if reading is None:
            reading = self._pending_reads[key] = self._replayer.submit(work)
            reading.add_done_callback(lambda _: self._pending_reads.pop(key, None))
        return await asyncio.shield(reading)

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        return self._notifier.subscribe(session_id, wakeup)

    # --- beside the log -----------------------------------------------------------------------------------------------

    async def add_journal_entry(self, entry: JournalEntry) -> JournalEntry:
        def work(connection: sqlite3.Connection) -> JournalEntry:
            return rows.add_journal_entry(connection, session_number(connection, entry.session_id), entry)

        return await self._writer.submit(work, synced=True)

    async def journal_entry(self, kind: JournalKind, key: str) -> JournalEntry | None:
        return await self._reader.submit(lambda connection: rows.find_journal_entry(connection, kind, key))

    async def turn_journal(self, session_id: str, turn_id: str) -> Sequence[JournalEntry]:
        return await self._reader.submit(lambda connection: rows.turn_journal(connection, session_id, turn_id))

    async def open_journal_entries(self, kind: JournalKind, closing: JournalKind) -> Sequence[JournalEntry]:
        return await self._reader.submit(lambda connection: rows.open_journal_entries(connection, kind, closing))

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        return await self._reader.submit(lambda connection: rows.read_compacted(connection, session_id))

    async def session_state(self, session_id: str) -> SessionState:
        return await self._reader.submit(lambda connection: rows.read_state(connection, session_id))

    async def check(self) -> None:
        self._check_ownership()
        await self._writer.check()

    async def aclose(self) -> None:
        self._reader.close()
        self._replayer.close()
        self._writer.close()
        self._owner.release()

    def _connect(self) -> sqlite3.Connection:
        return _connect(self._path)

    def _before_transaction(self, connection: sqlite3.Connection) -> None:
        """Check the ownership and the cursors before each transaction, on the writer's thread."""
        self._check_ownership()
        self._cursors.drop_if_stale(connection)

    def _check_ownership(self) -> None:
        """Raise `StoreError` if writes would be lost now, or mixed with those of another process."""
        self._owner.check()
        if not self._file_identity.is_unchanged():
            raise StoreError(
                f"the database {str(self._path)!r} was removed or replaced while it was in use: nothing more is stored;"
                " put it back and restart"
            )


def _apply_state(connection: sqlite3.Connection, number: int, state: SessionState) -> None:
    rows.apply_state(connection, number, state)
    index.add_texts(connection, number, searchable_texts(state.messages))
    if state.searchable_ids is not None:
        index.retain_messages(connection, number, state.searchable_ids)


def _prepare_file(path: Path, now: datetime) -> tuple[str, int, int]:
    """Create or check the file; return the result of `_read_log_position`. Raises `StoreError`."""
    with map_file_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_leftover_log(path) as log:
            if path.exists() and path.stat().st_size:
                with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
                    applied_migrations(connection)
                    damaged = log is not None and _keep_copy_if_damaged(
                        log, path, now
                    )  # while a connection is open SQLite does not delete the log
            else:
                damaged = log is not None and _keep_copy_if_damaged(log, path, now)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(_connect(path)) as connection:
            if damaged:
                connection.execute(
                    "PRAGMA wal_checkpoint(TRUNCATE)"
                ).fetchall()  # so that the next start does not report it again
            check_integrity(connection)
            migrate(connection, rfc3339(now))
            log = _read_log_position(connection)
            index.prepare_index(connection)
            index.finish_pending_purge(connection)
            return log


def _keep_copy_if_damaged(log: LeftoverLog, path: Path, now: datetime) -> bool:
    """Copy a damaged write-ahead log before SQLite deletes it, and log the loss; return True if it was damaged."""
    lost = log.lost_commits(path)
    if lost:
        copy_path = log.keep_copy(now)
        text = "write-ahead log damaged; data after the corruption is lost, and a copy of the log was kept"
        _log.error(text, transactions=lost, copy=str(copy_path))
    return lost > 0


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode_text
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only before the first table is created
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _decode_text(stored: bytes) -> str:
    """Return the text with U+FFFD for undecodable bytes, so that the rest of it, and of a list, can be read."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        _log.error("damaged text in the database; its undecodable bytes were replaced by U+FFFD", size=len(stored))
        return stored.decode(errors="replace")


def _read_log_position(connection: sqlite3.Connection) -> tuple[str, int, int]:
    """Return the log's id, its last position, and the largest span of positions of a segment.

    Raises `StoreError` if the file does not contain them.
    """
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if missing := sorted({"log_id", "position"} - meta.keys()):
        raise StoreError(f"it is damaged: its table meta has no {' and no '.join(missing)}; restore a copy of it")
    try:
        position = int(meta["position"])
    except ValueError as exc:
        raise StoreError("it is damaged: in its table meta, position is no number; restore a copy of it") from exc
    last, span = connection.execute(
        "SELECT coalesce(max(last_position), 0), coalesce(max(last_position - first_position), 0) FROM events"
    ).fetchone()
    (last_fresh,) = connection.execute("SELECT coalesce(max(position), 0) FROM fresh").fetchone()
    return meta["log_id"], max(last, last_fresh, position), span
