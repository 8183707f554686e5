"""Leases of sessions, and the commits of their owners."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.runtime.events import EventType
from agenticx.sessions.log.commit_records import commit_records
from agenticx.sessions.log.commits import Commit, LoadedSession, LogEnd
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.store.base import OutcomeUnknown, OwnershipLost, check_turn
from agenticx.sessions.store.postgres import _rows as rows
from agenticx.sessions.store.postgres._changes import Changes, LogHead, changes_of
from agenticx.sessions.store.postgres._connection import PostgresConnection
from agenticx.sessions.store.postgres._database import PostgresDatabase
from agenticx.sessions.store.postgres._packing import PACKED_COMMITS, Packer
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._writer import CommitJob
from agenticx.threads import run_sized

__all__ = ["Leases", "PostgresLease"]

_log = get_logger(__name__)


class Leases:
    """The leases of this worker, one for each session that it owns."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._leases: dict[str, PostgresLease] = {}
        database.worker.on_check.append(self._find_lost)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._leases

    def get(self, session_id: str) -> PostgresLease | None:
        """Return the session's lease, None if this worker has none."""
        return self._leases.get(session_id)

    def add(self, lease: PostgresLease) -> None:
        """Take a lease into account that this worker has claimed; an earlier one of the session is lost."""
        self.remove(lease.session_id)
        self._leases[lease.session_id] = lease
        self._database.follower.own(lease.session_id)
        self._database.announcer.own(lease.number)

    def remove(self, session_id: str) -> None:
        """End the session's lease, if it has one."""
        lease = self._leases.pop(session_id, None)
        if lease is not None:
            lease.lost.set()
            self._database.announcer.disown(lease.number)
            self._database.follower.disown(session_id)

    async def _find_lost(self) -> None:
        """End the leases of sessions that other workers have claimed."""
        leases = {lease.number: lease for lease in self._leases.values()}
        found = await self._database.server.fetch(
            """SELECT given.session FROM unnest($1::bigint[], $2::bigint[]) AS given (session, epoch)
               LEFT JOIN fences USING (session) WHERE fences.epoch IS DISTINCT FROM given.epoch""",
            *([*leases], [lease.epoch for lease in leases.values()]),
        )
        for (number,) in found:
            lease = leases[number]
            if self._leases.get(lease.session_id) is lease:
                self.remove(lease.session_id)


class PostgresLease:
    """The `Lease` of one session: the right to write it under one epoch.

    `_head`, `_rev` and `_seq` are the end of the log as this lease has read or written it, and None before. The same
    commit id twice is one commit: the lease remembers the last id, and the server looks up a commit of unknown outcome.
    """

    def __init__(self, database: PostgresDatabase, leases: Leases, session_id: str, number: int, epoch: int) -> None:
        self.session_id = session_id
        self.number = number
        self.epoch = epoch
        self.lost = asyncio.Event()
        self._database = database
        self._leases = leases
        self._head: LogHead | None = None
        self._rev = self._seq = 0
        self._packer = Packer(database.server, session_id, number, epoch)
        self._unpacked = 0  # the commits since the last packing began
        self._had_unknown_outcome = False
        self._packing: asyncio.Task[None] | None = None
        self._pending: CommitJob | None = None
        self._last: tuple[str, Sequence[StoredEvent]] = ("", ())

    async def check(self) -> None:
        self._check()
        found = await self._database.server.fetch(
            "SELECT FROM fences WHERE session = $1 AND epoch = $2", self.number, self.epoch
        )
        if not found:
            self._lose()
        self._check()

    async def load(self) -> LoadedSession:
        self._check()

        async def work(connection: PostgresConnection) -> tuple[LogEnd, LogHead, LoadedSession]:
            await rows.session_number(connection, self.session_id)
            return await rows.load_session(connection, self.session_id, self.number)

        end, head, loaded = await self._database.server.use(work, is_snapshot=True)
        if self._pending is None:
            self._rev, self._seq, self._head = end.rev, end.last_seq, head
        return loaded

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        self._check()
        job = self._pending
        if job is None:
            last_id, last_events = self._last
            if last_id == commit.id:
                return last_events
            if self._head is None:
                await self.load()
                self._check()
            job = self._job(commit)
            if job.records or any(event.terminal or event.type is EventType.USAGE for event in commit.events):
                job.changes = await self._changes(job)
        elif job.commit.id == commit.id:
            job = replace(job, outcome_unknown=True)
        else:
            raise OutcomeUnknown("an earlier write of the session has an unknown outcome")
        self._pending = job
        try:
            await self._database.writer.put(job)
        except OwnershipLost:
            self._lose()
            raise OwnershipLost(f"session {self.session_id!r} has another owner") from None
        except OutcomeUnknown:
            raise
        except (StoreError, TypeError, ValueError) as exc:
            if job.outcome_unknown:  # an earlier attempt may have stored it
                raise OutcomeUnknown(str(exc)) from exc
            self._pending = None
            raise
        finally:
            self._had_unknown_outcome |= job.outcome_unknown
        return self._stored(job)

    def _job(self, commit: Commit) -> CommitJob:
        """Return the job for a commit; all earlier commits of the session must be stored."""
        head = self._head
        assert head is not None
        check_turn(commit, head.open_turns, head.turns.__contains__)
        rev = self._rev + 1
        before, after = commit_records(commit, head, rev=rev, seq=self._seq)
        records = (*before, *after)
        return CommitJob(self.session_id, self.number, self.epoch, rev, self._seq, commit, to_text(commit.id), records)

    async def _changes(self, job: CommitJob) -> Changes | None:
        commit, events = job.commit, job.encode(self._database.timestamp())
        messages = () if commit.state is None else commit.state.messages
        return await run_sized(
            partial(
                changes_of,
                self.number,
                job.records,
                events,
                ended_turn=commit.turn_id if events and events[-1].terminal else None,
                restored=messages,
            ),
            size=sum(len(message.content) for message in messages),
            name="agx commit",
        )

    def _stored(self, job: CommitJob) -> Sequence[StoredEvent]:
        """Take a commit into account that the writer has stored; return its events."""
        head, commit, events = self._head, job.commit, job.events
        assert head is not None
        assert events is not None
        self._pending, self._last = None, (commit.id, events)
        self._rev, self._seq = job.rev, job.last_seq
        head.apply(job.records)
        ends_turn = bool(events) and events[-1].terminal and commit.turn_id is not None
        if ends_turn and commit.turn_id is not None:
            head.open_turns.discard(commit.turn_id)
        self._database.follower.publish(events)
        self._unpacked += 1
        if self._unpacked >= PACKED_COMMITS or (ends_turn and not head.open_turns):
            self._begin_packing()
        return events

    def _begin_packing(self) -> None:
        """Pack the log before the last commit, unless that is under way.

        It is packed no more once a commit was sent twice: the first one may still arrive, and the server stores it
        again if its row is packed by then. Under the epoch of the next lease it does not.
        """
        if not self._had_unknown_outcome and (self._packing is None or self._packing.done()):
            self._unpacked = 0
            self._packing = asyncio.create_task(self._pack(self._rev), name="agx store packing")

    async def _pack(self, until: int) -> None:
        try:
            await self._packer.pack(until)
        except (StoreError, DamagedData) as exc:
            _log.warning("the log of a session could not be packed", session=self.session_id, error=str(exc))

    async def release(self, *, work_left: bool = False) -> None:
        if self.lost.is_set():
            return
        self._leases.remove(self.session_id)
        if self._packing is not None:
            await asyncio.shield(self._packing)
        await self._database.release(self.number, self.epoch)

    def _check(self) -> None:
        if self.lost.is_set():
            raise OwnershipLost(f"session {self.session_id!r} has another owner")

    def _lose(self) -> None:
        if not self.lost.is_set():
            self._leases.remove(self.session_id)
