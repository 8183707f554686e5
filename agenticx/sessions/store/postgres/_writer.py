"""Commits of many sessions in one statement of the server, one statement at a time.

What arrives while a statement runs is sent by the next one. Commits to be synced send it at once; tokens alone wait a
moment for others. A statement of unknown outcome is repeated on a new connection: the server stores a commit once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

from agenticx.errors import StoreError
from agenticx.sessions.log.commits import Commit
from agenticx.sessions.log.events import StoredEvent, encode_events, renumbered
from agenticx.sessions.log.records import StoredRecord
from agenticx.sessions.store.base import OutcomeUnknown, OwnershipLost
from agenticx.sessions.store.postgres._connection import (
    INDEX_SCANS,
    AlreadyStored,
    PostgresConnection,
    Server,
    ServerUnavailable,
    end_connection,
    map_errors,
)
from agenticx.sessions.store.postgres._worker import Worker
from agenticx.sessions.store.postgres.schema import ADD_COMMITS, ADD_COMMITS_AGAIN
from agenticx.sessions.store.segments import encode_body

__all__ = ["Changes", "CommitJob", "GroupWriter", "encode_changes"]

_TOKEN_SECONDS = 0.02
_MAX_GROUP_COMMITS = 1000
_MAX_GROUP_EVENTS = 60_000  # fewer than 2 ** POSITION_BITS
_MAX_GROUP_BYTES = 8 * 1024 * 1024
_ATTEMPT_SECONDS = 10.0  # then a new connection is tried

Changes = dict[str, list[dict[str, Any]]]
"""The changes of `add_commits_with_changes` in the schema: for each kind a list of rows."""

_ADD_WITH_CHANGES = "SELECT added, base FROM add_commits_with_changes($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_FIND = """SELECT commits.session, commits.position FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])
               AS given (session, epoch, rev, commit_id)
           JOIN fences ON fences.session = given.session AND fences.epoch = given.epoch
           JOIN commits ON commits.session = given.session AND commits.rev = given.rev
               AND commits.commit_id = given.commit_id
           FOR SHARE OF fences"""
"""The lock is a write, so the answer comes once all that was written before it is replicated as well."""


@dataclass(slots=True, eq=False)
class CommitJob:
    """A commit to be stored as number `rev` of its session, after the event `seq`.

    Its events are encoded when its group is sent, or earlier if its `changes` depend on them. Until the commit is
    stored, and in its `body`, the events have the places 1, 2, … instead of positions.
    """

    session_id: str
    session: int
    epoch: int
    rev: int
    seq: int
    commit: Commit
    commit_id: str
    records: Sequence[StoredRecord] = ()
    changes: Changes | None = None
    outcome_unknown: bool = False  # an attempt of unknown outcome was made
    events: Sequence[StoredEvent] | None = None
    body: bytes = b""
    done: asyncio.Future[None] = field(init=False, default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def last_seq(self) -> int:
        return self.seq + len(self.commit.events)

    def encode(self, ts: str) -> Sequence[StoredEvent]:
        """Encode the events with the time `ts`, in RFC 3339; raises as `encode_envelope` does."""
        commit = self.commit
        self.events = encode_events(self.session_id, commit.turn_id, commit.events, seq=self.seq, position=0, ts=ts)
        self.body = encode_body(self.events) if self.events else b""
        return self.events


class GroupWriter:
    """The task that stores commits in groups, on a connection of its own.

    `on_stored` is called with the commits of each group, and `timestamp` returns the time of its events.
    """

    def __init__(
        self,
        server: Server,
        worker: Worker,
        position_offset: int,
        timestamp: Callable[[], str],
        on_stored: Callable[[Sequence[CommitJob]], None],
    ) -> None:
        self._server = server
        self._worker = worker
        self._position_offset = position_offset
        self._timestamp = timestamp
        self._on_stored = on_stored
        self._jobs = deque[CommitJob]()
        self._wakeup = asyncio.Event()
        self._is_due = asyncio.Event()
        self._connection: PostgresConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.error: StoreError | None = None

    def put(self, job: CommitJob) -> asyncio.Future[None]:
        """Store a commit, and return a future that is done once it is stored.

        The future raises `OwnershipLost` if the session has another epoch, `OutcomeUnknown` if the commit may be stored
        or not, `StoreError` if it is not stored, and the errors of `CommitJob.encode`.
        """
        if self._is_closed:
            raise StoreError("the store is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="agx store writer")
        self._jobs.append(job)
        self._wakeup.set()
        if job.commit.sync:
            self._is_due.set()
        return job.done

    async def close(self) -> None:
        """Store what was given, and end."""
        self._is_closed = True
        self._wakeup.set()
        self._is_due.set()
        if self._task is not None:
            await self._task
        await end_connection(self._connection)

    async def _run(self) -> None:
        while True:
            if not self._jobs:
                if self._is_closed:
                    return
                self._wakeup.clear()
                await self._wakeup.wait()
                continue
            if not any(job.commit.sync for job in self._jobs):
                await self._wait_for_others()
            await self._store(self._next_group())

    async def _wait_for_others(self) -> None:
        """Wait a moment for more tokens, or until there is a commit to be synced."""
        self._is_due.clear()
        if not self._is_closed:
            passed = asyncio.get_running_loop().call_later(_TOKEN_SECONDS, self._is_due.set)
            try:
                await self._is_due.wait()
            finally:
                passed.cancel()

    def _next_group(self) -> list[CommitJob]:
        """Take the commits of the next statement from the queue, at most one of each session, and encode their events.

        A commit with an event that JSON cannot have is left out, and fails.
        """
        group, later, sessions = list[CommitJob](), list[CommitJob](), set[int]()
        events = size = 0
        ts = self._timestamp()
        while self._jobs and len(group) < _MAX_GROUP_COMMITS:
            job = self._jobs[0]
            if job.events is None:
                try:
                    job.encode(ts)
                except (TypeError, ValueError) as exc:
                    _fail(self._jobs.popleft(), exc)
                    continue
            count = len(job.commit.events)
            if group and (events + count > _MAX_GROUP_EVENTS or size + len(job.body) > _MAX_GROUP_BYTES):
                break
            self._jobs.popleft()
            if job.session in sessions:
                later.append(job)
                continue
            group.append(job)
            sessions.add(job.session)
            events += count
            size += len(job.body)
        self._jobs.extendleft(reversed(later))
        return group

    async def _store(self, group: list[CommitJob]) -> None:
        """Store the commits and set their results; if one is refused by the server, each is stored by itself."""
        try:
            await self._send(group)
            self.error = None
        except ServerUnavailable as exc:
            self.error = exc
            for job in group:
                _fail(job, _outcome(job, exc))
        except StoreError as exc:
            if len(group) > 1:
                for job in group:
                    await self._store([job])
            else:
                self.error = exc
                _fail(group[0], _outcome(group[0], exc))
        except Exception as exc:  # noqa: BLE001 - raised to the callers that await their commits
            for job in group:
                _fail(job, exc)

    async def _send(self, group: Sequence[CommitJob]) -> None:
        """Have the server store the commits, and set the results of the commits that it confirms."""
        places = list(accumulate(max(len(job.commit.events), 1) for job in group))
        positions = await self._server.retry(partial(self._attempt, group, places, _merged(group)))
        stored = list[CommitJob]()
        for job in group:
            position = positions.get(job.session)
            if position is not None:
                stored.append(job)
                if job.events:
                    job.events = renumbered(job.events, position - len(job.events))
            if job.done.done():  # whoever waited was cancelled
                continue
            if position is None:
                job.done.set_exception(OwnershipLost("the session has another owner"))
            else:
                job.done.set_result(None)
        self._on_stored(stored)

    async def _attempt(
        self, group: Sequence[CommitJob], places: list[int], changes: str | None, *, is_again: bool = False
    ) -> dict[int, int]:
        """Return the positions of the commits that are stored now or were before, for the numbers of their sessions.

        A connection that fails is not cancelled: what is under way there goes on.
        """
        connection = await self._open()
        is_first = changes is None and not is_again and not any(job.outcome_unknown for job in group)
        columns = (
            [job.session for job in group],
            [job.epoch for job in group],
            [job.rev for job in group],
            [job.commit_id for job in group],
            [job.last_seq for job in group],
            places,
            [job.body for job in group],
            self._position_offset,
        )
        try:
            async with map_errors(self._server.name), asyncio.timeout(_ATTEMPT_SECONDS):
                positions = await self._add(connection, columns) if is_first else {}
                if len(positions) < len(group):
                    query, more = (ADD_COMMITS_AGAIN, ()) if changes is None else (_ADD_WITH_CHANGES, (changes,))
                    ((added, base),) = await connection.fetch(query, *columns, *more)
                    now_stored = frozenset(added)
                    pairs = zip(group, places, strict=True)
                    positions = {job.session: base + place for job, place in pairs if job.session in now_stored}
                if len(positions) < len(group):
                    positions |= {row[0]: row[1] for row in await connection.fetch(_FIND, *columns[:4])}
        except BaseException as exc:
            if is_first and isinstance(exc, AlreadyStored):
                return await self._attempt(group, places, changes, is_again=True)
            connection.terminate()
            if isinstance(exc, ServerUnavailable) or not isinstance(exc, StoreError):
                for job in group:
                    job.outcome_unknown = True
            raise
        return positions

    async def _add(self, connection: PostgresConnection, columns: Sequence[object]) -> dict[int, int]:
        """Store commits that are sent for the first time, without a lock for each session; return as `_attempt` does.

        Nothing is stored if a session that this worker has written was claimed since `worker.generation` was read.
        """
        worker = self._worker
        stored = await connection.fetch(ADD_COMMITS, *columns, worker.number, worker.id, worker.generation)
        if not stored:
            await worker.read_generation(connection)
        return {row[0]: row[1] for row in stored}

    async def _open(self) -> PostgresConnection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._server.connect(INDEX_SCANS)
        return self._connection


def _fail(job: CommitJob, error: Exception) -> None:
    if not job.done.done():  # whoever waited may be cancelled
        job.done.set_exception(error)


def _outcome(job: CommitJob, error: StoreError) -> StoreError:
    return OutcomeUnknown(f"it is unknown whether a commit is stored: {error}") if job.outcome_unknown else error


def _merged(group: Sequence[CommitJob]) -> str | None:
    """Return the changes of all commits as JSON, None if there are none."""
    merged: Changes = {}
    for job in group:
        if job.changes is not None:
            for kind, rows in job.changes.items():
                merged.setdefault(kind, []).extend(rows)
    return encode_changes(merged) if merged else None


def encode_changes(changes: Changes) -> str:
    """Return changes as the schema's functions take them; non-ASCII characters are not escaped."""
    return json.dumps(changes, ensure_ascii=False)
