"""Fixtures that tests of sessions share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agenticx.sessions import MemoryStore, SqliteStore, Store
from agenticx.sessions.store.blobs import BlobFolder
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.faults.log_file import snapshot
from tests.support.faults.projections import different_tables
from tests.support.sessions import SessionHarness
from tests.support.stores import STORES
from tests.support.two_hubs import unreliable_store


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Return a store of each kind; afterwards the tables of one in a file are compared with its logs."""
    make: Callable[[Path], Store] = request.param
    opened = make(tmp_path)
    yield opened
    await opened.aclose()
    if isinstance(opened, SqliteStore):
        assert check_projections(tmp_path / "sessions.db") == []


OpenStore = Callable[[], Store]


@pytest.fixture(params=["sqlite", "two hubs"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> Iterator[OpenStore]:
    """Return a function that opens the same sessions for one process after another.

    Over those of "two hubs", `hub_over` makes two hubs. Afterwards the tables of a file are compared with its logs.
    """
    if request.param == "two hubs":
        yield unreliable_store(request, rng).other_worker
        return
    blobs, path = BlobFolder(tmp_path / "home" / "snapshots"), tmp_path / "sessions.db"
    yield lambda: SqliteStore(path, blobs=blobs)
    if path.exists():
        assert different_tables(snapshot(path, tmp_path / "copy")) == []


@pytest.fixture(params=["memory", "two hubs"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> OpenStore:
    """Return a function that makes a store in memory; over one of "two hubs", `hub_over` makes two hubs."""
    if request.param == "two hubs":
        return lambda: unreliable_store(request, rng)
    blobs = BlobFolder(tmp_path / "home" / "snapshots")
    return lambda: MemoryStore(blobs=blobs)


@pytest.fixture
def harness(tmp_path: Path, open_store: OpenStore) -> SessionHarness:
    return SessionHarness(tmp_path, open_store)
