"""The notifications of commits: to the workers that follow a session, and to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.sessions import PostgresStore
from tests.support.postgres.cluster import Cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadWriter, create_sessions, open_postgres

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

COMMITS = 10
MOST_SECONDS = 5.0  # half of what as many commits take whose readers look for them each second


@asynccontextmanager
async def reader(store: PostgresStore, session_id: str) -> AsyncGenerator[asyncio.Event]:
    """Follow a session; yields once all before is read."""
    wakeup = asyncio.Event()
    with store.log.subscribe(session_id, wakeup):
        await asyncio.wait_for(wakeup.wait(), 10)
        yield wakeup


async def read_up_to(store: PostgresStore, session_id: str, seq: int, wakeup: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        while True:
            wakeup.clear()
            events = await store.log.read(session_id, seq - 1, 1)
            if events:
                return
            await wakeup.wait()


async def test_a_worker_that_follows_a_session_is_told_of_each_commit_also_long_after_its_claim(
    postgres: Cluster,
) -> None:
    url = await store_url(postgres)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(open_postgres(url))
        followed, other = await create_sessions(owner, 2)
        writers = [LoadWriter(owner, id_) for id_ in (followed, other)]
        for writer in writers:  # there is no other worker, so nobody is told of the claim
            await writer.claim()
            await writer.commit()
        store = await stack.enter_async_context(open_postgres(url))
        head = await store.log.head(followed)
        listening: Any = await asyncpg.connect(url)  # pyright: ignore[reportUnknownMemberType]
        told = list[str]()
        await listening.add_listener("agx_commits", lambda *args: told.append(args[-1]))
        async with reader(store, followed) as wakeup:
            begun = asyncio.get_running_loop().time()
            for number in range(1, COMMITS + 1):
                await asyncio.gather(*(writer.commit() for writer in writers))
                await read_up_to(store, followed, head + number, wakeup)
            assert asyncio.get_running_loop().time() - begun < MOST_SECONDS
        assert told == []  # as all workers are
        await listening.close()
