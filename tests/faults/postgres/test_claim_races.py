"""Claims of a session by many workers at once, also while its owner commits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.sessions import Lease, OwnershipLost, PostgresStore, SessionOwnedElsewhere
from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import (
    LoadWriter,
    break_commits,
    break_function,
    create_sessions,
    open_postgres,
    stored_events,
    wait_until_blocked,
)
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

WORKERS = 8
SESSIONS = 20  # that are raced for at once
GROUP = 30  # the sessions that are written in one group: a statement of some milliseconds


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncGenerator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_postgres(url)) for _ in range(count)]


# --- races ------------------------------------------------------------------------------------------------------------


async def winners(url: str, races: int) -> Counter[int]:
    """Have all workers claim the same session at once, in many races; return how many winners these had."""
    won = Counter[int]()

    async def attempt(store: PostgresStore, session_id: str) -> Lease | None:
        try:
            return await store.ownership.claim(session_id)
        except SessionOwnedElsewhere:
            return None

    async def race(workers: list[PostgresStore], session_id: str) -> None:
        claimed = await asyncio.gather(*(attempt(store, session_id) for store in workers))
        leases = [lease for lease in claimed if lease is not None]
        won[len(leases)] += 1
        for lease in leases:
            await lease.release()

    async def run(workers: list[PostgresStore], session_id: str) -> None:
        for _ in range(races // SESSIONS):
            await race(workers, session_id)

    async with stores(url, WORKERS) as workers:
        ids = await create_sessions(workers[0], SESSIONS)
        await asyncio.gather(*(run(workers, session_id) for session_id in ids))
    return won


async def test_each_race_of_eight_claims_has_one_winner(postgres: Cluster, count: Count) -> None:
    races = count(20, 1_000, 10_000)
    assert await winners(await store_url(postgres), races) == {1: races}


@pytest.mark.ci_lane
async def test_a_claim_without_a_lock_has_several_winners(postgres: Cluster) -> None:
    url = await store_url(postgres)
    await break_function(postgres, url, "claim", ("FOR UPDATE OF fences", ""))
    async with asyncio.timeout(PATIENCE):  # on a busy machine the claims of a race may come one after another
        while max(await winners(url, 40)) <= 1:
            pass


# --- claims against commits in flight ---------------------------------------------------------------------------------

Claim = Callable[[PostgresStore, LoadWriter], Awaitable[int]]
"""A claim; it returns the number of the last event that the new owner has read."""


async def claim_and_load(_store: PostgresStore, writer: LoadWriter) -> int:
    return (await writer.claim()).last_seq


async def claim_with_head(store: PostgresStore, writer: LoadWriter) -> int:
    """Read the last event in the statement that claims, as a worker must not."""
    ((seq,),) = await store._database.server.fetch(  # pyright: ignore[reportPrivateUsage]
        """SELECT (SELECT last_seq FROM commits WHERE session = claimed.session ORDER BY rev DESC LIMIT 1)
           FROM claim($1, $2, $3) AS claimed""",
        writer.session_id,
        store._database.worker.id,  # pyright: ignore[reportPrivateUsage]
        store._database.worker.grace,  # pyright: ignore[reportPrivateUsage]
    )
    await writer.claim()
    return seq


async def missed_commits(url: str, rng: random.Random, claim: Claim, claims: int) -> int:
    """Claim sessions while their owner commits to them; return in how many claims a stored event was missed.

    An event is missed if it is acknowledged, or stored later, and not read by the new owner.
    """
    missed = 0
    async with stores(url, 2) as (one, other):
        ids = await create_sessions(one, GROUP)
        for first in range(0, claims, GROUP):
            writers = [LoadWriter(one, id_, f"{first}:") for id_ in ids]
            await asyncio.gather(*(writer.claim() for writer in writers))
            writing = [asyncio.create_task(writer.commit_until(lambda: False)) for writer in writers]
            seen = await asyncio.gather(*(take_over(one, other, id_, claim, rng.random() * 0.1) for id_ in ids))
            ends = await asyncio.gather(*writing, return_exceptions=True)
            assert all(isinstance(end, OwnershipLost) for end in ends), ends
            for writer, seq in zip(writers, seen, strict=True):
                missed += len(await stored_events(other, writer.session_id)) > seq
            one, other = other, one
            for id_ in ids:
                await (await one.ownership.claim(id_)).release()
    return missed


async def take_over(owner: PostgresStore, other: PostgresStore, session_id: str, claim: Claim, delay: float) -> int:
    """Claim a session from its owner, which another worker has found dead by mistake, and goes on to write."""
    await asyncio.sleep(delay)
    while True:
        await owner._database.server.fetch(  # pyright: ignore[reportPrivateUsage]
            "UPDATE workers SET until = '-infinity' WHERE id = $1",
            owner._database.worker.id,  # pyright: ignore[reportPrivateUsage]
        )
        with suppress(SessionOwnedElsewhere):  # it has renewed its lease
            return await claim(other, LoadWriter(other, session_id))


async def test_a_claim_misses_no_commit_in_flight(postgres: Cluster, rng: random.Random, count: Count) -> None:
    url = await store_url(postgres)
    assert await missed_commits(url, rng, claim_and_load, count(10, 300, 300)) == 0


@pytest.mark.ci_lane
async def test_a_claim_that_reads_the_head_in_its_statement_misses_commits(
    postgres: Cluster, rng: random.Random
) -> None:
    url = await store_url(postgres)
    for _ in range(60):  # a group of claims misses two commits on average, some groups none
        if await missed_commits(url, rng, claim_with_head, GROUP):
            return
    pytest.fail("no claim missed a commit")


# --- commits that wait for a claim ------------------------------------------------------------------------------------


async def commits_behind_a_claim(server: Cluster, url: str) -> tuple[object, object]:
    """Have commits of two sessions wait for a claim of the first one; return what became of each of them.

    The statement of the commits has read the epochs by then, as the claim has not ended.
    """
    async with stores(url, 1) as (store,):
        writers = [LoadWriter(store, id_) for id_ in await create_sessions(store, 2)]
        for writer in writers:
            await writer.claim()
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            claim = "SELECT FROM claim($1, 'wrk_other', '0 s')"
            await connection.execute("UPDATE fences SET owner = NULL")
            await connection.fetch(claim, writers[0].session_id)
            committing = [asyncio.create_task(writer.commit(sync=False)) for writer in writers]
            await wait_until_blocked(server, url.rpartition("/")[2])
        await connection.close()
        claimed, other = await asyncio.gather(*committing, return_exceptions=True)
        assert [len(await stored_events(store, writer.session_id)) for writer in writers] == [
            len(writer.stored) for writer in writers
        ]
        return claimed, other


async def test_a_commit_that_waits_for_a_claim_is_not_stored_and_those_of_other_sessions_are(postgres: Cluster) -> None:
    claimed, other = await commits_behind_a_claim(postgres, await store_url(postgres))
    assert isinstance(claimed, OwnershipLost)
    assert isinstance(other, list)


@pytest.mark.ci_lane
async def test_a_commit_that_heeds_no_generation_is_stored_behind_a_claim(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_commits(monkeypatch, "ADD_COMMITS", ("generation = $11::bigint", "$11::bigint > 0"))
    claimed, other = await commits_behind_a_claim(postgres, await store_url(postgres))
    assert isinstance(claimed, list)
    assert isinstance(other, list)
