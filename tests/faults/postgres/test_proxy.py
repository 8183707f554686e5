"""The proxy in front of a PostgreSQL server cuts, holds and refuses connections."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.proxy import Direction, FaultyProxy, through

asyncpg = pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


async def insert(url: str, numbers: range, statement: str) -> None:
    """Run a statement for each number, again after each lost connection."""
    connection: Any = None
    for number in numbers:
        while True:
            try:
                if connection is None:
                    connection = await asyncpg.connect(url)
                await connection.execute(statement, number)
                break
            except LOST:
                if connection is not None:
                    connection.terminate()
                connection = None
    await connection.close()


@pytest.mark.parametrize("direction", ["requests", "answers"])
@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_repeated_statement_runs_twice_unless_it_names_its_row(
    postgres: Cluster, rng: random.Random, direction: Direction, is_idempotent: bool
) -> None:
    url = await postgres.fresh_database()
    database = url.rpartition("/")[2]
    await postgres.sql("CREATE TABLE number (number int)", database)
    if is_idempotent:
        await postgres.sql("CREATE UNIQUE INDEX ON number (number)", database)
    statement = "INSERT INTO number VALUES ($1) ON CONFLICT DO NOTHING"
    async with FaultyProxy(postgres.port).listening() as proxy:
        for first in range(0, 200, 10):
            cuts = proxy.cuts
            proxy.cut_after(rng.randrange(1, 700), direction)
            await insert(through(proxy, url), range(first, first + 10), statement)
            assert proxy.cuts == cuts + 1
    stored = [int(line) for line in (await postgres.sql("SELECT number FROM number", database)).splitlines()]
    assert set(stored) == set(range(200))
    is_repeated = direction == "answers" and not is_idempotent
    assert (len(stored) > 200) is is_repeated


async def test_all_connections_are_cut_at_once(postgres: Cluster) -> None:
    async with FaultyProxy(postgres.port).listening() as proxy:
        url = through(proxy, await postgres.fresh_database())
        connections = [await asyncpg.connect(url) for _ in range(3)]
        sleeping = [asyncio.ensure_future(one.execute("SELECT pg_sleep(1000)")) for one in connections[:2]]
        await asyncio.sleep(0)
        proxy.cut()
        for task in sleeping:
            with pytest.raises(LOST):
                await task
        with pytest.raises(LOST):
            await connections[2].fetchval("SELECT 1")
        assert (proxy.cuts, proxy.connections) == (3, 3)
        again = await asyncpg.connect(url)
        assert await again.fetchval("SELECT 1") == 1
        await again.close()


async def test_a_paused_proxy_holds_what_it_is_sent(postgres: Cluster) -> None:
    async with FaultyProxy(postgres.port).listening() as proxy:
        url = through(proxy, await postgres.fresh_database())
        connection = await asyncpg.connect(url)
        proxy.pause()
        asked = asyncio.ensure_future(connection.fetchval("SELECT 1"))
        connecting = asyncio.ensure_future(asyncpg.connect(url))
        assert await asyncio.wait([asked, connecting], timeout=0.1) == (set(), {asked, connecting})
        proxy.resume()
        assert await asked == 1
        for one in (connection, await connecting):
            await one.close()


async def test_new_connections_are_refused_and_open_ones_stay(postgres: Cluster) -> None:
    async with FaultyProxy(postgres.port).listening() as proxy:
        url = through(proxy, await postgres.fresh_database())
        connection = await asyncpg.connect(url)
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(url)
        assert await connection.fetchval("SELECT 1") == 1
        await proxy.accept()
        for one in (connection, await asyncpg.connect(url)):
            await one.close()
