"""Fixtures of the tests of the message queue."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agenticx.sessions import MemoryBlobs, MemoryStore, SqliteStore
from tests.support.message_queue import QueueHarness
from tests.support.postgres.stores import ON_POSTGRES, stores_on_postgres
from tests.support.two_hubs import unreliable_store


@pytest.fixture(params=["memory", "sqlite", "two hubs", *ON_POSTGRES])
async def harness(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> AsyncIterator[QueueHarness]:
    async with AsyncExitStack() as closing:
        if "postgres" in request.param:
            store = (await closing.enter_async_context(stores_on_postgres(request, rng, MemoryBlobs())))()
        elif request.param == "two hubs":
            store = unreliable_store(request, rng)
        else:
            store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
        harness = QueueHarness(tmp_path, store)
        yield harness
        await harness.hub.close()
        await harness.store.aclose()
