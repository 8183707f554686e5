"""Fixtures that tests of sessions share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agenticx.clocks import SystemClock
from agenticx.sessions import BlobFolder, MemoryBlobs, MemoryStore, PostgresStore, SqliteStore, Store
from agenticx.sessions.store.postgres import check_database
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.faults.log_file import snapshot
from tests.support.faults.projections import different_tables
from tests.support.postgres.stores import (
    ON_POSTGRES,
    NewUnreliableStore,
    store_url,
    stores_on_postgres,
)
from tests.support.sessions import SessionHarness
from tests.support.stores import STORES
from tests.support.timeouts import PATIENCE
from tests.support.two_hubs import unreliable_store

_IN_A_DATABASE = [pytest.param(name, marks=pytest.mark.ci_lane) for name in ("postgres", "polled postgres")]


@pytest.fixture(params=[*STORES, *_IN_A_DATABASE])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Return a store of each kind; afterwards the tables of one in a database are compared with its logs."""
    make: Callable[[Path], Store] | str = request.param
    url = ""
    if isinstance(make, str):
        url = await store_url(request.getfixturevalue("postgres"))
        opened: Store = PostgresStore(url, blobs=MemoryBlobs(), polls="polled" in make)
    else:
        opened = make(tmp_path)
    yield opened
    await opened.aclose()
    if isinstance(opened, SqliteStore):
        assert check_projections(tmp_path / "sessions.db") == []
    if url:
        assert check_database(url, SystemClock(), timeout=PATIENCE, progress=lambda _count, _total: None)[1] == []


OpenStore = Callable[[], Store]


@pytest.fixture(params=["sqlite", "two hubs", *ON_POSTGRES])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> AsyncIterator[OpenStore]:
    """Return a function that opens the same sessions for one process after another.

    Over those of "two hubs", `hub_over` makes two hubs. Afterwards the tables of a file are compared with its logs.
    """
    blobs, path = BlobFolder(tmp_path / "home" / "snapshots"), tmp_path / "sessions.db"
    if "postgres" in request.param:
        async with stores_on_postgres(request, rng, blobs) as open_one:
            yield open_one
        return
    if request.param == "two hubs":
        yield unreliable_store(request, rng).other_worker
        return
    yield lambda: SqliteStore(path, blobs=blobs)
    if path.exists():
        assert different_tables(snapshot(path, tmp_path / "copy")) == []


@pytest.fixture(params=["memory", "two hubs", *ON_POSTGRES])
async def new_store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> AsyncIterator[OpenStore]:
    """Return a function that makes a store; over one of "two hubs", `hub_over` makes two hubs."""
    blobs = BlobFolder(tmp_path / "home" / "snapshots")
    if "postgres" in request.param:
        async with stores_on_postgres(request, rng, blobs) as open_one:
            yield open_one
    elif request.param == "two hubs":
        yield lambda: unreliable_store(request, rng)
    else:
        yield lambda: MemoryStore(blobs=blobs)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.ci_lane)])
async def new_unreliable_store(request: pytest.FixtureRequest, rng: random.Random) -> AsyncIterator[NewUnreliableStore]:
    """Return a function that makes a new unreliable store, that of the first of several workers."""
    if request.param == "memory":
        yield NewUnreliableStore(rng)
        return
    new_store = NewUnreliableStore(rng, request.getfixturevalue("postgres"))
    yield new_store
    await new_store.aclose()


@pytest.fixture
def harness(tmp_path: Path, open_store: OpenStore) -> SessionHarness:
    return SessionHarness(tmp_path, open_store)
