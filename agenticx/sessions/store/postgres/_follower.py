"""The newest events of sessions for the readers of this worker, including sessions of other workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.store.notify import Notifier
from agenticx.sessions.store.postgres._announcer import Announcer, channel_of
from agenticx.sessions.store.postgres._connection import (
    INDEX_SCANS,
    PostgresConnection,
    Row,
    Server,
    end_connection,
    map_errors,
)
from agenticx.sessions.store.postgres._rows import decode_commit
from agenticx.sessions.store.postgres._text import from_text, to_text
from agenticx.sessions.store.postgres._worker import COMMITS, Worker
from agenticx.sessions.store.recent_events import SessionTails

__all__ = ["Follower"]

_POLL_SECONDS = 0.025
_COMPARE_SECONDS = 1.0
_FETCH_SECONDS = 20.0
_READ_SECONDS = 0.015  # from one query for new commits of all workers to the next

_log = get_logger(__name__)

_HEADS = """SELECT sessions.number, sessions.id, coalesce(head.rev, 0), coalesce(head.last_seq, 0)
            FROM sessions LEFT JOIN LATERAL (SELECT rev, last_seq FROM commits WHERE session = sessions.number
                                             ORDER BY rev DESC LIMIT 1) AS head ON true
            WHERE id = ANY ($1::text[])"""
_NEW = """SELECT given.session, commits.rev, commits.last_seq, commits.position, commits.body
          FROM unnest($1::bigint[], $2::bigint[]) AS given (session, after)
          CROSS JOIN LATERAL (SELECT last_seq, position, body, rev FROM commits
                              WHERE commits.session = given.session AND commits.rev > given.after
                              ORDER BY rev LIMIT 512) AS commits
          ORDER BY given.session, commits.rev"""


class Follower:
    """The newest events of the sessions that are written or followed here, and their readers.

    A session is followed while somebody subscribes to it; one that is owned here is told by its lease.
    """

    def __init__(self, server: Server, worker: Worker, announcer: Announcer) -> None:
        self.notifier = Notifier()
        self.tails = SessionTails()
        self._server = server
        self._announcer = announcer
        self._readers = Counter[str | None]()
        self._owned = set[str]()
        self._numbers = dict[str, int]()  # of the followed sessions that are found
        self._ids = dict[int, str]()
        self._revs = dict[str, int]()  # the last commit of each that was read
        self._seqs = dict[str, int]()  # its last event
        self._new = set[str]()
        self._wakeup = asyncio.Event()
        self._changed = set[int]()
        self._behind_since: float | None = None  # something is known to be unread since then
        self._compares_now = False  # as notifications may be lost
        self._follows_all = False  # the other workers were asked to tell of all sessions
        self._connection: PostgresConnection | None = None
        self._task: asyncio.Task[None] | None = None
        worker.handle(COMMITS, self._on_notification)
        worker.handle(channel_of(worker.id), self._on_notification)
        worker.on_listening.append(self._look)

    def start(self) -> None:
        """Begin the task that follows sessions; call it once the worker is registered."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="agx store follower")

    async def close(self) -> None:
        """End the task and the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await end_connection(self._connection)

    # --- sessions that are owned here ---------------------------------------------------------------------------------

    def own(self, session_id: str) -> None:
        """Take nothing of the session from others any more: it is written here."""
        self._owned.add(session_id)
        self._forget(session_id)

    def disown(self, session_id: str) -> None:
        """Follow the session from now on, as others may write it."""
        self._owned.discard(session_id)
        self._forget(session_id)
        if self._readers[session_id]:
            self._new.add(session_id)
            self._wakeup.set()

    def publish(self, events: Sequence[StoredEvent]) -> None:
        """Add the events of a commit that was made here, and notify their readers."""
        if not events:
            return
        session_id = events[0].session_id
        if session_id in self._owned:
            self._add(session_id, events)
        self.notifier.notify(session_id)

    def removed(self, session_id: str) -> None:
        """Forget a session that was deleted, and notify its readers."""
        self._owned.discard(session_id)
        self._forget(session_id)
        self.notifier.notify(session_id)

    @property
    def lag_seconds(self) -> float:
        """The time since which a known commit of another worker has not been read, 0 if all are read."""
        since = self._behind_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    # --- reading ------------------------------------------------------------------------------------------------------

    def after(self, session_id: str, seq: int, limit: int) -> Sequence[StoredEvent] | None:
        """Return up to `limit` events after `seq` from memory; None if the caller must read the database."""
        if session_id in self._owned or session_id in self._seqs:
            return self.tails.after(session_id, seq, limit)
        return None

    def last_event(self, session_id: str) -> StoredEvent | None:
        """Return the session's last event if this worker owns the session and has the event in memory, else None."""
        return self.tails.last(session_id) if session_id in self._owned else None

    @contextmanager
    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> Generator[None]:
        """Set `wakeup` after new events of the session (None: of any), written here or elsewhere."""
        self._readers[session_id] += 1
        if session_id is not None and session_id not in self._owned and session_id not in self._seqs:
            self._new.add(session_id)
        self._wakeup.set()
        try:
            with self.notifier.subscribe(session_id, wakeup):
                yield
        finally:
            self._readers[session_id] -= 1
            if not self._readers[session_id]:
                del self._readers[session_id]
                if session_id is not None and session_id not in self._owned:
                    self._forget(session_id)

    def _add(self, session_id: str, events: Sequence[StoredEvent]) -> None:
        last = self.tails.last(session_id)
        if last is not None and events[0].seq != last.seq + 1:
            self.tails.evict(session_id)
        self.tails.add(events)

    def _forget(self, session_id: str) -> None:
        self._new.discard(session_id)
        self._revs.pop(session_id, None)
        self._seqs.pop(session_id, None)
        number = self._numbers.pop(session_id, None)
        if number is not None:
            self._ids.pop(number, None)
        self.tails.evict(session_id)

    def _on_notification(self, payload: str) -> None:
        """Another worker has stored commits: `number:seq` for each session."""
        for each in payload.split(","):
            number, _, seq = each.partition(":")
            session_id = self._ids.get(int(number))
            if session_id is not None and int(seq) > self._seqs[session_id]:
                self._changed.add(int(number))
                self._set_behind(asyncio.get_running_loop().time())
                self._wakeup.set()
        if None in self._readers:
            self.notifier.notify_of_any()

    def _look(self) -> None:
        """Compare all that is followed now."""
        self._compares_now = True
        self._wakeup.set()

    def _set_behind(self, since: float) -> None:
        if self._behind_since is None:
            self._behind_since = since

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        compared = read = loop.time()
        while True:
            due = compared + (_POLL_SECONDS if self._server.is_pooled else _COMPARE_SECONDS)
            has_readers = bool(self._readers)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due if has_readers else None):
                    await self._wakeup.wait()
                    await asyncio.sleep(read + _READ_SECONDS - loop.time())
            self._wakeup.clear()
            begun = read = loop.time()
            compares, self._compares_now = has_readers and (begun >= due or self._compares_now), False
            if compares or not has_readers:
                compared = begun
            try:
                await self._find_new()
                changed, self._changed = self._changed, set[int]()
                await self._read_new([*self._ids] if compares else changed)
                if compares:
                    await self._find_removed()
                    await self._ask_for(self._ids)
                elif None in self._readers and not self._follows_all:
                    await self._ask_for(())
                self._behind_since = begun if self._changed else None
            except StoreError as exc:
                self._set_behind(begun)
                _log.warning("sessions of other workers could not be followed", error=str(exc))

    async def _ask_for(self, sessions: Collection[int]) -> None:
        """Ask the owners of these sessions to notify of commits; ask all owners if all sessions have a reader."""
        self._follows_all = None in self._readers
        await self._announcer.follow(sessions, all_sessions=self._follows_all)

    async def _read_new(self, numbers: Iterable[int]) -> None:
        """Read the new events of these sessions, and notify their readers."""
        known = {number: self._revs[self._ids[number]] for number in numbers if number in self._ids}
        rows = await self._fetch_new(known) if known else ()
        for number, rev, last_seq, position, body in rows:
            session_id = self._ids.get(number)
            if session_id is None or rev <= self._revs[session_id]:  # not followed any more, or followed anew
                continue
            after, self._revs[session_id] = self._seqs[session_id], rev
            if last_seq == after:  # it has no events
                continue
            try:
                events = decode_commit(session_id, last_seq, position, body, after=after)
            except DamagedData as exc:
                _log.error("corrupt row skipped", error=str(exc))
                continue
            self._seqs[session_id] = last_seq
            if events and events[0].seq == after + 1:
                self._add(session_id, events)
            else:  # the events between are in segments already; readers find them there
                self.tails.evict(session_id)
            self.notifier.notify(session_id)

    async def _fetch_new(self, after: Mapping[int, int]) -> list[Row]:
        """Return the commits of these sessions after the given ones, on a connection of its own but for a pooler."""
        columns = list(after), list(after.values())
        if self._server.is_pooled:
            return await self._server.fetch(_NEW, *columns)

        async def attempt() -> list[Row]:
            connection = self._connection
            if connection is None or connection.is_closed():
                connection = self._connection = await self._server.connect(INDEX_SCANS)
            try:
                async with map_errors(self._server.name):
                    return await connection.fetch(_NEW, *columns, timeout=_FETCH_SECONDS)
            except BaseException:
                connection.terminate()
                raise

        return await self._server.retry(attempt)

    async def _find_removed(self) -> None:
        """Notify the readers of followed sessions that were deleted, and the readers of all sessions."""
        if None in self._readers:
            self.notifier.notify_of_any()
        if not self._ids:
            return
        rows = await self._server.fetch(
            "SELECT number FROM sessions WHERE number = ANY ($1::bigint[]) AND id IS NOT NULL", [*self._ids]
        )
        for number in self._ids.keys() - {number for (number,) in rows}:
            session_id = self._ids[number]
            self._forget(session_id)
            self.notifier.notify(session_id)

    async def _find_new(self) -> None:
        """Begin with the sessions that have new readers: from their last event on."""
        if not self._new:
            return
        new, self._new = self._new, set[str]()
        try:
            rows = await self._server.fetch(_HEADS, [to_text(id_) for id_ in new])
        except StoreError:
            self._new |= new
            raise
        for number, stored_id, rev, seq in rows:
            session_id = from_text(stored_id)
            if session_id not in self._owned and self._readers[session_id]:
                self._numbers[session_id], self._ids[number] = number, session_id
                self._revs[session_id], self._seqs[session_id] = rev, seq
        for session_id in new:
            self.notifier.notify(session_id)  # what was stored before
        await self._ask_for([self._numbers[session_id] for session_id in new if session_id in self._numbers])
