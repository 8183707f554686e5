"""Removal of deleted sessions from the database, in small steps, and of all bytes of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.store.postgres._connection import PostgresConnection, Server, end_connection, map_errors
from agenticx.sessions.store.postgres._rewriting import copy_in_steps, drop_copies, vacuum
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._worker import Worker
from agenticx.sessions.store.postgres.schema import CONTENT_TABLES

__all__ = ["Maintenance", "PurgeReport", "purge", "why_log_stays"]

_ROWS_AT_ONCE = 500
_PURGE_SECONDS = 5.0  # in which other deletions come, whose bytes are purged together
_LOOK_SECONDS = 60.0
_PURGE_LOCK = 0x61677870  # of an advisory lock: one worker at a time purges
_SLOT_PAUSES = (0.0, 0.1, 0.5, 1.0, 3.0)
_AT_ONCE_BYTES = 8 * 1024 * 1024
"""The size of a table up to which it is rewritten at once: commits wait for a tenth of a second, longer under load."""
_LARGEST_BYTES = 64 * 1024 * 1024
"""The size of a table up to which workers rewrite it: each deletion may cost that for a part of each table."""

_LEFTOVERS = """SELECT sessions.number, hidden_id FROM sessions LEFT JOIN workers ON workers.id = sessions.hidden_by
    WHERE sessions.id IS NULL AND (workers.id IS NULL OR workers.until + $1 < clock_timestamp())"""
_CLEAR = """WITH forgotten AS (
        DELETE FROM workers WHERE (until < clock_timestamp() - interval '10 minutes'
            OR until < clock_timestamp() AND address <> '' AND EXISTS (
                SELECT FROM workers AS others WHERE others.host = workers.host AND others.address = workers.address
                AND others.started > workers.started))
        AND NOT EXISTS (SELECT FROM fences WHERE owner = workers.id AND has_work)
    ), expired AS (DELETE FROM shared WHERE expires < clock_timestamp())
    DELETE FROM commands WHERE made < clock_timestamp() - interval '10 minutes'"""
"""A dead worker is reported for ten minutes, or until one that was started in its place has taken over its work."""

_log = get_logger(__name__)


class PurgeReport(NamedTuple):
    """The partitions that a purge has rewritten and those that it left, each with the reason.

    `log_left` says why the server's log of writes still has deleted bytes, None if it has not.
    """

    rewritten: list[str]
    left: list[str]
    log_left: str | None


class Maintenance:
    """The removal of deleted sessions, and of what dead workers have left."""

    def __init__(self, server: Server, worker: Worker) -> None:
        self._server = server
        self._worker = worker
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the task that purges, and removes what dead workers have left."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="agx store maintenance")

    async def close(self) -> None:
        """End the task; another worker purges what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def remove(self, number: int, session_id: str) -> None:
        """Delete the rows of a session that nobody sees, in many short statements, and have its bytes purged."""
        for table in CONTENT_TABLES:
            key, value = ("session_id", to_text(session_id)) if table == "blobs" else ("session", number)
            query = f"""DELETE FROM {table} WHERE {key} = $1 AND ctid = ANY (ARRAY(
                            SELECT ctid FROM {table} WHERE {key} = $1 LIMIT {_ROWS_AT_ONCE})) RETURNING true"""
            while len(await self._server.fetch(query, value)) == _ROWS_AT_ONCE:
                pass
        await self._server.fetch("SELECT note_purge($1, $2)", number, to_text(session_id))
        await self._server.fetch("DELETE FROM sessions WHERE number = $1", number)
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            try:
                for number, session_id in await self._server.fetch(_LEFTOVERS, self._worker.lease):
                    await self.remove(number, session_id)
                await self._server.fetch(_CLEAR)
                await purge(self._server, leaves_large=True)
            except StoreError as exc:
                _log.warning("deleted sessions could not be purged yet", error=str(exc))
            self._wakeup.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wakeup.wait()
                    await asyncio.sleep(_PURGE_SECONDS)


async def purge(server: Server, *, leaves_large: bool = False) -> PurgeReport:
    """Rewrite the partitions that have bytes of deleted sessions, and have the server drop its log of their writes.

    With `leaves_large` only small ones: a large one is copied, with as many bytes. Does nothing while another worker
    purges. Raises `StoreError`.
    """
    report = PurgeReport([], [], None)
    if not await server.fetch("SELECT FROM purges LIMIT 1"):
        return report
    if server.is_pooled:
        return report._replace(left=["all: a purge needs a connection to the server itself, not through a pooler"])
    connection = await server.connect()
    try:
        async with map_errors(server.name):
            ((is_free,),) = await connection.fetch("SELECT pg_try_advisory_lock($1)", _PURGE_LOCK)
            if not is_free:
                return report._replace(left=["all: another purge is under way; run it again later"])
            await connection.execute("SET lock_timeout = '500ms'")
            await _rewrite(connection, report, leaves_large)
        left = await _drop_log(connection, server.name) if not report.left else "partitions are left"
        return report._replace(log_left=left)
    finally:
        await end_connection(connection)


async def _rewrite(connection: PostgresConnection, report: PurgeReport, leaves_large: bool) -> None:
    await drop_copies(connection)
    rows = await connection.fetch(
        """SELECT partition, pg_total_relation_size(partition::regclass) FROM purges WHERE NOT rewritten
           ORDER BY since"""
    )
    for partition, size in rows:
        if size > _LARGEST_BYTES and leaves_large:
            report.left.append(f"{partition}: {size} bytes; run `agx store purge`")
            continue
        ((begun,),) = await connection.fetch("SELECT clock_timestamp()")
        is_small = size <= _AT_ONCE_BYTES or partition == "commands"  # for which no commit waits
        why = await (vacuum if is_small else copy_in_steps)(connection, partition)
        if why is not None:
            report.left.append(f"{partition}: {why}")
            continue
        await connection.fetch(
            "UPDATE purges SET rewritten = true WHERE partition = $1 AND since <= $2", partition, begun
        )
        report.rewritten.append(partition)


async def _drop_log(connection: PostgresConnection, name: str) -> str | None:
    """Have the server remove its log of the writes up to now; return why it has not, None if it has."""
    why = await why_log_stays(connection)
    if why == _NOT_PERMITTED:
        return why
    async with map_errors(name):
        for _ in range(2):  # what the checkpoint before needs stays until the next one
            ((position,),) = await connection.fetch("SELECT pg_switch_wal()::text")
            if (slot := await _slot_before(connection, position)) is not None:
                return f"the replication slot {slot} still needs it; it is tried again"
            await connection.execute("CHECKPOINT")
        await connection.execute("DELETE FROM purges WHERE rewritten")
    return why


_NOT_PERMITTED = "the role may not call pg_switch_wal and CHECKPOINT: the server removes it in time"
_RECYCLED = "wal_recycle is on: the server overwrites files of it in time"


async def why_log_stays(connection: PostgresConnection) -> str | None:
    """Return why the server keeps bytes of deleted sessions in its log of writes after a purge, None if it does not."""
    ((may_drop, recycles),) = await connection.fetch(
        """SELECT has_function_privilege('pg_switch_wal()', 'EXECUTE') AND EXISTS (
               SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper
               OR rolname = 'pg_checkpoint' AND pg_has_role(oid, 'USAGE')), current_setting('wal_recycle') = 'on'"""
    )
    if not may_drop:
        return _NOT_PERMITTED
    return _RECYCLED if recycles else None


async def _slot_before(connection: PostgresConnection, position: str) -> str | None:
    """Wait a moment until standbys have read the log up to there; return a replication slot that still needs it."""
    query, slot = "SELECT min(slot_name) FROM pg_replication_slots WHERE restart_lsn < $1::text::pg_lsn", None
    for seconds in _SLOT_PAUSES:
        await asyncio.sleep(seconds)
        ((slot,),) = await connection.fetch(query, position)
        if slot is None:
            return None
    return slot
