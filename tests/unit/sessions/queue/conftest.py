"""Fixtures of the tests of the message queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agenticx.sessions import (
    MemoryStore,
    SqliteStore,
)
from tests.support.message_queue import QueueHarness


@pytest.fixture(params=["memory", "sqlite"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    harness = QueueHarness(tmp_path, store)
    yield harness
    await harness.hub.close()
    await harness.store.aclose()
