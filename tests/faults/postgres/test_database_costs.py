"""The versions of rows that commits leave beside an old snapshot, and the size of a packed turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.sessions import Commit, TurnRecord
from tests.support.postgres.cluster import Cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadWriter, break_commits, create_sessions, open_postgres
from tests.support.stores import final, started, token

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

SESSIONS = 10
COMMITS = 500  # too few in a session for its log to be packed
MOST_BYTES = 30_000  # of rows, for 1,000 token events


# --- an old snapshot --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def old_snapshot(url: str) -> AsyncGenerator[None]:
    """Keep a snapshot of the database open, as a backup or a forgotten session does."""
    connection: Any = await asyncpg.connect(url)  # pyright: ignore[reportUnknownMemberType]
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT count(*) FROM sessions")
        yield
    finally:
        await connection.close()


async def kept_versions(server: Cluster, url: str) -> dict[str, int]:
    """Return how many old versions of rows each table has after commits beside a snapshot, which keeps them.

    A statement that finds a row passes over all of them. VACUUM removes all that it may, and counts the others. The
    worker's own row is left out: heartbeats update it, and no commit reads it.
    """
    database = url.rpartition("/")[2]
    async with open_postgres(url) as store:
        writers = [LoadWriter(store, id_) for id_ in await create_sessions(store, SESSIONS)]
        await asyncio.gather(*(writer.claim() for writer in writers))
        async with old_snapshot(url):
            for _ in range(COMMITS // SESSIONS):
                await asyncio.gather(*(writer.commit() for writer in writers))
            await server.sql("VACUUM", database)
            query = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0"
            rows = await server.sql(query, database)
    counts = dict(row.split("|") for row in rows.splitlines())
    return {table: int(number) for table, number in counts.items() if table != "workers"}


async def test_commits_leave_no_versions_of_rows_beside_an_old_snapshot(postgres: Cluster) -> None:
    assert await kept_versions(postgres, await store_url(postgres)) == {}


async def test_a_row_that_each_commit_updates_leaves_a_version_for_each_beside_an_old_snapshot(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "UPDATE sessions SET pinned = pinned WHERE number = ANY ($1::bigint[])"
    break_commits(monkeypatch, "ADD_COMMITS", ("INSERT INTO commits (", f"WITH head AS ({head}) INSERT INTO commits ("))
    assert await kept_versions(postgres, await store_url(postgres)) == {"sessions": COMMITS}


# --- the size of a turn -----------------------------------------------------------------------------------------------


async def bytes_of_turn(server: Cluster, *, is_packed: bool) -> float:
    """Return the bytes of the rows of a turn for 1,000 token events, each of which is a commit of its own."""
    url = await store_url(server)
    async with open_postgres(url) as store:
        (session_id,) = await create_sessions(store, 1)
        lease = await store.ownership.claim(session_id)
        turn = TurnRecord(id="turn_1", session_id=session_id, input="x")
        await lease.commit(Commit(turn_id=turn.id, events=[started()], begins=turn))
        for number in range(1_000):
            await lease.commit(Commit(turn_id=turn.id, events=[token(f" word{number}", 8 * number)]))
        if is_packed:
            await lease.commit(Commit(turn_id=turn.id, events=[final()]))
        await lease.release()  # waits for the packing
    sizes = " + ".join(
        f"(SELECT coalesce(sum(pg_column_size({table}.*)), 0) FROM {table})"
        for table in ("commits", "segments", "records")
    )
    return float(await server.sql(f"SELECT {sizes}", url.rpartition("/")[2]))


async def test_a_packed_turn_takes_less_than_30_kb_for_1_000_token_events(postgres: Cluster) -> None:
    packed = await bytes_of_turn(postgres, is_packed=True)
    unpacked = await bytes_of_turn(postgres, is_packed=False)
    print(f"{packed:,.0f} bytes packed, {unpacked:,.0f} before the end of the turn")
    assert packed <= MOST_BYTES < unpacked
