"""Owners that are paused, and go on after another process has taken their sessions over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.session_owner import SessionOwner
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import create_sessions, open_postgres, stored_events

pytestmark = pytest.mark.anyio

LEASE_SECONDS = 1.0


@asynccontextmanager
async def owners(url: str, folder: Path, *, fences: bool) -> AsyncGenerator[list[SessionOwner]]:
    started = [
        await SessionOwner.start(url, name, lease=LEASE_SECONDS, folder=folder, fences=fences) for name in ("a", "b")
    ]
    try:
        yield started
    finally:
        await asyncio.gather(*(owner.kill() for owner in started))


async def late_commits(url: str, folder: Path, *, pauses: int, sessions: int, fences: bool = True) -> int:
    """Pause the owner of sessions again and again; return how many events are stored after another one has loaded them.

    Each owner writes all sessions as fast as it can; the next one begins once the paused one has tried again.
    """
    late = 0
    async with open_postgres(url) as store, owners(url, folder, fences=fences) as (owner, other):
        ids = await create_sessions(store, sessions)
        await owner.ask("claim", *ids)
        for _ in range(pauses):
            await owner.ask("write")
            owner.process.send_signal(signal.SIGSTOP)
            loaded = await other.ask("claim", *ids)
            owner.process.send_signal(signal.SIGCONT)
            tried = await owner.ask("check")
            heads = {id_: await store.log.head(id_) for id_ in ids}
            late += sum(heads[id_] - loaded[id_] for id_ in ids)
            assert late or tried["written"] == 0, tried
            await owner.ask("stop")
            owner, other = other, owner
        for id_ in ids:
            await stored_events(store, id_)
    return late


@pytest.mark.ci_lane
async def test_nothing_of_a_paused_owner_is_stored_after_a_takeover(
    postgres: Cluster, tmp_path: Path, count: Count
) -> None:
    url = await store_url(postgres)
    assert await late_commits(url, tmp_path, pauses=count(1, 20, 200), sessions=count(10, 50, 50)) == 0


@pytest.mark.ci_lane
async def test_without_the_fence_commits_of_a_paused_owner_are_stored(postgres: Cluster, tmp_path: Path) -> None:
    url = await store_url(postgres)
    assert await late_commits(url, tmp_path, pauses=1, sessions=10, fences=False) > 0
