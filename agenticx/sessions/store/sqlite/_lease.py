"""Ownership of the sessions of a SQLite store, and the commits of their owners.

The file has one owner, so each session has at most one too: the last that claimed it in this process.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from agenticx.errors import SessionNotFound, StoreError
from agenticx.sessions.log.commit_records import commit_records
from agenticx.sessions.log.commits import Commit, LoadedSession, LogEnd
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent, encode_events, renumbered
from agenticx.sessions.log.records import SubagentFact
from agenticx.sessions.store.base import CommandHandler, Lease, NoOwner, OutcomeUnknown, OwnershipLost, check_turn
from agenticx.sessions.store.segments import CommitRow, encode_body
from agenticx.sessions.store.sqlite import _rows as rows
from agenticx.sessions.store.sqlite import _turns as turns
from agenticx.sessions.store.sqlite._cursors import (
    SessionCursor,
    SessionCursors,
    check_log_end,
    log_end,
    session_number,
)
from agenticx.sessions.store.sqlite._database import Database
from agenticx.sessions.store.sqlite._newest_commits import NewestCommits
from agenticx.sessions.store.sqlite._records import StoredHead, add_records
from agenticx.sessions.store.sqlite._threads import Job
from agenticx.sessions.store.sqlite._usage import add_usage

__all__ = ["SqliteOwnership"]

_PAGE_EVENTS = 1000


class SqliteOwnership:
    """The `Ownership` of one database. It has no other worker to send commands to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leases: dict[str, _SqliteLease] = {}

    @property
    def owned(self) -> int:
        """The number of sessions that have an owner."""
        return len(self._leases)

    async def claim(self, session_id: str) -> Lease:
        database = self._database

        def work(connection: sqlite3.Connection) -> LogEnd:
            database.check_ownership()
            number = session_number(connection, session_id)
            with suppress(DamagedData):  # the session can be deleted; `load` and `commit` raise it again
                return log_end(connection, number)
            return LogEnd(0, 0, "")

        self.remove(session_id)
        end = await database.writer.submit(work, outside_transaction=True)  # after all commits that were begun
        self.remove(session_id)
        lease = self._leases[session_id] = _SqliteLease(database, self, session_id, end)
        return lease

    def remove(self, session_id: str) -> None:
        """End the session's lease, if it has one."""
        earlier = self._leases.pop(session_id, None)
        if earlier is not None:
            earlier.lost.set()

    async def call(self, session_id: str, command: bytes) -> bytes:
        raise NoOwner(f"session {session_id!r} has no owner but this process")

    @asynccontextmanager
    async def serve(self, handler: CommandHandler) -> AsyncGenerator[None]:
        yield

    async def orphans(self, *, follow: bool = False) -> AsyncGenerator[str]:
        if follow:  # no other worker can leave one
            return
        for session_id in await self._database.reader.submit(rows.sessions_with_work):
            if session_id not in self._leases:
                yield session_id


class _SqliteLease:
    """The `Lease` of one session; it is lost once it is released or a newer lease is claimed.

    `_rev` and `_seq` are the end of the log as this lease has read or written it. The same commit id twice is one
    commit: the lease remembers the last id, and a pending commit is stored if the log has one with its id behind
    `_rev`.

    `_pending` is the commit of unknown outcome, with its events. `_last` is the id of the last stored commit, with
    the number before its first event.
    """

    def __init__(self, database: Database, ownership: SqliteOwnership, session_id: str, end: LogEnd) -> None:
        self.session_id = session_id
        self.lost = asyncio.Event()
        self._database = database
        self._ownership = ownership
        self._rev, self._seq = end.rev, end.last_seq
        self._pending: tuple[Commit, Sequence[StoredEvent]] | None = None
        self._last = ("", 0)

    async def check(self) -> None:
        self._check()

    async def load(self) -> LoadedSession:
        self._check()

        def work(connection: sqlite3.Connection) -> tuple[int, LoadedSession]:
            number = session_number(connection, self.session_id)
            end = log_end(connection, number)
            check_log_end(connection, number, end)
            running = turns.running_turn(connection, number)
            children = turns.open_children(connection, number)
            open_ids = [turn.id for turn in (running, *children) if turn is not None]
            facts, damaged = rows.open_facts(connection, number, open_ids)
            return end.rev, LoadedSession(
                record=rows.read_record(connection, number),
                state=rows.read_state(connection, self.session_id),
                last_seq=end.last_seq,
                main_turn=running,
                child_turns=children,
                open_facts=facts,
                subagent_facts=rows.find_facts(connection, number, (SubagentFact,)),
                damaged_facts=tuple(damaged),
            )

        rev, loaded = await self._database.reader.submit(work)
        if self._pending is None:
            self._rev, self._seq = rev, loaded.last_seq
        return loaded

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        self._check()
        pending, (last_id, after) = self._pending, self._last
        if pending is not None:
            return await self._repeat(pending, commit)
        return await self._events_after(after) if last_id == commit.id else await self._write(commit)

    async def _repeat(self, pending: tuple[Commit, Sequence[StoredEvent]], commit: Commit) -> Sequence[StoredEvent]:
        """Store the commit of unknown outcome unless it is stored; raise `OutcomeUnknown` for any other one."""
        if pending[0].id != commit.id:
            raise OutcomeUnknown("an earlier write of the session has an unknown outcome")
        try:
            return await self._write(commit)
        except (OwnershipLost, SessionNotFound, DamagedData, OutcomeUnknown):
            raise
        except StoreError as exc:  # of this attempt: an earlier one may have stored the commit
            self._pending = pending
            raise OutcomeUnknown(str(exc)) from exc

    async def _write(self, commit: Commit) -> Sequence[StoredEvent]:
        """Store the commit, or the pending one unless it is stored."""
        database = self._database
        if self._pending is None:
            events = encode_events(
                self.session_id,
                commit.turn_id,
                commit.events,
                seq=self._seq,
                position=database.position,
                ts=database.timestamp(),
            )
        else:  # others were committed since
            commit, events = self._pending
            events = renumbered(events, database.position)
        database.position += max(len(events), 1)  # a failed commit leaves a gap
        self._pending = commit, events
        job = _CommitJob(
            lease=self,
            cursors=database.cursors,
            newest=database.newest_commits,
            commit=commit,
            stored=events,
            rev=self._rev,
            seq=self._seq,
            position=database.position,
            synced=commit.sync,
            on_commit=database.recent.publish,
        )
        try:
            await database.writer.put(job)
        except OutcomeUnknown:
            raise
        except OwnershipLost:
            if not self.lost.is_set():  # another process wrote
                self._ownership.remove(self.session_id)
                await database.refresh(self.session_id)
            raise
        except Exception:
            self._pending = None
            raise
        if not commit.events:  # those with events publish them
            database.recent.last_position = max(database.recent.last_position, job.position)
        self._pending, self._last = None, (commit.id, self._seq)
        self._rev += 1
        self._seq += len(job.stored)
        return job.stored

    async def _events_after(self, after: int) -> Sequence[StoredEvent]:
        return await self._database.reader.submit(lambda connection: _read_events(connection, self.session_id, after))

    async def release(self, *, work_left: bool = False) -> None:
        if not self.lost.is_set():
            self._ownership.remove(self.session_id)

    def _check(self) -> None:
        if self.lost.is_set():
            raise OwnershipLost(f"session {self.session_id!r} has another owner")


@dataclass(kw_only=True, slots=True, eq=False)
class _CommitJob(Job[Sequence[StoredEvent]]):
    """A commit of a lease; all earlier commits are stored, up to the commit `rev` and the event `seq`.

    `stored` has the events as they are stored, the last event at `position`. The result has the events that are not
    published yet.
    """

    lease: Lease
    cursors: SessionCursors
    newest: NewestCommits
    commit: Commit
    stored: Sequence[StoredEvent]
    rev: int
    seq: int
    position: int

    def run(self, connection: sqlite3.Connection) -> Sequence[StoredEvent]:
        """Store the commit unless it is stored: all that follows `rev` can only be this commit."""
        lease = self.lease
        if lease.lost.is_set():  # in the meantime
            raise OwnershipLost(f"session {lease.session_id!r} has another owner")
        cursor = self.cursors.get(connection, lease.session_id)
        if cursor.rev == self.rev:
            row = _store(connection, cursor, self.commit, self.stored, self.position)
            self.newest.add(row, ends_turn=_ends_turn(self.commit, self.stored))
            return self.stored
        if self.find(connection) is None:
            raise OwnershipLost(f"session {lease.session_id!r} is at commit {cursor.rev}, not at {self.rev}")
        return ()  # published when it was found

    def find(self, connection: sqlite3.Connection) -> Sequence[StoredEvent] | None:
        """Return the events as they are stored if the commit is the last of its session; None if not."""
        cursor = self.cursors.get(connection, self.lease.session_id)
        if (cursor.rev, cursor.commit_id) != (self.rev + 1, self.commit.id):
            return None
        self.newest.write(connection)
        self.stored = _read_events(connection, self.lease.session_id, self.seq)
        return self.stored


def _store(
    connection: sqlite3.Connection,
    cursor: SessionCursor,
    commit: Commit,
    stored: Sequence[StoredEvent],
    position: int,
) -> CommitRow:
    """Write all of a commit except its own row, and return that row; raise `TurnEnded` before anything is written."""
    check_turn(commit, cursor.open_turns, lambda turn_id: turns.is_known(connection, turn_id))
    number, head = cursor.number, StoredHead(connection, cursor.number)
    before, after = commit_records(commit, head, rev=cursor.rev + 1, seq=cursor.last_seq)
    add_records(connection, number, before)
    if commit.begins is not None:
        cursor.open_turns.add(commit.begins.id)
    if stored:
        if stored[-1].terminal and commit.turn_id is not None:
            turns.end_turn(connection, number, commit.turn_id)
            cursor.open_turns.discard(commit.turn_id)
        add_usage(connection, number, stored)
    add_records(connection, number, after)
    cursor.rev, cursor.commit_id = cursor.rev + 1, commit.id
    if stored:
        cursor.last_seq = stored[-1].seq
    return CommitRow(position, number, cursor.rev, commit.id, cursor.last_seq, encode_body(stored))


def _ends_turn(commit: Commit, stored: Sequence[StoredEvent]) -> bool:
    return commit.turn_id is not None and bool(stored) and stored[-1].terminal


def _read_events(connection: sqlite3.Connection, session_id: str, after: int) -> Sequence[StoredEvent]:
    """Return all events of the session after that number."""
    found: list[StoredEvent] = []
    while page := rows.events_after(connection, session_id, after + len(found), _PAGE_EVENTS):
        found += page
    return found
