"""Leases of workers: their renewal waits for no other query, and a worker that renews one too late says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.postgres.workers import studio_workers
from tests.support.postgres.writers import create_sessions, open_postgres
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

_CONNECTIONS = 8  # of a store, for queries
_BLOCKED = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query_start < $1"""
_SEEN = "SELECT seen FROM workers"


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_lease_is_renewed_while_slow_queries_have_all_connections(postgres: Cluster) -> None:
    url = await store_url(postgres)
    async with open_postgres(url, lease=1.0) as store, connected(url) as connection, connected(url) as locking:
        (session_id,) = await create_sessions(store, 1)
        await store.ownership.claim(session_id)
        async with asyncio.TaskGroup() as group, locking.transaction():
            await locking.execute("LOCK TABLE texts IN ACCESS EXCLUSIVE MODE")
            for _ in range(_CONNECTIONS + 1):
                group.create_task(store.catalog.sessions(query="word"))
            blocked = await wait_until(lambda: _all_blocked(connection))
            for _ in range(5):
                seen = await connection.fetchval(_SEEN)
                await wait_until(lambda seen=seen: connection.fetchval(f"SELECT ({_SEEN}) > $1", seen))
            # none has failed meanwhile and made room: a query that is repeated begins later
            assert await connection.fetchval(_BLOCKED, blocked) == _CONNECTIONS


async def _all_blocked(connection: asyncpg.Connection) -> object:
    """Return the time if all connections of the store wait for a lock, else None."""
    now = await connection.fetchval("SELECT clock_timestamp()")
    return now if await connection.fetchval(_BLOCKED, now) == _CONNECTIONS else None


async def test_a_worker_that_renews_its_lease_too_late_logs_it(postgres: Cluster, tmp_path: Path) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 1, AGX_STORE_LEASE_SECONDS="1") as workers, connected(url) as connection:
        (worker,) = workers.all
        await wait_until(lambda: connection.fetchval("SELECT EXISTS (SELECT FROM workers)"))
        worker.freeze()
        await wait_until(lambda: connection.fetchval("SELECT until < clock_timestamp() FROM workers"))
        worker.thaw()
        await wait_until(lambda: worker.lost_leases)
