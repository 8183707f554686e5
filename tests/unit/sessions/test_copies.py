"""Sessions copied between stores with all of their logs, and the check of a PostgreSQL database."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.errors import StoreError
from agenticx.sessions import BlobFolder, Commit, Position, PostgresStore, SqliteStore, Store, export_jsonl
from agenticx.sessions.log.records import StoredRecord
from agenticx.sessions.store.copies import CopyableStore, Outcome, copy_sessions
from agenticx.sessions.store.postgres import check_database
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.commits import append
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import store_url
from tests.support.stores import RandomSession, record, session_in, token
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


def copyable(store: Any) -> CopyableStore:
    return CopyableStore(
        databases=[store.copies], copies_of=lambda _: store.copies, blobs=store.blobs, aclose=store.aclose
    )


async def copied(source: Any, target: Any, session_ids: Sequence[str] | None = None) -> list[tuple[str, str, str]]:
    reports: list[tuple[str, str, str]] = []

    def report(session_id: str, outcome: Outcome, reason: str) -> None:
        reports.append((session_id, outcome, reason))

    await copy_sessions(copyable(source), copyable(target), session_ids, report=report)
    return reports


async def random_session(store: Store, rng: random.Random, commits: int = 100) -> str:
    made = record("a name")
    await store.create(made)
    lease = await store.ownership.claim(made.id)
    session = RandomSession(rng, lease)
    for number in range(commits):
        await session.commit(number)
    await lease.release(work_left=True)
    return made.id


async def content_of(store: Store, session_id: str) -> Sequence[object]:
    """Return all that a store tells of a session, but positions."""
    lease = await store.ownership.claim(session_id)
    loaded = await lease.load()
    loaded = replace(loaded, damaged_facts=tuple(loaded.damaged_facts))
    await lease.release(work_left=True)
    requests = await store.catalog.open_requests(session_id)
    return (
        *(loaded, [event._replace(position=Position(0)) for event in await store.log.read(session_id, 0, 100_000)]),
        [piece async for piece in export_jsonl(store.log, session_id)],
        await store.log.compacted_messages(session_id),
        await store.catalog.usage(session_id=session_id),
        sorted(event._replace(position=Position(0)) for event in requests),
        [(found.id, found.matches) for found in await store.catalog.sessions(query="text")],
    )


def assert_same(found: Sequence[object], expected: Sequence[object]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one == other


def records_in(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM records ORDER BY rev, record_index").fetchall()


def damages(url: str) -> list[str] | None:
    return check_database(url, SystemClock(), timeout=PATIENCE, progress=lambda _count, _total: None)[1]


@pytest.mark.cases(quick=3, full=30)
@pytest.mark.ci_lane
async def test_a_random_session_is_the_same_after_it_was_copied_to_postgresql_and_back(
    tmp_path: Path, postgres: Cluster, rng: random.Random
) -> None:
    url = await store_url(postgres)
    first, second = (SqliteStore(tmp_path / f"{name}.db", blobs=BlobFolder(tmp_path / name)) for name in "ab")
    between = await PostgresStore.open(url, blobs=BlobFolder(tmp_path / "between"))
    session_id = await random_session(first, rng, commits=rng.randint(1, 200))
    assert first.blobs is not None
    await first.blobs.put(session_id, b"a picture", retention="kept")
    await first.blobs.put(session_id, b"a draft", retention="removable")
    await first.blobs.put(session_id, b"a file before a change")
    contents = await first.blobs.contents(session_id)
    expected = await content_of(first, session_id)
    assert await copied(first, between) == [(session_id, "copied", "")]
    assert_same(await content_of(between, session_id), expected)
    assert await copied(first, between) == [(session_id, "skipped", "")]
    assert await copied(between, second, [session_id]) == [(session_id, "copied", "")]
    assert_same(await content_of(second, session_id), expected)
    assert second.blobs is not None
    assert await second.blobs.contents(session_id) == contents
    found = [await second.blobs.get(session_id, digest) for digest, _ in contents]
    assert sorted(map(bytes, filter(None, found))) == [b"a draft", b"a file before a change", b"a picture"]
    for store in (first, between, second):
        await store.aclose()
    assert records_in(tmp_path / "a.db") == records_in(tmp_path / "b.db")
    assert check_projections(tmp_path / "b.db") == []
    assert damages(url) == []


@pytest.mark.ci_lane
async def test_a_copied_session_goes_on_and_is_then_another_one(tmp_path: Path, postgres: Cluster) -> None:
    url = await store_url(postgres)
    file, database = SqliteStore(tmp_path / "a.db"), PostgresStore(url)
    session_id = await session_in(file)
    await append(file, session_id, None, [token("a")] * 300)
    await copied(file, database)
    await append(database, session_id, None, [token("b")] * 300)
    assert await copied(file, database) == [
        (session_id, "refused", "the target has another log of it; delete it there first")
    ]
    assert await database.log.head(session_id) == 600
    other = await PostgresStore.open(url)
    await end_leases(database, session_id)
    await other.ownership.claim(session_id)
    ((_, outcome, reason),) = await copied(database, file, [session_id])
    assert (outcome, "has an owner" in reason) == ("refused", True)
    assert await copied(file, database, ["nothing"]) == [("nothing", "refused", "no session has the id 'nothing'")]
    for store in (file, database, other):
        await store.aclose()
    assert damages(url) == []


async def end_leases(store: Store, session_id: str) -> None:
    await (await store.ownership.claim(session_id)).release()


@pytest.mark.ci_lane
async def test_an_interrupted_copy_leaves_nothing_that_is_seen(tmp_path: Path, postgres: Cluster) -> None:
    url = await store_url(postgres)
    file, database = SqliteStore(tmp_path / "a.db"), PostgresStore(url)
    session_id = await random_session(file, random.Random(1))
    original = file.copies.records

    async def broken(session_id: str) -> AsyncGenerator[Sequence[StoredRecord]]:
        async for page in original(session_id):
            yield page
            if page[-1].rev > 50:
                raise StoreError("the disk is gone")

    file.copies.records = broken
    with pytest.raises(StoreError, match="the disk is gone"):
        await copied(file, database)
    assert await database.catalog.sessions() == []
    file.copies.records = original
    assert await copied(file, database) == [(session_id, "copied", "")]
    await file.aclose()
    await database.aclose()
    assert damages(url) == []


DAMAGES = {
    "UPDATE usage SET calls = 70": "its usage",
    "UPDATE texts SET text = 'x' WHERE message_id = ''": "the texts of the search",
    "UPDATE texts SET words = array_to_tsvector(ARRAY['x'])": "the words of the search",
    "UPDATE sessions SET pinned = true": "the columns of the list",
    "UPDATE sessions SET running = 'other'": "the running turn",
    "UPDATE records SET is_open = NOT is_open WHERE kind = 'turn_accepted'": "its open turns",
    "UPDATE fences SET has_work = NOT has_work": "its mark of work",
    "UPDATE commits SET rev = rev + 1 WHERE rev = (SELECT max(rev) FROM commits)": "the numbers of its commits",
    "UPDATE commits SET position = 1 WHERE rev = (SELECT max(rev) FROM commits)": "the positions of its commits",
    "UPDATE commits SET commit_id = '' WHERE rev = (SELECT max(rev) FROM commits)": "the ids of its commits",
}


@pytest.mark.ci_lane
async def test_each_table_of_a_database_that_differs_from_its_log_is_named(postgres: Cluster) -> None:
    url = await store_url(postgres)
    store = await PostgresStore.open(url)
    session_id = await random_session(store, random.Random(3))
    lease = await store.ownership.claim(session_id)
    await lease.commit(Commit(events=[token("a")]))
    await store.aclose()
    assert damages(url) == []
    base = url.rpartition("/")[2]
    for statement, what in DAMAGES.items():
        damaged = await postgres.fresh_database(base)
        await postgres.sql(statement, damaged.rpartition("/")[2])
        assert f"session {session_id!r} differs from its log in {what}" in (damages(damaged) or []), statement
