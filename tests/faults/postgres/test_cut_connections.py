"""Connections of a store that are cut in the middle of requests and answers."""

from __future__ import annotations

import asyncio
import random

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx.clocks import ScaledClock
from agenticx.sessions import Position
from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster, multi_host_url
from tests.support.postgres.proxy import FaultyProxy, through
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadWriter, break_commits, create_sessions, differences, open_postgres
from tests.support.timeouts import explained_timeout, wait_until

pytestmark = pytest.mark.anyio

SESSIONS = 5
MOST_BYTES = 3_000  # more than the statement of a group and its answer


async def found_after_cuts(cluster: Cluster, url: str, rng: random.Random, cuts: int) -> list[str]:
    """Commit to several sessions while so many connections are cut; return how the logs differ from the results."""
    async with FaultyProxy(cluster.port).listening() as proxy, open_postgres(through(proxy, url)) as store:
        writers = [LoadWriter(store, id_) for id_ in await create_sessions(store, SESSIONS)]
        await asyncio.gather(*(writer.claim() for writer in writers))

        async def commit_until_cut(writer: LoadWriter, number: int) -> None:
            await writer.commit_until(lambda: proxy.cuts > number)

        while (done := proxy.cuts) < cuts:
            proxy.cut_after(rng.randrange(1, MOST_BYTES), rng.choice(["requests", "answers"]))
            await asyncio.gather(*(commit_until_cut(writer, done) for writer in writers))
    async with open_postgres(url) as reader:
        return await differences(reader, writers)


async def test_each_commit_is_stored_once_when_connections_are_cut(
    postgres: Cluster, rng: random.Random, count: Count
) -> None:
    assert await found_after_cuts(postgres, await store_url(postgres), rng, count(10, 100, 1_000)) == []


@pytest.mark.ci_lane
async def test_without_their_numbers_commits_are_stored_twice(
    postgres: Cluster, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await store_url(postgres)
    newest = "(SELECT max(known.rev) FROM commits AS known WHERE known.session = fenced.session)"
    break_commits(monkeypatch, "ADD_COMMITS_AGAIN", ("SELECT session, rev,", f"SELECT session, {newest} + 1,"))
    assert await found_after_cuts(postgres, url, rng, 30) != []


@pytest.mark.ci_lane
async def test_a_commit_that_arrives_late_is_not_stored_again(postgres: Cluster) -> None:
    """A host holds a commit, which is repeated through another one and packed before it arrives."""
    async with FaultyProxy(postgres.port).listening() as one, FaultyProxy(postgres.port).listening() as other:
        url = await store_url(postgres)
        name = url.rpartition("/")[2]
        hosts = multi_host_url([one.port, other.port], name)
        async with open_postgres(hosts, clock=ScaledClock(12), lease=3_600) as store:
            (session_id,) = await create_sessions(store, 1)
            writer = LoadWriter(store, session_id)
            await writer.claim()
            await writer.commit()
            used = one if one.passed["requests"] > other.passed["requests"] else other
            used.pause()
            await writer.commit()
            await writer.commit()
            lease = store.ownership._leases._leases[session_id]  # pyright: ignore[reportPrivateUsage]
            lease._begin_packing()  # pyright: ignore[reportPrivateUsage]
            if lease._packing is not None:  # pyright: ignore[reportPrivateUsage]
                await lease._packing  # pyright: ignore[reportPrivateUsage]
            passed = used.passed["requests"]
            used.resume()
            await wait_until(lambda: used.passed["requests"] > passed)
            await writer.commit()
            await wait_until_idle(postgres, name)
            assert list(await store.log.read_all(Position(0), 10)) == writer.stored
            assert await differences(store, [writer]) == []


async def wait_until_idle(server: Cluster, database: str) -> None:
    """Wait until no statement runs in the database."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND state = 'active'"
    async with explained_timeout(lambda: server.activity(database)):
        while await server.sql(query) != "0":
            await asyncio.sleep(0.01)
