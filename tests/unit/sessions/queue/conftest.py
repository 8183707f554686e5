"""Fixtures of the tests of the message queue."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agenticx.sessions import MemoryStore, SqliteStore
from tests.support.message_queue import QueueHarness
from tests.support.two_hubs import unreliable_store


@pytest.fixture(params=["memory", "sqlite", "two hubs"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> AsyncIterator[QueueHarness]:
    if request.param == "two hubs":
        harness = QueueHarness(tmp_path, unreliable_store(request, rng))
    else:
        store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
        harness = QueueHarness(tmp_path, store)
    yield harness
    await harness.hub.close()
    await harness.store.aclose()
