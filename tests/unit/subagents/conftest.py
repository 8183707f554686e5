"""Fixtures for sub-agents in a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agenticx.sessions import BlobFolder, SqliteStore, Store
from tests.support.postgres.stores import PostgresWorkers, store_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.ci_lane)])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Store]]:
    """Return a function that opens the same sessions for one process after another."""
    blobs = BlobFolder(tmp_path / "snapshots")
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "sessions.db", blobs=blobs)
        return
    workers = PostgresWorkers(await store_url(request.getfixturevalue("postgres")), blobs=blobs)
    yield workers.open
    await workers.aclose()
