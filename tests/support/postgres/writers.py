"""Writers of sessions of a PostgreSQL store, and the checks of what is stored of their commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.sessions import (
    Commit,
    Lease,
    OutcomeUnknown,
    PostgresStore,
    SessionRecord,
    Store,
    StoredEvent,
    read_log_pages,
)
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.store.postgres import _writer
from tests.support.postgres.cluster import Cluster
from tests.support.stores import record, token
from tests.support.timeouts import explained_timeout

__all__ = [
    "LoadReader",
    "LoadWriter",
    "break_commits",
    "break_function",
    "create_sessions",
    "differences",
    "open_postgres",
    "stored_events",
    "wait_until_blocked",
]


@asynccontextmanager
async def open_postgres(url: str, **options: Any) -> AsyncGenerator[PostgresStore]:
    """Open a store in the database, which is closed at the end."""
    store = await PostgresStore.open(url, **options)
    try:
        yield store
    finally:
        await store.aclose()


async def create_sessions(store: Store, count: int) -> list[str]:
    """Create sessions and return their ids."""
    records: list[SessionRecord] = [record() for _ in range(count)]
    await asyncio.gather(*map(store.create, records))
    return [made.id for made in records]


class LoadWriter:
    """The owner of a session, which commits events one after another.

    `stored` are the events that the store returned for them.
    """

    def __init__(self, store: Store, session_id: str, name: str = "") -> None:
        self.store = store
        self.session_id = session_id
        self.name = name
        self.stored: list[StoredEvent] = []
        self._count = 0
        self._lease: Lease | None = None

    async def claim(self) -> LoadedSession:
        """Become the owner, and return what is stored."""
        self._lease = await self.store.ownership.claim(self.session_id)
        return await self._lease.load()

    async def commit(self, events: int = 1, *, turn_id: str = "turn_1", sync: bool = True) -> Sequence[StoredEvent]:
        """Store so many new events and return them; repeats a commit of unknown outcome."""
        assert self._lease is not None
        tokens = [token(f"{self.name}{self._count + number}") for number in range(1, events + 1)]
        self._count += events
        commit = Commit(turn_id=turn_id, events=tokens, sync=sync)
        while True:
            try:
                stored = await self._lease.commit(commit)
            except OutcomeUnknown:
                continue
            self.stored += stored
            return stored

    async def release(self) -> None:
        """Give the session up, once its log is packed if that is under way."""
        assert self._lease is not None
        await self._lease.release()

    async def commit_until(self, ended: Callable[[], object]) -> None:
        """Commit one event after another until `ended` returns a true value."""
        while not ended():
            await self.commit()


class LoadReader:
    """A reader of a session at any worker, from its first event on; `seen` are the events so far."""

    def __init__(self, store: Store, session_id: str) -> None:
        self.seen: list[StoredEvent] = []
        self._store = store
        self._session_id = session_id

    async def follow(self, ended: Callable[[], object]) -> None:
        """Read the events as they are stored, until `ended` returns a true value after some of them."""
        wakeup = asyncio.Event()
        with self._store.log.subscribe(self._session_id, wakeup):
            while not ended():
                wakeup.clear()
                while events := await self._store.log.read(self._session_id, len(self.seen), 1_000):
                    self.seen += events
                if not ended():
                    await wakeup.wait()


async def stored_events(store: Store, session_id: str) -> list[StoredEvent]:
    """Return the session's log; raises an error for one with a gap."""
    return [event async for page in read_log_pages(store.log, session_id) for event in page]


async def differences(store: Store, writers: Sequence[LoadWriter]) -> list[str]:
    """Return a sentence for each session whose log is not what its only writer was told."""
    found = list[str]()
    for writer in writers:
        try:
            log = await stored_events(store, writer.session_id)
        except StoreError as exc:
            found.append(str(exc))
            continue
        if [event.seq for event in log] != [*range(1, len(log) + 1)]:
            found.append(f"{writer.session_id}: the numbers of its events have gaps")
        if missing := set(writer.stored) - set(log):
            found.append(f"{writer.session_id}: {len(missing)} acknowledged events are missing")
        if more := set(log) - set(writer.stored):
            found.append(f"{writer.session_id}: {len(more)} events are stored that were not acknowledged")
    return found


async def break_function(cluster: Cluster, url: str, name: str, *changes: tuple[str, str]) -> None:
    """Replace parts of the text of one of the schema's functions."""
    database = url.rpartition("/")[2].partition("?")[0]
    text = await cluster.sql(f"SELECT pg_get_functiondef('{name}'::regproc)", database)
    for old, new in changes:
        assert old in text, text
        text = text.replace(old, new)
    await cluster.sql(text, database)


def break_commits(monkeypatch: pytest.MonkeyPatch, name: str, *changes: tuple[str, str]) -> None:
    """Replace parts of a statement with which stores of this process commit tokens."""
    text = getattr(_writer, name)
    for old, new in changes:
        assert old in text, text
        text = text.replace(old, new)
    monkeypatch.setattr(_writer, name, text)


async def wait_until_blocked(server: Cluster, database: str) -> None:
    """Wait until a statement in the database waits for a lock."""
    query = f"SELECT FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
    async with explained_timeout(lambda: server.activity(database)):
        while await server.sql(f"SELECT EXISTS ({query})") != "t":
            await asyncio.sleep(0.01)
