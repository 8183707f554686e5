"""Notifications about the commits of this worker, for the workers that follow its sessions.

Each second a worker names the sessions that it follows. Their owners notify it of each commit, until it has not named
the session for some seconds. Right after a claim the owner does not know the followers of a session: for these seconds
it notifies all workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.store.postgres._connection import PostgresConnection, Server, end_connection, map_errors
from agenticx.sessions.store.postgres._worker import COMMITS, FOLLOWED, Worker
from agenticx.sessions.store.postgres._writer import CommitJob

__all__ = ["Announcer", "channel_of"]

_NOTIFY_SECONDS, _MAX_NOTIFY_SECONDS = 0.03, 0.045
"""The time after a notification from which the next group of commits is announced at once, and the longest delay.

A notification costs the server as much as several commits. While groups of tokens come a little more than 20 ms apart,
every second group is announced at once, together with the group before it.
"""
_FOLLOWED_SECONDS = 3.0  # a worker that has not named a session for this long gets no more notifications about it
_SEND_SECONDS = 10.0
_MAX_PAYLOAD_CHARS = 7_900
_ALL = "*"
_NOT_DURABLE = {"synchronous_commit": "off"}
_NOTIFY = "SELECT pg_notify(channel, payload) FROM unnest($1::text[], $2::text[]) AS given (channel, payload)"

_log = get_logger(__name__)


def channel_of(worker_id: str) -> str:
    """Return the channel on which a worker is notified of commits to the sessions that it follows."""
    return f"{COMMITS}_{worker_id}"


class Announcer:
    """The sender of notifications about this worker's sessions, and of its requests to follow other sessions.

    It has a connection of its own that does not wait for a sync: a lost notification is made up for within a second.
    """

    def __init__(self, server: Server, worker: Worker) -> None:
        self._server = server
        self._worker = worker
        self._seqs = dict[int, int]()  # the last event that was stored here, for each session that is owned here
        self._claimed = dict[int, float]()  # until when all workers are notified
        self._followed = dict[
            str, dict[int | None, float]
        ]()  # by worker and session (None: all): until when it is notified
        self._changed = dict[int, int]()
        self._has_changed = asyncio.Event()
        self._is_due = asyncio.Event()
        self._sent_at = 0.0  # when the last notification was sent
        self._connection: PostgresConnection | None = None
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        worker.handle(FOLLOWED, self._follow_requested)

    def start(self) -> None:
        """Begin the task that tells others; call it once the worker is registered."""
        if self._task is None:
            self._task = asyncio.create_task(self._notify_followers(), name="agx store announcer")

    async def close(self) -> None:
        """End the task and the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await end_connection(self._connection)

    def own(self, session: int) -> None:
        """Tell all workers of the session's commits at first: it was just claimed."""
        self._seqs[session] = 0
        if self._worker.others:
            self._claimed[session] = asyncio.get_running_loop().time() + _FOLLOWED_SECONDS

    def disown(self, session: int) -> None:
        """Forget the session, once its last commits are told."""
        self._seqs.pop(session, None)

    def stored(self, jobs: Sequence[CommitJob]) -> None:
        """Have the workers told that follow the sessions of commits that were made here."""
        seqs = self._seqs
        for job in jobs:
            if job.session in seqs:
                seqs[job.session] = job.last_seq
        if self._followed or self._claimed:
            self._changed.update((job.session, job.last_seq) for job in jobs)
            self._has_changed.set()
            if asyncio.get_running_loop().time() >= self._sent_at + _NOTIFY_SECONDS:
                self._is_due.set()

    async def follow(self, sessions: Collection[int], *, all_sessions: bool = False) -> None:
        """Ask the owners of sessions for notifications during the next seconds."""
        names = [*map(str, sessions), *([_ALL] if all_sessions else [])]
        if names and not self._server.is_pooled:
            room = _MAX_PAYLOAD_CHARS - len(self._worker.id) - 1
            await self._send([(FOLLOWED, f"{self._worker.id} {some}") for some in _joined(names, room)])

    def _follow_requested(self, payload: str) -> None:
        """Another worker follows sessions: notify it of the sessions owned here, first of their last events."""
        worker_id, _, names = payload.partition(" ")
        if worker_id == self._worker.id:
            return
        now = asyncio.get_running_loop().time()
        known = self._followed.setdefault(worker_id, {})
        for name in names.split(","):
            session = None if name == _ALL else int(name)
            if session is not None and session not in self._seqs:
                continue
            if known.get(session, 0.0) < now:
                new = self._seqs if session is None else {session: self._seqs[session]}
                self._changed.update((number, seq) for number, seq in new.items() if seq)
                self._has_changed.set()
            known[session] = now + _FOLLOWED_SECONDS
        if not known:
            del self._followed[worker_id]

    async def _notify_followers(self) -> None:
        """Notify other workers of commits: at once, or together with later commits once a notification is due."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_changed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._sent_at + _MAX_NOTIFY_SECONDS):
                    await self._is_due.wait()
            self._has_changed.clear()
            self._is_due.clear()
            self._sent_at = loop.time()
            changed, self._changed = self._changed, dict[int, int]()
            if notifications := list(self._notifications(changed)):
                await self._send(notifications)

    def _notifications(self, changed: Mapping[int, int]) -> Iterator[tuple[str, str]]:
        """Yield the channels and payloads that tell of these sessions and their last events: `number:seq,…`."""
        now = asyncio.get_running_loop().time()
        self._claimed = {session: until for session, until in self._claimed.items() if until > now}
        followed = {worker_id: _after(known, now) for worker_id, known in self._followed.items()}
        self._followed = {worker_id: known for worker_id, known in followed.items() if known}
        to_all = {session: seq for session, seq in changed.items() if session in self._claimed}
        for payload in _payloads(to_all):
            yield COMMITS, payload
        for worker_id, known in self._followed.items():
            some = {
                session: seq
                for session, seq in changed.items()
                if (None in known or session in known) and session not in to_all
            }
            for payload in _payloads(some):
                yield channel_of(worker_id), payload

    async def _send(self, notifications: Sequence[tuple[str, str]]) -> None:
        if self._server.is_pooled:
            return
        channels, payloads = zip(*notifications, strict=True)
        async with self._sending:
            try:
                connection = self._connection
                if connection is None or connection.is_closed():
                    connection = self._connection = await self._server.connect(_NOT_DURABLE)
                async with map_errors(self._server.name):
                    await connection.fetch(_NOTIFY, list(channels), list(payloads), timeout=_SEND_SECONDS)
            except StoreError as exc:
                if self._connection is not None:
                    self._connection.terminate()
                _log.warning("other workers could not be notified", error=str(exc))


def _after(times: Mapping[int | None, float], now: float) -> dict[int | None, float]:
    return {session: until for session, until in times.items() if until > now}


def _payloads(seqs: Mapping[int, int]) -> Iterator[str]:
    """Yield the payloads of notifications for the last events of these sessions."""
    return _joined([f"{number}:{seq}" for number, seq in seqs.items()], _MAX_PAYLOAD_CHARS)


def _joined(texts: Sequence[str], limit: int) -> Iterator[str]:
    """Yield the texts, joined by commas, in pieces of up to `limit` characters."""
    some, size = list[str](), 0
    for text in texts:
        if some and size + len(text) > limit:
            yield ",".join(some)
            some, size = [], 0
        some.append(text)
        size += len(text) + 1
    if some:
        yield ",".join(some)
