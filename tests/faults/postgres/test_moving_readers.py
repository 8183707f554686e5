"""Readers that move among the workers over one PostgreSQL, and of sessions that are being deleted."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

import asyncpg

from agenticx.errors import SessionNotFound
from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster, requires_postgres
from tests.support.postgres.stores import store_url
from tests.support.postgres.worker_load import WorkerLoad, worker_load
from tests.support.postgres.workers import StudioWorkers, studio_workers
from tests.support.postgres.writers import LoadWriter, create_sessions, open_postgres, wait_until_blocked
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

HOP_BYTES = 6_000


class MovingReader:
    """A reader of the events of all sessions that goes to another worker after at most `HOP_BYTES`.

    On a busy machine it falls behind, so it moves no more once `catches_up` is set.
    """

    def __init__(self, workers: StudioWorkers, rng: random.Random) -> None:
        self.stream = StreamClient(0, "/api/events", workers.all[0].token)
        self.hops = 0
        self.catches_up = False
        self._workers = workers
        self._rng = rng

    async def read(self) -> None:
        """Read until this is cancelled; a lost connection is followed by one to another worker."""
        while True:
            self.stream.port = self._rng.choice(self._workers.running).port
            most = None if self.catches_up else self._rng.randrange(1, HOP_BYTES)
            try:
                await self.stream.read(max_bytes=most, seconds=2.0)
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(0.02)
            else:
                self.hops += 1

    def by_session(self) -> dict[str, list[dict[str, Any]]]:
        events = defaultdict[str, list[dict[str, Any]]](list)
        for envelope in self.stream.envelopes:
            events[envelope["session_id"]].append(envelope)
        return events


async def has_all(reader: MovingReader, load: WorkerLoad) -> None:
    """Wait until the reader has the end of each turn, and compare its events with the log of each session."""
    turns = {turn_id for session in load.sessions for turn_id in session.accepted}
    await wait_until(lambda: turns <= reader.stream.ended_turns, state=reader.stream.outline)
    assert [frame for frame in reader.stream.unnumbered if b'"server_closing"' not in frame] == []
    seen = reader.by_session()
    for session in load.sessions:
        expected = session.reader.envelopes
        assert seen[session.id][: len(expected)] == expected[: len(seen[session.id])]


async def test_a_reader_of_all_sessions_that_moves_at_any_cursor_sees_each_event_once(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    hops = count(30, 100, 1_000)
    async with studio_workers(tmp_path, await postgres.fresh_database(), 3) as workers:
        reader = MovingReader(workers, rng)
        async with asyncio.TaskGroup() as group, workers.client() as client:
            reading = group.create_task(reader.read())
            session_id = (await client.post("/api/sessions", json={"name": "Named"})).json()["id"]
            while not reader.stream.frames:  # without a cursor it begins with what is stored from then on
                await client.patch(f"/api/sessions/{session_id}", json={"name": f"Named {rng.random()}"})
            async with worker_load(workers, rng, sessions=4) as load:
                for part in range(1, 5):
                    while reader.hops < hops * part / 4:
                        await load.progress()
                    victim = rng.choice(workers.all)
                    await victim.kill()
                    await workers.restart(victim)
                await load.progress()
                await load.stop()
                reader.catches_up = True
                assert await load.findings() == []
                await has_all(reader, load)
            reading.cancel()


async def test_a_read_during_a_deletion_says_that_the_session_is_not_there(postgres: Cluster) -> None:
    """The read has found the session, and waits for a lock while it is deleted."""
    url = await store_url(postgres)
    database = url.rpartition("/")[2]
    async with open_postgres(url) as store:
        (session_id,) = await create_sessions(store, 1)
        writer = LoadWriter(store, session_id)
        await writer.claim()
        await writer.commit()
        await writer.commit()
        async with open_postgres(url) as other:
            connection: Any = await asyncpg.connect(url)  # pyright: ignore[reportUnknownMemberType]
            async with connection.transaction():
                await connection.execute("LOCK TABLE commits")
                reading = asyncio.create_task(other.log.read(session_id, 0, 10))
                await wait_until_blocked(postgres, database)
                await connection.execute("UPDATE sessions SET id = NULL")
                await connection.execute("DELETE FROM commits WHERE last_seq < 2")
            await connection.close()
            with pytest.raises(SessionNotFound):
                await reading
