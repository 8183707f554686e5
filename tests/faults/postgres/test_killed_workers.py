"""Studio workers over one PostgreSQL, which clients use alike, while workers and servers are killed."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster, cluster, multi_host_url, requires_postgres
from tests.support.postgres.takeovers import Takeovers
from tests.support.postgres.worker_load import WorkerLoad, worker_load
from tests.support.postgres.workers import StudioWorkers, studio_workers
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, LoopDelays, wait_until

MOST_SECONDS = 3.0
"""From the end of a promotion until all sessions have gone on, without delays of this process.

A delay that the workers make is there each time, one that the machine makes is not.
"""

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]


@asynccontextmanager
async def loaded(
    folder: Path, url: str, rng: random.Random, *, lease: float = 10.0, drain: float = 30.0, **options: Any
) -> AsyncGenerator[tuple[StudioWorkers, WorkerLoad]]:
    """Run three workers under load; at the end its turns end, and what clients saw is compared with the log."""
    async with (
        studio_workers(*(folder, url, 3), AGX_STORE_LEASE_SECONDS=str(lease), AGX_DRAIN_SECONDS=str(drain)) as workers,
        worker_load(workers, rng, **options) as load,
    ):
        await load.progress()
        yield workers, load
        await load.progress()
        await load.stop()
        assert await load.findings() == []


async def test_a_client_that_moves_to_another_worker_at_any_cursor_sees_the_log(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    url, hops = await postgres.fresh_database(), count(50, 100, 1_000)
    async with loaded(tmp_path, url, rng, hop_bytes=2_000) as (_, load):
        while load.hops < hops:
            await load.progress()
    assert load.problems == []


async def test_workers_that_skip_an_event_when_a_client_moves_are_detected(
    postgres: Cluster, tmp_path: Path, rng: random.Random
) -> None:
    def has_gap(reader: StreamClient) -> bool:
        numbers = [envelope["seq"] for envelope in reader.envelopes]
        return numbers != [*range(1, len(numbers) + 1)]

    mutant = "skips an event after a reconnect"
    async with (
        studio_workers(tmp_path, await postgres.fresh_database(), 3, mutant=mutant) as workers,
        worker_load(workers, rng, hop_bytes=2_000) as load,
    ):
        await wait_until(lambda: any(has_gap(session.reader) for session in load.sessions), state=load.describe)


async def test_turns_of_a_killed_worker_are_owned_by_another_within_a_second(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    url = await postgres.fresh_database()
    async with (
        Takeovers.watching(url) as takeovers,
        loaded(tmp_path, url, rng, length=100) as (workers, load),
    ):
        for _ in range(count(3, 20, 200)):
            victim = rng.choice(workers.running)
            takeover = await takeovers.expect(victim)
            await victim.kill()
            await takeover.wait()
            await load.progress()
            await workers.restart(victim)
    takeovers.check(within=1.0)


async def test_turns_of_a_frozen_worker_are_owned_by_another_a_second_after_its_lease(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    url, lease = await postgres.fresh_database(), 2.0
    async with (
        Takeovers.watching(url) as takeovers,
        loaded(tmp_path, url, rng, lease=lease, length=100, answer_seconds=2.0) as (workers, load),
    ):
        for _ in range(count(2, 10, 50)):
            victim = rng.choice(workers.all)
            takeover = await takeovers.expect(victim)
            victim.freeze()
            await takeover.wait()
            await load.progress()
            victim.thaw()
            await load.progress()
    takeovers.check(within=lease + 1.0)


async def test_a_killed_server_loses_nothing_acknowledged_and_ends_no_turn(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with cluster() as server:
        async with loaded(tmp_path, await server.fresh_database(), rng) as (_, load):
            for _ in range(count(2, 5, 20)):
                await server.kill()
                await server.start()
                await load.progress()
        assert [failure for session in load.sessions for failure in session.failures] == []


async def test_a_promoted_standby_has_everything_acknowledged_and_ends_no_turn(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    seconds = list[float]()
    for number in range(count(1, 2, 20)):
        (folder := tmp_path / str(number)).mkdir()
        async with cluster() as primary:
            database = (await primary.fresh_database()).rpartition("/")[2]
            standby = await primary.standby(synchronous=True)
            url = multi_host_url([primary.port, standby.port], database)
            async with loaded(folder, url, rng) as (_, load), LoopDelays.watching() as delays:
                await primary.kill()
                await standby.promote()
                promoted = time.monotonic() - delays.total
                await load.progress()
                seconds.append(time.monotonic() - delays.total - promoted)
            assert [failure for session in load.sessions for failure in session.failures] == []
    print(f"all sessions had gone on {median(seconds):.2f} s after the promotion, at most {max(seconds):.2f} s")
    assert min(seconds) <= MOST_SECONDS


async def restart_all(workers: StudioWorkers, load: WorkerLoad) -> None:
    """Restart one worker after another, each as soon as all sessions have gone on."""
    for worker in list(workers.all):
        assert await worker.terminate() == 0
        await load.progress()
        await workers.restart(worker)
        await load.progress()


async def test_clients_see_no_error_in_a_rolling_restart(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    sessions = count(6, 20, 100)
    options: dict[str, Any] = {"sessions": sessions, "silence_seconds": PATIENCE, "drain": PATIENCE}
    async with loaded(tmp_path, await postgres.fresh_database(), rng, **options) as (workers, load):
        await restart_all(workers, load)
    assert load.problems == []
    assert [failure for session in load.sessions for failure in session.failures] == []


async def test_a_worker_without_time_for_its_turns_stops_them(
    postgres: Cluster, tmp_path: Path, rng: random.Random
) -> None:
    async with loaded(tmp_path, await postgres.fresh_database(), rng, drain=0.0) as (workers, load):
        await restart_all(workers, load)
    ends = {envelope["data"]["code"] for session in load.sessions for _, envelope in session.failures}
    assert ends == {"stopped"}
