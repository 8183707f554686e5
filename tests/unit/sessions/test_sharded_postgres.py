"""A store over several PostgreSQL databases."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.errors import SettingsError
from agenticx.messages import new_id
from agenticx.sessions import MemoryBlobs, MemoryStore, PostgresStore, ShardedStore, Store, open_store
from agenticx.sessions.store.base import Shard
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.postgres._shard_list import PostgresShardList
from agenticx.sessions.store.shard_list import check_shard_list
from agenticx.settings import load_settings
from tests.support.commits import append
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.stores import record, token

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]


@asynccontextmanager
async def over_two(cluster: Cluster) -> AsyncGenerator[ShardedStore]:
    stores: list[tuple[str, Shard]] = [
        (name, PostgresStore(await store_url(cluster), blobs=MemoryBlobs())) for name in ("a", "b")
    ]
    store = ShardedStore(stores)
    yield store
    await store.aclose()


async def test_pages_and_searches_of_two_servers_are_those_of_one_store(postgres: Cluster, rng: random.Random) -> None:
    one = MemoryStore()
    async with over_two(postgres) as several:
        for number in range(24):
            made = replace(record(f"name {number % 3}"), pinned=rng.random() < 0.2, archived=rng.random() < 0.3)
            for store in (one, several):
                await store.create(made)
        for query, limit in ((None, 1), (None, 5), ("name 1", 2), (None, 50)):
            before: str | None = ""
            while before is not None:
                options: Any = {"query": query, "limit": limit, "before": before or None}
                page = await several.catalog.sessions(**options)
                assert page == await one.catalog.sessions(**options)
                before = page[-1].id if page else None


async def test_sessions_of_the_same_millisecond_are_each_on_one_page_of_two_servers(postgres: Cluster) -> None:
    async with over_two(postgres) as store:
        times = sorted([record().created_at for _ in range(2)] * 6)
        for created_at in times:
            await store.create(replace(record("x"), created_at=created_at, pinned=created_at == times[0]))
        for query in (None, "x"):
            everything = [one.id for one in await store.catalog.sessions(query=query)]
            found = list[str]()
            while page := await store.catalog.sessions(query=query, limit=1, before=found[-1] if found else None):
                found += [one.id for one in page]
            assert (found, len(found)) == (everything, len(times))


async def test_the_log_of_two_servers_has_each_event_once(postgres: Cluster) -> None:
    async with over_two(postgres) as store:
        records, position = [record() for _ in range(6)], await store.log.position()
        assert position is not None
        for made in records:
            await store.create(made)
            await append(store, made.id, None, [token("a"), token("b")])
        found = list[tuple[str, int]]()
        while len(found) < 12:
            for event in await store.log.read_all(position, 3):
                found.append((event.session_id, event.seq))
                position = event.position
            assert await store.log.position(position) == position
        assert sorted(found) == sorted((made.id, seq) for made in records for seq in (1, 2))
        assert await store.log.position(position + (1 << 62)) is None


async def test_contents_are_copied_between_two_servers(postgres: Cluster) -> None:
    async with over_two(postgres) as store:
        blobs, one, two = store.blobs, record().id, record().id
        while store.shard(one) is store.shard(two):
            two = record().id
        assert blobs is not None
        digests = [await blobs.put(one, text.encode(), retention=text) for text in ("limited", "kept", "removable")]
        await blobs.share(one, two, digests)
        await blobs.remove(two, digests)
        assert [await blobs.get(two, digest) for digest in digests] == [b"limited", b"kept", None]


async def test_servers_are_used_in_the_list_that_they_were_first_used_in(postgres: Cluster) -> None:
    servers = [Server(await store_url(postgres), clock=SystemClock()) for _ in range(3)]
    for server in servers:  # databases of tests are copies of one
        await server.fetch("UPDATE meta SET value = $1 WHERE key = 'log_id'", new_id("log"))
    a, b, c = [(f"postgresql://{number}/agx", PostgresShardList(server)) for number, server in enumerate(servers)]
    await check_shard_list([a, b])
    await check_shard_list([a, b])
    for refused in ([b, a], [a], [a, b, c], [c, c]):
        with pytest.raises(SettingsError, match="the URL of the store names"):
            await check_shard_list(refused)
    assert (await c[1].read()).text is None
    await check_shard_list([c])
    for server in servers:
        await server.close()


async def test_the_setting_that_names_two_databases_opens_one_store_of_both(postgres: Cluster, tmp_path: Path) -> None:
    urls = [await postgres.fresh_database() for _ in range(3)]

    def opened(*given: str) -> Store:
        settings = load_settings({"home": tmp_path / "home", "store_url": " ".join(given)}, environ={})
        return open_store(settings)

    store = opened(*urls[:2])
    made = [record() for _ in range(6)]
    for each in made:
        await store.create(each)
    assert len((await store.workers())["servers"]) == 2
    await store.aclose()
    with pytest.raises(SettingsError, match="agx store copy"):
        opened(*urls)
    with pytest.raises(SettingsError, match="another order"):
        opened(urls[1], urls[0])
    again = opened(*urls[:2])
    assert [one.id for one in await again.catalog.sessions()] == [each.id for each in reversed(made)]
    await again.aclose()
