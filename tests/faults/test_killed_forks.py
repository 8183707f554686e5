"""Processes that are killed while they fork a session."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenticx.sessions import SqliteStore, StoredEvent, fork
from agenticx.sessions.store.sqlite.projections import check_projections
from tests.support.faults.killed_process import kill_this_process, run_until_killed
from tests.support.faults.measured_history import NOW, make_session
from tests.support.intercepted_store import InterceptedStore, StoreCall, Write
from tests.support.lanes import Count
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

EVENTS = 5_000
READS = 20  # of the log, in pages; it is read twice


async def fork_killed(folder: Path, read: int, seconds: float | None) -> None:
    """Fork a session; the process is killed at that read of the log, or so many seconds after it."""
    path, reads = folder / "sessions.db", 0
    session_id = await make_session(path, EVENTS)

    async def commit(write: Write) -> Sequence[StoredEvent]:
        return await write.make()

    async def around_call(call: StoreCall) -> Any:
        nonlocal reads
        reads += call.name == "read"
        if call.name == "read" and reads == read:
            if seconds is None:
                kill_this_process()
            asyncio.get_running_loop().call_later(seconds or 0.0, kill_this_process)
        return await call.run()

    await fork(InterceptedStore(SqliteStore(path), commit, around_call), session_id, now=NOW)
    await asyncio.sleep(PATIENCE)


def numbers_of_sessions(path: Path) -> list[tuple[bool, int]]:
    """Return of each session in the file if all see it, and how many segments it has."""
    query = """SELECT sessions.id IS NOT NULL, count(*) FROM sessions JOIN segments ON segments.session = number
               GROUP BY number ORDER BY number"""
    with closing(sqlite3.connect(path)) as connection:
        return [(bool(is_seen), count) for is_seen, count in connection.execute(query)]


async def heads_in(path: Path) -> list[int]:
    """Return the numbers of events of the sessions that the next process finds, the newest first."""
    store = SqliteStore(path)
    heads = [await store.log.head(one.id) for one in await store.catalog.sessions(archived="with")]
    await store.aclose()
    assert check_projections(path) == []
    return heads


@pytest.mark.ci_lane
async def test_the_next_process_deletes_what_a_killed_one_has_copied(tmp_path: Path) -> None:
    await run_until_killed(fork_killed, tmp_path, 2 * READS - 2, None)
    (is_seen, segments), (is_fork_seen, copied) = numbers_of_sessions(tmp_path / "sessions.db")
    assert (is_seen, is_fork_seen) == (True, False)
    assert copied > 0
    assert await heads_in(tmp_path / "sessions.db") == [EVENTS]
    assert numbers_of_sessions(tmp_path / "sessions.db") == [(True, segments)]


async def test_a_fork_whose_process_is_killed_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for number in range(count(1, 16, 80)):
        folder = tmp_path / str(number)
        folder.mkdir()
        await run_until_killed(fork_killed, folder, 2 * READS, rng.random() * 0.05)
        heads = await heads_in(folder / "sessions.db")
        assert heads in ([EVENTS], [EVENTS, EVENTS])
        assert len(numbers_of_sessions(folder / "sessions.db")) == len(heads)
