"""The PostgreSQL servers of the tests: they keep what they acknowledged, and a standby takes over."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.forked import ROOT, AsyncProcess
from tests.support.postgres.cluster import Cluster, cluster, is_alive, multi_host_url, requires_postgres
from tests.support.program import PROGRAM
from tests.support.timeouts import wait_until

asyncpg = pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

LOSES_COMMITS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


@asynccontextmanager
async def inserting(url: str, acknowledged: list[int]) -> AsyncGenerator[None]:
    """Insert numbers while the body runs, and add each to `acknowledged` once its commit has returned.

    Wait for the first; it ends with the first that fails.
    """

    async def insert() -> None:
        connection = await asyncpg.connect(url)
        try:
            for number in range(len(acknowledged), 1_000_000):
                await connection.execute("INSERT INTO number VALUES ($1)", number)
                acknowledged.append(number)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):  # of a lost connection
            connection.terminate()

    before, task = len(acknowledged), asyncio.create_task(insert())
    await wait_until(lambda: len(acknowledged) > before or task.done())
    yield
    await task


async def missing(server: Cluster, acknowledged: list[int]) -> list[int]:
    stored = {int(line) for line in (await server.sql("SELECT number FROM number")).splitlines()}
    return [number for number in acknowledged if number not in stored]


async def missing_after_kills(rng: random.Random, kills: int, config: Mapping[str, object]) -> list[int]:
    """Return what a server has lost after so many kills."""
    acknowledged: list[int] = []
    async with cluster(config=config) as server:
        await server.sql("CREATE TABLE number (number int)")
        for _ in range(kills):
            async with inserting(server.url(), acknowledged):
                await asyncio.sleep(rng.random() * 0.1)
                await server.kill()
            assert not await server.is_ready()
            await server.start()
        return await missing(server, acknowledged)


async def test_a_killed_server_has_every_acknowledged_commit(rng: random.Random) -> None:
    assert await missing_after_kills(rng, 3, {}) == []


async def test_a_killed_server_without_synchronous_commits_loses_some(rng: random.Random) -> None:
    assert await missing_after_kills(rng, 1, LOSES_COMMITS) != []


async def test_a_synchronous_standby_has_every_acknowledged_commit_when_it_is_promoted() -> None:
    acknowledged: list[int] = []
    async with cluster() as primary:
        await primary.sql("CREATE TABLE number (number int)")
        standby = await primary.standby(synchronous=True)
        async with inserting(primary.url(), acknowledged):
            await primary.kill()
        await standby.promote()
        assert await missing(standby, acknowledged) == []
        both = multi_host_url([primary.port, standby.port])
        async with inserting(both, acknowledged):
            await standby.kill()
        assert len(acknowledged) > 1
        await standby.start()
        assert await missing(standby, acknowledged) == []
        again = await standby.standby()
        assert await missing(again, acknowledged) == []
        assert await again.sql("SHOW synchronous_standby_names") == ""


async def test_databases_are_new_or_copies_and_are_dropped_after_the_test(postgres: Cluster) -> None:
    prepared: list[str] = []

    async def prepare(url: str) -> None:
        prepared.append(url)
        await postgres.sql("CREATE TABLE made (id int)", url.rpartition("/")[2])

    copies = [await postgres.prepared_database("made", prepare) for _ in range(2)]
    empty = await postgres.fresh_database()
    assert len({*copies, *prepared, empty}) == 4
    tables = "SELECT relname FROM pg_class WHERE relname = 'made'"
    assert [await postgres.sql(tables, url.rpartition("/")[2]) for url in [*copies, empty]] == ["made", "made", ""]
    connection = await asyncpg.connect(empty)
    await asyncio.to_thread(postgres.drop_databases)
    names = await postgres.sql("SELECT datname FROM pg_database")
    assert prepared[0].rpartition("/")[2] in names.splitlines()
    assert empty.rpartition("/")[2] not in names.splitlines()
    connection.terminate()


BEGINS = """\
import time
from tests.support.postgres.cluster import Cluster
cluster = Cluster.begin()
print(cluster.processes()[0], cluster.folder, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keep servers in a folder of the test: those of other tests, which run meanwhile, remove abandoned ones too."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # so that the user of the servers gets into it
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


async def test_a_server_ends_with_its_tests_and_the_next_one_removes_its_folder(temporary_folder: str) -> None:
    process = await AsyncProcess.start(PROGRAM, [BEGINS], cwd=ROOT, env={**os.environ, "TMPDIR": temporary_folder})
    pid, folder = (await process.stdout.readline()).decode().split()
    assert is_alive(int(pid))
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    await wait_until(lambda: not is_alive(int(pid)))
    assert Path(folder).exists()
    async with cluster():
        assert not Path(folder).exists()
