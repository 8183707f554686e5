"""This process as one of the workers of a database: its lease, its lock and its notifications.

A worker has a row that it renews, and an advisory lock on its connection; the server frees the lock when the process
dies. The lock is a hint only: after a restart of the server no worker has one, and the row alone counts.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import ResourcesExhausted, StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.postgres._connection import (
    PostgresConnection,
    Server,
    ServerUnavailable,
    end_connection,
    map_errors,
)
from agenticx.sessions.store.postgres._opening import check_server
from agenticx.threads import run_in_thread
from agenticx.version import __version__

__all__ = ["COMMANDS", "COMMITS", "FOLLOWED", "REPLIES", "WORK", "Worker"]

COMMITS, FOLLOWED, COMMANDS, REPLIES, WORK = "agx_commits", "agx_followed", "agx_commands", "agx_replies", "agx_work"
"""The channels of notifications: commits to sessions, followed sessions, commands, replies to commands, and sessions
with work but without an owner."""

_LOCK_CLASS = 0x616778  # the first key of the advisory locks of workers; the second is the worker's number
_HEARTBEAT_PART, _STEADY_PART = 0.3, 0.6  # of the lease: the time to the next heartbeat, and the longest one
_WATCH_SECONDS = 0.25
_PROBE_SECONDS = 10.0  # from the first notification until it must have come, also on a busy machine
_AGAIN_SECONDS = 1.0
_RECONNECT_SECONDS = 3.0  # other workers take their locks again within this time after all connections were cut
_LAST_HEARTBEAT_SECONDS = 1.0  # that the end of a worker waits for a heartbeat
_LOCK_PAUSES = (0.0, 0.01, 0.1, 1.0)

_HEARTBEAT = """INSERT INTO workers (id, address, host, pid, version, configuration, seen, until)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp() + $7)
    ON CONFLICT (id) DO UPDATE SET seen = clock_timestamp(), until = clock_timestamp() + $7, address = $2,
        configuration = $6
    RETURNING number, generation, (
        SELECT count(*) FROM workers AS others WHERE others.until > clock_timestamp() AND others.id <> $1), (
        SELECT clock_timestamp() - former.until FROM workers AS former WHERE former.id = $1)"""
"""Renews the lease; the last column is the time since its end, negative before it, and NULL for a new worker."""

_DEAD = """SELECT id, until + $3 <= clock_timestamp() FROM workers WHERE id <> $1 AND (
    until + $3 <= clock_timestamp() OR until > clock_timestamp() AND server = pg_postmaster_start_time()
    AND pg_try_advisory_xact_lock_shared($2, number::integer))"""
"""The workers whose leases have ended (true), and the workers whose locks are free (false)."""

_OUTAGE = """SELECT clock_timestamp() - max(seen) FROM workers
    WHERE clock_timestamp() - pg_postmaster_start_time() < $1"""
"""The time since the last heartbeat of any worker, if the server has just been started."""

_log = get_logger(__name__)


class Worker:
    """This worker. It owns its sessions for `lease` seconds after its last heartbeat.

    `configuration` returns digests of its configuration; it is called again for each heartbeat, in a thread. Through a
    pooler there is neither a lock nor a notification.
    """

    def __init__(
        self,
        server: Server,
        clock: Clock,
        *,
        lease: float,
        configuration: Callable[[], Mapping[str, str]],
    ) -> None:
        self.id = new_id("wrk")
        self.address = ""
        self.number = self.generation = 0
        self.others = 0
        self.lease = timedelta(seconds=clock.real(lease))
        self.on_check: list[Callable[[], Awaitable[None]]] = []
        """Functions to call between heartbeats, as often as those."""
        self.on_listening: list[Callable[[], None]] = []
        """Functions to call once notifications arrive again: those sent before are lost."""
        self._server = server
        self._configuration = configuration
        self._digests: Mapping[str, str] = {}
        self._handlers = dict[str, Callable[[str], None]]()
        self._tasks = list[asyncio.Task[None]]()
        self._connection: PostgresConnection | None = None
        self._started: asyncio.Task[None] | None = None
        self._longest_start = clock.real(server.timeout)
        self._steady_since: float | None = None
        self._renewed = 0.0
        self._beating = asyncio.Lock()
        self._outage = timedelta(0)  # the last one
        self._cut: float | None = None  # when the connection with the lock has ended
        self._probed = asyncio.Event()
        self._suspects = set[str]()
        self._expired = set[str]()
        self.refusal: StoreError | None = None
        """Why the server can no longer be used, for example after a change of its settings; None if it can."""

    @property
    def grace(self) -> timedelta:
        """The time after the end of another worker's lease from which that worker counts as dead.

        During an outage of the server no worker can renew its lease, and other workers may reconnect a little later
        than this one. So after an outage the time is at least the length of the outage: each worker then has the time
        of a lease, from the return of the server on, to renew it.
        """
        since, now, lease = self._steady_since, asyncio.get_running_loop().time(), self.lease.total_seconds()
        silent = now - self._renewed if self._renewed else 0.0
        if since is not None and now - since > lease and silent <= lease * _STEADY_PART:
            return timedelta(0)
        return max(self.lease, self._outage, timedelta(seconds=silent))

    def handle(self, channel: str, handler: Callable[[str], None]) -> None:
        """Call `handler` with the payload of each notification of the channel; call this before `start`."""
        self._handlers[channel] = handler

    async def start(self) -> None:
        """Register the worker, once; it stays so until `close`."""
        if self._started is None:
            self._started = asyncio.create_task(self._start(), name="agx store worker")
        try:
            await asyncio.shield(self._started)
        except StoreError:
            self._started = None
            raise

    async def _start(self) -> None:
        self._digests = await run_in_thread(self._configuration, name="agx configuration")
        for (passed,) in await self._server.fetch(_OUTAGE, self.lease):
            self._outage = passed or timedelta(0)
        await self._beat()
        self._tasks.append(asyncio.create_task(self._heartbeats(), name="agx store heartbeat"))
        self._tasks.append(asyncio.create_task(self._checks(), name="agx store checks"))
        self._tasks.append(asyncio.create_task(self._read_configuration(), name="agx store configuration"))
        self._tasks.append(asyncio.create_task(self._compare_hosts(), name="agx store hosts"))
        listening = asyncio.create_task(self._listen(), name="agx store notifications")
        self._tasks.append(listening)
        with suppress(TimeoutError):  # of the server; it is tried again
            async with asyncio.timeout(self._longest_start):
                await self._probed.wait()

    async def notify(self, channel: str, payload: str) -> None:
        """Notify all workers; they make up for a lost notification within a second."""
        try:
            await self._server.fetch("SELECT pg_notify($1, $2)", channel, payload)
        except StoreError as exc:
            _log.warning("other workers could not be notified", error=str(exc))

    async def dead_workers(self) -> Collection[str]:
        """Return the workers that died since the last call: their locks are free, or their leases have ended.

        A living worker whose connection is cut takes its lock again at once. So a worker is dead if its lock is free in
        two calls in a row, unless this worker's own connection was cut a moment ago too.
        """
        rows = await self._server.fetch(_DEAD, self.id, _LOCK_CLASS, self.grace)
        expired = {id_ for id_, has_ended in rows if has_ended}
        is_cut = self._cut is not None and asyncio.get_running_loop().time() - self._cut < _RECONNECT_SECONDS
        suspects = set[str]() if is_cut else {id_ for id_, has_ended in rows if not has_ended}
        late, self._expired = expired - self._expired, expired
        dead, self._suspects = suspects & self._suspects, suspects
        if dead:
            late |= await self._end_leases(dead)
            self._expired |= dead
        return late

    async def _end_leases(self, workers: Collection[str]) -> set[str]:
        """End the leases of dead workers; return the workers that still had a row."""
        rows = await self._server.fetch(
            """UPDATE workers SET until = clock_timestamp() - $2::interval, server = NULL
               WHERE id = ANY ($1::text[]) RETURNING id""",
            *(list(workers), self.lease),
        )
        for (id_,) in rows:
            _log.warning("a worker has died", worker=id_)
        return {id_ for (id_,) in rows}

    @property
    def has_suspects(self) -> bool:
        """True if a worker may have died; the next call of `dead_workers` decides."""
        return bool(self._suspects)

    @property
    def watch_seconds(self) -> float:
        """The time between two looks at the other workers."""
        return min(_WATCH_SECONDS, self.lease.total_seconds() / 4)

    async def watch(self) -> None:
        """Wait until the next look at the other workers."""
        await asyncio.sleep(self.watch_seconds)

    async def close(self) -> None:
        """Give up all sessions, and be no worker any more.

        A heartbeat that is cut off may be stored later: after the row was deleted it would make it again.
        """
        if self._tasks:
            with suppress(TimeoutError):  # of the server
                async with asyncio.timeout(_LAST_HEARTBEAT_SECONDS):
                    await self._beating.acquire()  # for good
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._started is not None:
            try:
                async with self._server.connection() as connection:
                    await connection.fetch("UPDATE fences SET owner = NULL WHERE owner = $1", self.id)
                    await connection.fetch("DELETE FROM workers WHERE id = $1", self.id)
                    await connection.fetch("SELECT pg_notify($1, '')", WORK)
            except StoreError as exc:
                _log.warning("this worker could not say that it ends; others wait for its lease", error=str(exc))
        await end_connection(self._connection)

    @property
    def is_late(self) -> bool:
        """True while a heartbeat is overdue: the database does not answer, or refuses it."""
        passed = asyncio.get_running_loop().time() - self._renewed
        return self._renewed > 0 and passed > _STEADY_PART * self.lease.total_seconds()

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.lease.total_seconds() * _HEARTBEAT_PART)
            try:
                async with self._beating:
                    await self._beat()
            except StoreError as exc:
                self._steady_since = None
                _log.warning("the lease of this worker could not be renewed", error=str(exc))

    async def _checks(self) -> None:
        """Check the server and the leases of sessions, apart from heartbeats: a heartbeat waits for no other query."""
        while True:
            await asyncio.sleep(self.lease.total_seconds() * _HEARTBEAT_PART)
            try:
                await self._check_server()
                for check in self.on_check:
                    await check()
            except StoreError as exc:
                self._steady_since = None
                _log.warning("the leases of this worker could not be checked", error=str(exc))

    async def _check_server(self) -> None:
        """Check the server's settings: they can be changed while it runs."""
        refusal: StoreError | None = None
        async with self._server.connection() as connection:
            try:
                await check_server(connection, self._server.name)
            except ServerUnavailable:
                raise
            except StoreError as exc:
                refusal = exc
        if refusal is not None and self.refusal is None:
            _log.error("the database server is not safe to use any more", error=str(refusal))
        self.refusal = refusal

    async def _compare_hosts(self) -> None:
        """Look for a primary of a newer timeline: an earlier one that was started again answers as well."""
        while True:
            await asyncio.sleep(self.lease.total_seconds())
            await self._server.compare_hosts()

    async def _read_configuration(self) -> None:
        """Read the configuration for the next heartbeats, so that no heartbeat waits for a slow file system."""
        while True:
            await asyncio.sleep(self.lease.total_seconds() * _HEARTBEAT_PART)
            with suppress(ResourcesExhausted):  # no thread can be started: later
                self._digests = await run_in_thread(self._configuration, name="agx configuration")

    async def _beat(self) -> None:
        own = (self.id, self.address, this_host(), os.getpid(), __version__, json.dumps(self._digests))
        rows = await self._server.fetch(_HEARTBEAT, *own, self.lease, is_urgent=True)
        ((number, self.generation, self.others, late),) = rows
        if late is not None and late > timedelta(0):
            _log.warning(
                "the lease of this worker had ended before it was renewed; others may have taken its sessions",
                late_seconds=round(late.total_seconds(), 1),
            )
        if self._connection is not None and number != self.number:  # a new row; the lock has the old number
            self._connection.terminate()
        self.number = number
        now = asyncio.get_running_loop().time()
        if self._renewed and now - self._renewed > self.lease.total_seconds() * _STEADY_PART:
            self._outage, self._steady_since = timedelta(seconds=now - self._renewed), now
        elif self._steady_since is None:
            self._steady_since = now
        self._renewed = now

    async def read_generation(self, connection: PostgresConnection) -> None:
        """Read `generation` again: it has risen since the last heartbeat."""
        rows = await connection.fetch(
            "SELECT generation FROM workers WHERE id = $1 AND number = $2", self.id, self.number
        )
        if rows:
            ((self.generation,),) = rows

    async def _listen(self) -> None:
        """Hold the lock and listen, on a connection that is made again whenever it ends."""
        while True:
            ended = asyncio.Event()
            try:
                await self._server.retry(lambda ended=ended: self._open(ended))
                await ended.wait()
            except StoreError as exc:
                _log.warning("no notifications", error=str(exc))
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _open(self, ended: asyncio.Event) -> None:
        if self._server.is_pooled:  # a pooler gives the connection to others: there is no lock, and no notification
            self._probed.set()
            return
        await end_connection(self._connection)
        connection = self._connection = await self._server.connect()

        def on_end(*_: object) -> None:
            self._cut = asyncio.get_running_loop().time()
            ended.set()

        connection.add_termination_listener(on_end)
        async with map_errors(self._server.name):
            for channel in self._handlers:
                await connection.add_listener(channel, self._received)
            for listening in self.on_listening:
                listening()
            await connection.fetch("SELECT pg_notify($1, $2)", COMMANDS, f"{self.id} probe", timeout=10)
            await connection.fetch(
                "UPDATE workers SET server = CASE WHEN $2 THEN pg_postmaster_start_time() END WHERE id = $1",
                *(self.id, await self._lock(connection)),
                timeout=10,
            )
        await self._wait_for_notification(connection)

    async def _wait_for_notification(self, connection: PostgresConnection) -> None:
        """Wait until the first notification has come; the database is polled if it does not."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._probed.wait()
        except TimeoutError:
            if connection.is_closed():
                raise ServerUnavailable(f"{self._server.name}: the connection is closed") from None
            _log.warning(
                "the database sends no notifications, as behind a pooler: it is polled", server=self._server.name
            )
            self._server.is_pooled = True
            self._probed.set()
            connection.terminate()

    async def _lock(self, connection: PostgresConnection) -> bool:
        """Take the lock and return True; False if the server does not notice that an earlier connection has ended."""
        for seconds in _LOCK_PAUSES:
            await asyncio.sleep(seconds)
            ((is_held,),) = await connection.fetch(
                "SELECT pg_try_advisory_lock($1, $2::integer)", _LOCK_CLASS, self.number, timeout=10
            )
            if is_held:
                return True
        _log.warning("an earlier connection holds the lock of this worker; only its lease says that it lives")
        return False

    def _received(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        if channel == COMMANDS and payload == f"{self.id} probe":
            self._probed.set()
            return
        self._handlers[channel](payload)
