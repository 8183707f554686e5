"""The store in one SQLite file: one thread writes in groups, readers at the end of the log need no disk.

1. What `append` is given from all sessions while a commit runs is committed together by the next one (group commit).
2. A commit that holds an event of `DURABLE` or a journal entry is synced to the disk (synchronous=FULL). One of tokens
   alone is not: it survives the death of the process, and a power cut may take the last of them.
3. The file has one owner: a second process is refused and told who the first is (`owner`).
4. Events are read from the disk in a thread of their own: whoever asks for a session does not wait for a replay.
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
from agenticx.sessions.base import (
    DURABLE,
    Archived,
    Found,
    JournalKind,
    Journalled,
    Keepsake,
    SequenceConflict,
    SessionRecord,
    StoredEvent,
    TurnRecord,
    encode_events,
)
from agenticx.sessions.bell import Notifier
from agenticx.sessions.damage import Damaged
from agenticx.sessions.search import Said, said_in
from agenticx.sessions.sqlite import _rows as rows
from agenticx.sessions.sqlite import _search as index
from agenticx.sessions.sqlite._file import (
    Identity,
    check_integrity,
    naming,
    read_only_uri,
    refuse_what_is_no_database,
)
from agenticx.sessions.sqlite._heads import Heads, last_seq, session_number
from agenticx.sessions.sqlite._replay import Replay
from agenticx.sessions.sqlite._tails import Tails
from agenticx.sessions.sqlite._threads import Reader, Writer
from agenticx.sessions.sqlite._usage import add_usage, spent
from agenticx.sessions.sqlite._wal import LeftLog, left_log
from agenticx.sessions.sqlite.migrations import check, migrate
from agenticx.sessions.sqlite.owner import Owner
from agenticx.sessions.usage import Spent

__all__ = ["SqliteStore"]

_BUSY_SECONDS = 5.0
_FRESH_ROWS = 256
_CHECKPOINT_PAGES = 4000
"""A checkpoint syncs twice, so it is not to come often: the write-ahead log grows to about 16 MB in between."""


_log = get_logger(__name__)


class SqliteStore:
    """`Store` in the file `path`, which is made if there is none and belongs to this object until `aclose`.

    Raises `OwnedElsewhere` while another process has it, and `StoreError` for a file that cannot be used.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        path = self._path = path.resolve()
        refuse_what_is_no_database(path)
        self._owner = Owner(path)
        try:
            self._log_id, self._position, reach = _prepared(path, self._clock.now())
        except BaseException:
            self._owner.release()
            raise
        self._bell = Notifier()
        self._tails = Tails(self._position)
        self._file = Identity(path)
        self._heads = Heads()  # the writer's
        self._writer = Writer(self._connect, "agx store writer", self._begin)
        self._reader = Reader(self._connect, "agx store reader")
        self._replayer = Reader(self._connect, "agx store replayer")
        self._log_of_all = Replay(reach)  # the replayer's
        self._replaying: dict[tuple[str | None, int, int, int], asyncio.Future[Sequence[StoredEvent]]] = {}

    @property
    def outlives_the_process(self) -> bool:
        return True

    @property
    def log_id(self) -> str:
        return self._log_id

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        record: SessionRecord,
        *,
        past: Sequence[StoredEvent] = (),
        said: Sequence[Said] = (),
        kept: Keepsake | None = None,
    ) -> None:
        events = [event._replace(position=self._position + place) for place, event in enumerate(past, 1)]
        self._position += len(events)

        def work(connection: sqlite3.Connection) -> None:
            number = rows.add_session(connection, record)
            index.add_name(connection, number, record.name)
            rows.add_past(connection, number, events)
            index.add_said(connection, number, said)
            if kept is not None:
                _keep(connection, number, kept)

        await self._writer.do(work, durable=True, committed=lambda: self._tell(record.id, events))

    async def get(self, session_id: str) -> SessionRecord:
        def work(connection: sqlite3.Connection) -> SessionRecord:
            number = session_number(connection, session_id)
            (text,) = connection.execute("SELECT record FROM sessions WHERE number = ?", (number,)).fetchone()
            return rows.record_of(text)

        return await self._reader.do(work)

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[SessionRecord]:
        return await self._reader.do(
            lambda connection: rows.records(connection, limit=limit, before=before, archived=archived)
        )

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[Found]:
        def work(connection: sqlite3.Connection) -> Sequence[Found]:
            return index.search(connection, query, limit=limit, before=before, archived=archived)

        try:
            return await self._reader.do(work)
        except Damaged:
            await self._writer.do(index.must_be_made_anew)
            raise

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[Spent]:
        return await self._reader.do(
            lambda connection: spent(connection, session_id=session_id, since=since, until=until)
        )

    async def update(self, record: SessionRecord) -> None:
        def work(connection: sqlite3.Connection) -> None:
            index.add_name(connection, rows.update_record(connection, record), record.name)

        await self._writer.do(work, durable=True)

    async def delete(self, session_id: str) -> None:
        position = str(self._position)

        def work(connection: sqlite3.Connection) -> None:
            number = session_number(connection, session_id)
            index.forget_session(connection, number)
            index.must_purge(connection)
            connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
            self._heads.forget(session_id)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'position'", (position,))

        await self._writer.do(work, durable=True, committed=lambda: self._forget(session_id))
        await self._replayer.do(lambda _: self._log_of_all.forget())
        await self._purge()

    async def _purge(self) -> None:
        """Leave nothing of what was deleted in the file, nor the room it took.

        Step by step, so that other sessions are not held up.
        """
        done = await self._writer.do(lambda connection: index.purge(connection, begin=True))
        while not done:
            done = await self._writer.do(lambda connection: index.purge(connection, begin=False))
        await self._writer.give_room_back()
        await self._writer.settle()

    def _forget(self, session_id: str) -> None:
        self._tails.delete(session_id)
        self._replaying.clear()  # whoever asks from now on is told that it is gone
        self._bell.notify(session_id)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        return await self._writer.do(lambda connection: rows.claim(connection, turn))

    async def release(self, turn: TurnRecord) -> None:
        await self._writer.do(lambda connection: rows.release(connection, turn), durable=True)

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        return await self._reader.do(lambda connection: rows.turn_of(connection, session_id, turn_id))

    async def unfinished(self) -> Sequence[TurnRecord]:
        return await self._reader.do(rows.unfinished)

    # --- the log ------------------------------------------------------------------------------------------------------

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        kept: Keepsake | None = None,
        journal: Sequence[Journalled] = (),
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        ts = rfc3339(self._clock.now())
        stored = encode_events(session_id, turn_id, events, seq=expected_seq, position=self._position, ts=ts)
        self._position += len(stored)  # behind a failed append stays a gap

        def work(connection: sqlite3.Connection) -> Sequence[StoredEvent]:
            head = self._heads.of(connection, session_id)
            rows.add_events(connection, head, turn_id, stored, expected_seq=expected_seq)
            add_usage(connection, head.number, stored)
            if kept is not None:
                _keep(connection, head.number, kept)
            if record is not None:
                index.add_name(connection, rows.update_record(connection, record), record.name)
            for entry in journal:
                rows.add_journal(connection, head.number, entry)
            if stored[-1].terminal or len(head.fresh) >= _FRESH_ROWS:
                rows.pack_fresh(connection, head)
            return stored

        durable = bool(journal) or record is not None or any(event.type in DURABLE for event in events)
        try:
            return await self._writer.do(work, durable=durable, committed=lambda: self._tell(session_id, stored))
        except SequenceConflict:  # what is in memory may be behind the file: from now on that is asked
            _, position, _ = await self._reader.do(_log_of)
            self._position = max(self._position, position)
            self._tails = Tails(self._position)
            raise

    def _tell(self, session_id: str, stored: Sequence[StoredEvent]) -> None:
        if stored:
            self._tails.extend(stored)
            self._bell.notify(session_id)

    async def last_seq(self, session_id: str) -> int:
        known = self._tails.last_seq(session_id)
        if known is not None:
            return known

        return await self._reader.do(lambda connection: last_seq(connection, session_number(connection, session_id)))

    async def last_position(self) -> int:
        return self._tails.last_position

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        known = self._tails.after(session_id, after, limit)
        if known is not None:
            return known
        wanted = (session_id, after, limit)
        return await self._replay(wanted, lambda connection: rows.events_after(connection, session_id, after, limit))

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        known = self._tails.of_all_after(after, limit)
        if known is not None:
            return known
        wanted = (None, after, limit)
        return await self._replay(wanted, lambda connection: self._log_of_all.page(connection, after, limit))

    async def _replay(
        self, wanted: tuple[str | None, int, int], work: Callable[[sqlite3.Connection], Sequence[StoredEvent]]
    ) -> Sequence[StoredEvent]:
        """What is `wanted`, read once for all who want it before anything more is stored: it may weigh megabytes.

        Two hundred readers that come back at once to a log of 5,000 events cost 0.05 s together instead of 3.6.
        """
        key = (*wanted, self._tails.last_position)
        reading = self._replaying.get(key)
        if reading is None:
            reading = self._replaying[key] = self._replayer.do(work)
            reading.add_done_callback(lambda _: self._replaying.pop(key, None))
        return await asyncio.shield(reading)

    def subscribe(self, session_id: str | None, news: asyncio.Event) -> AbstractContextManager[None]:
        return self._bell.subscribe(session_id, news)

    # --- beside the log -----------------------------------------------------------------------------------------------

    async def journal(self, entry: Journalled) -> Journalled:
        def work(connection: sqlite3.Connection) -> Journalled:
            return rows.add_journal(connection, session_number(connection, entry.session_id), entry)

        return await self._writer.do(work, durable=True)

    async def journalled(self, kind: JournalKind, key: str) -> Journalled | None:
        return await self._reader.do(lambda connection: rows.journalled(connection, kind, key))

    async def journal_of(self, session_id: str, turn_id: str) -> Sequence[Journalled]:
        return await self._reader.do(lambda connection: rows.journal_of(connection, session_id, turn_id))

    async def journal_open(self, kind: JournalKind, closing: JournalKind) -> Sequence[Journalled]:
        return await self._reader.do(lambda connection: rows.journal_open(connection, kind, closing))

    async def compacted(self, session_id: str) -> Sequence[Message]:
        return await self._reader.do(lambda connection: rows.compacted(connection, session_id))

    async def keepsake(self, session_id: str) -> Keepsake:
        return await self._reader.do(lambda connection: rows.keepsake(connection, session_id))

    async def check(self) -> None:
        self._check_ours()
        await self._writer.check()

    async def aclose(self) -> None:
        self._reader.close()
        self._replayer.close()
        self._writer.close()
        self._owner.release()

    def _connect(self) -> sqlite3.Connection:
        return _connect(self._path)

    def _begin(self, connection: sqlite3.Connection) -> None:
        """What precedes each transaction, on the writer's thread."""
        self._check_ours()
        self._heads.begin(connection)

    def _check_ours(self) -> None:
        """Raise `StoreError` if what is written now would be lost, or mixed with what another process writes."""
        self._owner.check()
        if not self._file.holds():
            raise StoreError(
                f"the database {str(self._path)!r} was removed or replaced while it was in use: nothing more is stored;"
                " put it back and restart"
            )


def _keep(connection: sqlite3.Connection, number: int, kept: Keepsake) -> None:
    rows.keep(connection, number, kept)
    index.add_said(connection, number, said_in(kept.messages))
    if kept.findable is not None:
        index.forget_all_but(connection, number, kept.findable)


def _prepared(path: Path, now: datetime) -> tuple[str, int, int]:
    """Make or check the file; returns what `_log_of` finds. Raises `StoreError`."""
    with naming(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with left_log(path) as log:
            if path.exists() and path.stat().st_size:
                with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
                    check(connection)
                    damaged = log is not None and _put_aside_if_damaged(log, path, now)  # open, it is not deleted
            else:
                damaged = log is not None and _put_aside_if_damaged(log, path, now)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(_connect(path)) as connection:
            if damaged:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # so that it is told once
            check_integrity(connection)
            migrate(connection, rfc3339(now))
            log = _log_of(connection)
            index.make_index(connection)
            index.purge_left_over(connection)
            return log


def _put_aside_if_damaged(log: LeftLog, path: Path, now: datetime) -> bool:
    """Tell of what SQLite leaves unread of a damaged write-ahead log, and keep that before SQLite deletes it."""
    lost = log.lost_commits(path)
    if lost:
        kept = log.keep_copy(now)
        text = (
            "the write-ahead log is damaged; what stood behind the damage is lost, and the log was put aside as it is"
        )
        _log.error(text, transactions=lost, kept=str(kept))
    return lost > 0


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = _text
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # it can only be chosen before there is a table
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _text(stored: bytes) -> str:
    """One damaged byte keeps nobody from the rest of a text, or of a list of them."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        _log.error("a text in the database is damaged; its unreadable bytes stand as U+FFFD", size=len(stored))
        return stored.decode(errors="replace")


def _log_of(connection: sqlite3.Connection) -> tuple[str, int, int]:
    """The log's name, its last position, and over how many positions a row of it reaches at most.

    Raises `StoreError` where the file does not say.
    """
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if missing := sorted({"log_id", "position"} - meta.keys()):
        raise StoreError(f"it is damaged: its table meta has no {' and no '.join(missing)}; restore a copy of it")
    try:
        position = int(meta["position"])
    except ValueError as exc:
        raise StoreError("it is damaged: in its table meta, position is no number; restore a copy of it") from exc
    last, reach = connection.execute(
        "SELECT coalesce(max(last_position), 0), coalesce(max(last_position - first_position), 0) FROM events"
    ).fetchone()
    (last_fresh,) = connection.execute("SELECT coalesce(max(position), 0) FROM fresh").fetchone()
    return meta["log_id"], max(last, last_fresh, position), reach
