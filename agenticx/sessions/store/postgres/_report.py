"""The report on the workers of a database, in a few queries."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

from agenticx.clocks import Clock, rfc3339
from agenticx.errors import StoreError
from agenticx.sessions.store.postgres._connection import PostgresConnection, Row, Server, describe_url
from agenticx.sessions.store.postgres._opening import check_server, durability_of, has_tables, run_blocking
from agenticx.sessions.store.postgres._purging import why_log_stays
from agenticx.sessions.store.postgres._text import from_text
from agenticx.sessions.store.workers import HostReport, WorkerReport, WorkersReport

__all__ = ["read_report", "read_workers"]

_CONNECT_SECONDS = 10.0

_WORKERS = """SELECT workers.id, address, host, pid, version, configuration, started, seen, until > clock_timestamp(),
        count(fences.session), count(sessions.running)
    FROM workers LEFT JOIN fences ON fences.owner = workers.id LEFT JOIN sessions ON sessions.number = fences.session
    GROUP BY workers.id ORDER BY workers.number"""
_ORPHANS = """SELECT sessions.workspace_host, count(*), min(coalesce(workers.until, sessions.running_since)),
        EXISTS (SELECT FROM workers AS others
                WHERE others.host = sessions.workspace_host AND others.until > clock_timestamp())
    FROM fences JOIN sessions ON sessions.number = fences.session LEFT JOIN workers ON workers.id = fences.owner
    WHERE fences.has_work AND sessions.id IS NOT NULL
    AND (workers.id IS NULL OR workers.until <= clock_timestamp())
    GROUP BY sessions.workspace_host ORDER BY 1"""
_SERVER = """SELECT current_setting('server_version'), inet_server_addr()::text, inet_server_port(),
        (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
        current_setting('max_connections')::integer,
        (SELECT count(*) FROM pg_stat_replication), pg_database_size(current_database())"""
_DELETIONS = """SELECT (SELECT count(*) FROM sessions WHERE id IS NULL AND NOT EXISTS (
            SELECT FROM workers WHERE workers.id = sessions.hidden_by AND until > clock_timestamp())),
        (SELECT count(*) FROM purges WHERE NOT rewritten), (SELECT count(*) FROM purges WHERE rewritten),
        (SELECT min(since) FROM purges)"""


def read_report(url: str, clock: Clock) -> tuple[str, WorkersReport | None]:
    """Return the name of a database, and the report for a program that is no worker, None without tables; blocks.

    Raises `StoreError` for a database that a worker refuses, `SettingsError` for a database that cannot be found.
    """

    async def work() -> WorkersReport | None:
        server = Server(url, clock=clock, timeout=0)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS), server.connection() as connection:
                await check_server(connection, server.name)
                if not await has_tables(connection, server.name):
                    return None
                return await read_workers(connection, server.name)
        except TimeoutError as exc:
            raise StoreError(f"{server.name} does not answer") from exc
        finally:
            await server.close()

    return describe_url(url), run_blocking("agx workers", work())


async def read_workers(
    connection: PostgresConnection, name: str, *, worker_id: str | None = None, lag_seconds: float = 0.0
) -> WorkersReport:
    """Return the report as the worker with this id sees it; the id is None in a program that is not a worker."""
    workers = [_worker(row, worker_id) for row in await connection.fetch(_WORKERS)]
    orphans = await connection.fetch(_ORPHANS)
    ((version, address, port, connections, most, standbys, size),) = await connection.fetch(_SERVER)
    ((hidden, partitions, rewritten, unpurged_since),) = await connection.fetch(_DELETIONS)
    log_reason = await why_log_stays(connection)
    if log_reason is None and rewritten:
        log_reason = "a purge is under way, or waits for a standby"
    return {
        "workers": workers,
        "lag_ms": round(lag_seconds * 1000),
        "orphans": {
            "sessions": sum(count for _, count, *_ in orphans),
            "since": _first([since for _, _, since, _ in orphans]),
            "hosts": [
                HostReport(host=from_text(host), sessions=count, has_worker=has_worker)
                for host, count, _, has_worker in orphans
                if host is not None
            ],
        },
        "servers": [
            {
                "name": name,
                "engine": "postgresql",
                "version": version,
                "durability": await durability_of(connection),
                "primary": None if address is None else f"{address.partition('/')[0]}:{port}",
                "connections": connections,
                "max_connections": most,
                "standbys": standbys,
                "size_bytes": size,
            }
        ],
        "deletions": {
            "sessions": hidden,
            "partitions": partitions,
            "since": None if unpurged_since is None else rfc3339(unpurged_since),
            "log": log_reason,
        },
    }


def _worker(row: Row, worker_id: str | None) -> WorkerReport:
    id_, address, host, pid, version, configuration, started, seen, is_alive, sessions, turns = row
    return {
        "id": id_,
        "address": from_text(address),
        "host": from_text(host),
        "pid": pid,
        "version": version,
        "configuration": json.loads(configuration),
        "started": rfc3339(started),
        "seen": rfc3339(seen),
        "is_alive": is_alive,
        "is_this": id_ == worker_id,
        "sessions": sessions,
        "running_turns": turns,
    }


def _first(times: list[datetime | None]) -> str | None:
    known = [time for time in times if time is not None]
    return rfc3339(min(known)) if known else None
