"""The purge of deleted sessions: partitions with their bytes are rewritten, and the log of writes is dropped."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from agenticx.clocks import Clock
from agenticx.sessions.store.postgres._connection import (
    PostgresConnection,
    Server,
    describe_url,
    end_connection,
    map_errors,
)
from agenticx.sessions.store.postgres._opening import check_server, has_tables, run_blocking
from agenticx.sessions.store.postgres._rewriting import copy_in_steps, drop_copies, vacuum

__all__ = ["PurgeReport", "purge", "purge_database", "why_log_stays"]

_PURGE_LOCK = 0x61677870  # of an advisory lock: one worker at a time purges
_SLOT_PAUSES = (0.0, 0.1, 0.5, 1.0, 3.0)
_AT_ONCE_BYTES = 8 * 1024 * 1024
"""The size of a table up to which it is rewritten at once: commits wait for a tenth of a second, longer under load."""
_LARGEST_BYTES = 64 * 1024 * 1024
"""The size of a table up to which workers rewrite it: each deletion may cost that for a part of each table."""


class PurgeReport(NamedTuple):
    """The partitions that a purge has rewritten and those that it left, each with the reason.

    `log_left` says why the server's write-ahead log still has deleted bytes, None if it has none.
    """

    rewritten: list[str]
    left: list[str]
    log_left: str | None


def purge_database(url: str, clock: Clock, *, timeout: float, is_pooled: bool) -> tuple[str, list[str]]:
    """Rewrite all that has bytes of deleted sessions; return the name of the database and what is left, with reasons.

    Blocks. Raises `StoreError`, `SettingsError`.
    """

    async def work() -> list[str]:
        server = Server(url, clock=clock, timeout=timeout, is_pooled=is_pooled)
        try:
            async with server.connection() as connection:
                await check_server(connection, server.name)
                if not await has_tables(connection, server.name):
                    return []
            report = await purge(server)
            return [*report.left, *([] if report.log_left is None else [f"the log of writes: {report.log_left}"])]
        finally:
            await server.close()

    return describe_url(url), run_blocking("agx store purge", work())


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
        is_small = size <= _AT_ONCE_BYTES or partition == "commands"  # no commit waits for it
        why = await (vacuum if is_small else copy_in_steps)(connection, partition)
        if why is not None:
            report.left.append(f"{partition}: {why}")
            continue
        await connection.fetch(
            "UPDATE purges SET rewritten = true WHERE partition = $1 AND since <= $2", partition, begun
        )
        report.rewritten.append(partition)


async def _drop_log(connection: PostgresConnection, name: str) -> str | None:
    """Have the server remove its write-ahead log up to now; return why it could not, or None."""
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
    """Return why the server's write-ahead log keeps bytes of deleted sessions after a purge, or None."""
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
