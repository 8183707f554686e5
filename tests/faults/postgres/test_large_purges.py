"""Purges of large tables while workers write them: commits wait for a moment at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.clocks import SystemClock
from agenticx.errors import StoreError
from agenticx.sessions import Commit, PostgresStore, StoredEvent
from agenticx.sessions.store.postgres import check_database, purge_database
from tests.support.postgres.cluster import Cluster, cluster, requires_postgres
from tests.support.postgres.writers import LoadReader, open_postgres
from tests.support.stores import posted, record, taken, token
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

NAME = "a name that nobody else has"
LONGEST_WAIT_PART = 0.25  # of the time of the purge; it is much less unless a process stands still
OTHERS = 10**9  # the number of a session that fills the tables, and is not there
FILL = f"""
    INSERT INTO records (session, rev, record_index, seq, turn, kind, key, in_force, is_open, data)
    SELECT {OTHERS}, n, 0, 0, '', 'filler', n::text, true, false, repeat(md5(n::text), 40)
    FROM generate_series(1, 60000) AS n;
    INSERT INTO commits (session, rev, commit_id, last_seq, position, body)
    SELECT {OTHERS}, n, n::text, 0, 1, convert_to(repeat(md5(n::text), 40), 'UTF8') FROM generate_series(1, 60000) AS n;
    ANALYZE
"""
"""80 MB each: more than workers rewrite."""
FILLED = ["the table 'commits' has 60000 rows of no session", "the table 'records' has 60000 rows of no session"]
TRIGGERS = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"
PRIVILEGES = "SELECT relname, relowner, relacl FROM pg_class WHERE relname IN ('commits', 'records_0') ORDER BY 1"
CHECKED = "SELECT max(xmin::text::bigint) FROM purges"  # a purge changes a row of each table before it copies that
PURGES = """FROM pg_locks WHERE locktype = 'advisory' AND classid = 0
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@dataclass
class Waits:
    """Commits of a session without a pause: the longest wait, and what was stored."""

    session_id: str
    longest: float = 0.0
    count: int = 0
    stored: list[StoredEvent] = field(default_factory=list[StoredEvent])

    async def commit(self, store: PostgresStore, ended: Callable[[], object]) -> None:
        """Commit until `ended` returns a true value: tokens alone, with new and closed facts, and with a new name."""
        lease = await store.ownership.claim(self.session_id)
        await lease.load()
        made = await store.catalog.get(self.session_id)
        while not ended():
            self.count += 1
            key = f"message_{self.count // 4}"
            kinds = (
                Commit(turn_id="turn_1", events=[token(key)]),
                Commit(turn_id="turn_1", events=[token(key)], facts=[posted(key)]),
                Commit(turn_id="turn_1", events=[token(key)], facts=[taken(key)]),
                Commit(turn_id="turn_1", events=[token(key)], record=replace(made, name=key)),
            )
            begun = time.monotonic()
            self.stored += await lease.commit(kinds[self.count % 4])
            self.longest = max(self.longest, time.monotonic() - begun)


@asynccontextmanager
async def large_database() -> AsyncGenerator[tuple[Cluster, str, PostgresStore]]:
    """Yield a server, the URL of a database in it with large tables and a deleted session, and a worker of that."""
    async with cluster(in_memory=True, config={"wal_recycle": "off"}) as server:
        url = await server.fresh_database()
        async with open_postgres(url, partitions=1) as store:
            made = record(NAME)
            await store.create(made)
            await server.sql(FILL, url.rpartition("/")[2])
            await store.delete(await store.ownership.claim(made.id))
            yield server, url, store


async def purge(url: str) -> list[str]:
    """Purge the database as a command does, and return what is left."""
    _, left = await asyncio.to_thread(purge_database, url, SystemClock(), timeout=30, is_pooled=False)
    return left


async def commit_during(store: PostgresStore, work: Callable[[], Awaitable[None]]) -> Waits:
    """Commit in a session while `work` runs."""
    made = record()
    await store.create(made)
    waits, has_ended = Waits(made.id), False
    committing = asyncio.create_task(waits.commit(store, lambda: has_ended))
    try:
        await wait_until(lambda: waits.stored)
        await work()
    finally:
        has_ended = True
        await committing
    return waits


async def test_a_purge_of_large_tables_lets_commits_through_and_loses_none() -> None:
    async with large_database() as (server, url, store):
        database, left, seconds = url.rpartition("/")[2], [""], 0.0
        await server.sql("CREATE ROLE reader; GRANT SELECT ON commits TO reader", database)
        privileges = await server.sql(PRIVILEGES, database)

        async def work() -> None:
            nonlocal seconds
            interrupted = asyncio.create_task(purge(url))
            while await server.sql(TRIGGERS, database) == "0":
                await asyncio.sleep(0.01)
            await server.sql(f"SELECT pg_terminate_backend(pid) {PURGES}", database)
            with pytest.raises(StoreError):
                await interrupted
            while await server.sql(f"SELECT count(*) {PURGES}", database) != "0":
                await asyncio.sleep(0.01)
            reader = await asyncpg.connect(url)
            async with reader.transaction(isolation="repeatable_read"):  # a short one delays the purge
                assert await reader.fetchval("SELECT count(*) FROM sessions")
                checked = await server.sql(CHECKED, database)
                purging, begun = asyncio.create_task(purge(url)), time.monotonic()
                while await server.sql(CHECKED, database) == checked:
                    await asyncio.sleep(0.01)
            await reader.close()
            left[:] = await purging
            seconds = time.monotonic() - begun

        waits = await commit_during(store, work)
        assert (left, await server.sql(TRIGGERS, database)) == ([], "0")
        assert await server.sql(PRIVILEGES, database) == privileges
        assert waits.count > 50
        assert waits.longest < LONGEST_WAIT_PART * seconds
        reader = LoadReader(store, waits.session_id)
        await reader.follow(lambda: len(reader.seen) >= len(waits.stored))
        assert reader.seen == waits.stored
        _, damages = await asyncio.to_thread(
            check_database, url, SystemClock(), timeout=30, progress=lambda done, total: None
        )
        assert damages == FILLED
        await server.stop()
        assert [path for path in server.data.rglob("*") if path.is_file() and NAME.encode() in path.read_bytes()] == []


async def test_a_rewrite_at_once_holds_commits_up_until_its_end() -> None:
    async with large_database() as (_, url, store):
        seconds = 0.0

        async def work() -> None:
            nonlocal seconds
            connection = await asyncpg.connect(url)
            begun = time.monotonic()
            await connection.execute("VACUUM FULL records_0")
            seconds = time.monotonic() - begun
            await connection.close()

        waits = await commit_during(store, work)
        assert waits.longest > 0.7 * seconds
