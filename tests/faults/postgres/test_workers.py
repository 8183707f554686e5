"""The studio workers of the tests: killed, stopped and restarted behind a load balancer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.postgres.workers import StudioWorker, StudioWorkers, studio_workers

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("t" * 43)
    return str(path)


async def instance(worker: StudioWorker | StudioWorkers) -> str:
    """Return the instance that answers a request on a new connection."""
    async with worker.client() as client:
        return (await client.get("/api/health")).json()["instance"]


async def test_each_connection_goes_to_the_next_worker_that_accepts(tmp_path: Path, token_file: str) -> None:
    async with studio_workers(tmp_path, None, 3, AGX_TOKEN_FILE=token_file) as workers:
        names = [await instance(worker) for worker in workers.all]
        assert [await instance(workers) for _ in range(4)] == [*names, names[0]]
        async with workers.client() as client:
            assert (await client.get("/api/sessions")).status_code == 200
        await workers.all[1].kill()
        assert {await instance(workers) for _ in range(4)} == {names[0], names[2]}
        replaced = await workers.restart(workers.all[1])
        assert {await instance(workers) for _ in range(3)} == {names[0], await instance(replaced), names[2]}
        assert await workers.all[0].terminate() == 0
        assert workers.running == workers.all[1:]


async def test_a_frozen_worker_answers_once_it_goes_on(tmp_path: Path, token_file: str) -> None:
    async with studio_workers(tmp_path, None, 1, AGX_TOKEN_FILE=token_file) as workers:
        (worker,) = workers.all
        worker.freeze()
        asked = asyncio.ensure_future(instance(worker))
        assert await asyncio.wait([asked], timeout=0.1) == (set(), {asked})
        worker.thaw()
        assert await asked == await instance(worker)
        worker.freeze()


async def test_a_worker_that_does_not_start_is_reported_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        async with studio_workers(tmp_path, "sqlite:///x?y", 2):
            pass
    assert refused.group_contains(AssertionError, match="AGX_STORE_URL is not usable")
