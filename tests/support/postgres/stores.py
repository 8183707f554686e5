"""Stores over databases in PostgreSQL for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.sessions import Blobs, MemoryBlobs, MemoryStore, PostgresStore, Store
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.postgres._opening import open_database
from agenticx.sessions.store.postgres._worker import WORK
from tests.support.postgres.cluster import Cluster
from tests.support.two_hubs import Faults, UnreliableStore, UnreliableWorker, loss_options

__all__ = [
    "ON_POSTGRES",
    "NewUnreliableStore",
    "PostgresWorkers",
    "UnreliablePostgres",
    "store_url",
    "stores_on_postgres",
]

_PARTITIONS = 4  # of which a database is copied quickly

_EXPIRE = """WITH stopped AS MATERIALIZED (
        SELECT session, stop_writer(writer) FROM fences JOIN sessions ON sessions.number = fences.session
        WHERE sessions.id = $1)
    UPDATE fences SET epoch = epoch + 1, owner = NULL FROM stopped
    WHERE fences.session = stopped.session AND owner IS NOT NULL AND NOT ($2 AND has_work)
    RETURNING has_work"""


ON_POSTGRES = [
    pytest.param(f"{hubs}{polled}postgres", marks=pytest.mark.deep_lane if polled else pytest.mark.ci_lane)
    for hubs in ("", "two hubs on ")
    for polled in ("", "polled ")
]
"""The parameters of a fixture that uses `stores_on_postgres`."""


@asynccontextmanager
async def stores_on_postgres(
    request: pytest.FixtureRequest, rng: random.Random, blobs: Blobs
) -> AsyncGenerator[Callable[[], Store]]:
    """Yield a function that opens the stores of workers of a new database, as one of `ON_POSTGRES` says.

    Over those of "two hubs", `hub_over` makes two hubs.
    """
    url = await store_url(request.getfixturevalue("postgres"))
    workers = PostgresWorkers(url, polls="polled" in request.param, blobs=blobs)
    faults, options = Faults(rng.getrandbits(32)), loss_options(request)
    try:
        if request.param.startswith("two hubs"):
            yield lambda: UnreliablePostgres(workers, rng, faults=faults, **options)
        else:
            yield workers.open
    finally:
        await workers.aclose()


async def store_url(cluster: Cluster) -> str:
    """Create a database with the tables of a store, and return its URL."""
    return await cluster.prepared_database("store", _prepare)


async def _prepare(url: str) -> None:
    await open_database(Server(url, clock=SystemClock()), partitions=_PARTITIONS)


class PostgresWorkers:
    """The stores of the workers of one database, all on this host; `aclose` closes those that are open."""

    def __init__(self, url: str, *, polls: bool = False, blobs: Blobs | None = None) -> None:
        self._url = url
        self._polls = polls
        self._blobs = blobs or MemoryBlobs()
        self._authority: PostgresStore | None = None
        self.stores: list[PostgresStore] = []

    def open(self) -> PostgresStore:
        """Return the store of a new worker."""
        self.stores.append(PostgresStore(self._url, polls=self._polls, blobs=self._blobs))
        return self.stores[-1]

    @property
    def authority(self) -> PostgresStore:
        """The store of a worker that has no part in the test."""
        if self._authority is None:
            self._authority = self.open()
        return self._authority

    async def expire(self, session_id: str, *, only_idle: bool = False, noticed: bool = True) -> None:
        """End the lease of the session's owner, as `expire_lease` of tests/support/memory_store.py does."""
        database = self.authority._database  # pyright: ignore[reportPrivateUsage]
        rows = await database.server.fetch(_EXPIRE, session_id, only_idle)
        for store in self.stores if rows and noticed else ():
            await store.ownership._leases._find_lost()  # pyright: ignore[reportPrivateUsage]
        if rows and rows[0][0]:
            await database.worker.notify(WORK, "")

    async def close(self, store: PostgresStore) -> None:
        """Close a store unless that is done."""
        if store in self.stores:
            self.stores.remove(store)
            await store.aclose()

    async def aclose(self) -> None:
        for store in [*self.stores]:
            await self.close(store)


class NewUnreliableStore:
    """A function that makes the store of the first of several workers: in memory, or over a new database.

    It takes the options of `UnreliableWorker`.
    """

    def __init__(self, rng: random.Random, cluster: Cluster | None = None) -> None:
        self._rng = rng
        self._cluster = cluster
        self._opened: list[PostgresWorkers] = []

    @property
    def is_in_memory(self) -> bool:
        return self._cluster is None

    async def __call__(self, **options: Any) -> UnreliableWorker:
        if self._cluster is None:
            return UnreliableStore(MemoryStore(blobs=MemoryBlobs()), self._rng, **options)
        self._opened.append(PostgresWorkers(await store_url(self._cluster)))
        return UnreliablePostgres(self._opened[-1], self._rng, **options)

    async def aclose(self) -> None:
        for workers in self._opened:
            await workers.aclose()


class UnreliablePostgres(UnreliableWorker):
    """The store of one of several workers of a database, which closes those it was asked for as well."""

    def __init__(
        self, workers: PostgresWorkers, rng: random.Random, *, faults: Faults | None = None, **options: Any
    ) -> None:
        self._own = workers.open()
        super().__init__(self._own, rng, faults or Faults(rng.getrandbits(32)), **options)
        self._workers = workers
        self._others: list[UnreliablePostgres] = []
        self._expiring = set[asyncio.Task[None]]()

    @property
    def authority(self) -> Store:
        return self._workers.authority

    def other_worker(self) -> UnreliablePostgres:
        self._others.append(UnreliablePostgres(self._workers, self.rng, faults=self._faults, **self.options))
        return self._others[-1]

    async def expire(self, session_id: str, *, only_idle: bool = False, noticed: bool = True) -> None:
        await self._workers.expire(session_id, only_idle=only_idle, noticed=noticed)

    def _expire_soon(self, session_id: str, *, noticed: bool) -> None:
        task = asyncio.create_task(self.expire(session_id, noticed=noticed))
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def aclose(self) -> None:
        await asyncio.gather(*self._expiring)
        for other in self._others:
            await other.aclose()
        await self._workers.close(self._own)
