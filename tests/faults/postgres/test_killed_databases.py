"""Servers of PostgreSQL that are killed under load, and standbys that take their place."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, PostgresStore, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import pause, say
from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster, cluster, multi_host_url, requires_postgres
from tests.support.postgres.proxy import FaultyProxy
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadReader, LoadWriter, create_sessions, differences, open_postgres
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.timeouts import LoopDelays, explained_timeout, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane, requires_postgres]

SESSIONS = 8
MOST_SECONDS = 3.0
"""From the end of a promotion to the next commit, without delays of this process.

A delay that the store makes is there each time, one that the machine makes is not.
"""


class Load:
    """Sessions that are written at one worker as fast as it can, and read at another one."""

    def __init__(self, writers: list[LoadWriter], readers: list[LoadReader]) -> None:
        self.writers = writers
        self.readers = readers
        self._is_ending = False
        self._ends = dict[str, int]()
        self._writing = [asyncio.create_task(writer.commit_until(lambda: self._is_ending)) for writer in writers]
        self._reading = [asyncio.create_task(self._follow(*each)) for each in zip(readers, writers, strict=True)]

    async def _follow(self, reader: LoadReader, writer: LoadWriter) -> None:
        await reader.follow(lambda: len(reader.seen) == self._ends.get(writer.session_id))

    @property
    def count(self) -> int:
        """The number of acknowledged events."""
        return sum(len(writer.stored) for writer in self.writers)

    def describe(self) -> str:
        """Return the numbers of acknowledged events and of those read, and the tasks that have ended."""
        pairs = zip(self.writers, self.readers, strict=True)
        counts = [f"{writer.session_id}: {len(writer.stored)}, {len(reader.seen)} read" for writer, reader in pairs]
        return "\n".join([*counts, *(repr(task) for task in (*self._writing, *self._reading) if task.done())])

    async def progress(self, commits: int = 1) -> None:
        """Wait for so many further commits."""
        wanted = self.count + commits
        await wait_until(
            lambda: self.count >= wanted or any(task.done() for task in self._writing), state=self.describe
        )

    async def end(self) -> list[str]:
        """Write no more; return the sentences of sessions whose readers have not seen what was acknowledged."""
        self._is_ending = True
        async with explained_timeout(self.describe):
            await asyncio.gather(*self._writing)
            self._ends = {writer.session_id: len(writer.stored) + 1 for writer in self.writers}
            await asyncio.gather(*(writer.commit() for writer in self.writers), *self._reading)
        pairs = zip(self.readers, self.writers, strict=True)
        return [f"{writer.session_id} was read otherwise" for reader, writer in pairs if reader.seen != writer.stored]

    async def cancel(self) -> None:
        for task in (tasks := [*self._writing, *self._reading]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def load(url: str) -> AsyncGenerator[tuple[Load, PostgresStore]]:
    """Write and read sessions; the store is that of the readers."""
    async with open_postgres(url) as store, open_postgres(url) as other:
        writers = [LoadWriter(store, id_) for id_ in await create_sessions(store, SESSIONS)]
        await asyncio.gather(*(writer.claim() for writer in writers))
        made = Load(writers, [LoadReader(other, writer.session_id) for writer in writers])
        try:
            await made.progress()
            yield made, other
        finally:
            await made.cancel()


# --- a server that is killed and started again ------------------------------------------------------------------------


async def test_a_server_that_is_killed_loses_nothing_acknowledged(rng: random.Random, count: Count) -> None:
    async with cluster(in_memory=True) as server, load(await store_url(server)) as (run, other):
        for _ in range(count(1, 3, 20)):
            await run.progress(rng.randrange(1, 400))
            await server.kill()
            await server.start()
            await run.progress()
        assert await run.end() == []
        assert await differences(other, run.writers) == []


@pytest.mark.ci_lane
async def test_a_server_that_does_not_sync_commits_loses_some() -> None:
    async with cluster(in_memory=True) as server, load(await store_url(server)) as (run, other):
        await server.sql("ALTER SYSTEM SET synchronous_commit = off")
        await server.sql("SELECT pg_reload_conf()")
        async with explained_timeout(lambda: "the server has not read its configuration again"):
            # in a new process: the others are told just before
            while await server.sql("SHOW synchronous_commit") != "off":
                await asyncio.sleep(0.01)
        os.kill(next(pid for pid in server.processes() if b"walwriter" in command_of(pid)), signal.SIGSTOP)
        await run.progress(400)
        await server.kill()
        await server.start()
        await run.cancel()
        assert any("missing" in one for one in await differences(other, run.writers))


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# --- failover ---------------------------------------------------------------------------------------------------------


class Pair:
    """A primary and a standby at two fixed ports, which the URL of a store names."""

    def __init__(self, primary: Cluster, proxies: list[FaultyProxy], *, synchronous: bool) -> None:
        self.primary = primary
        self.standby: Cluster | None = None
        self.proxies = proxies  # that of the primary first
        self._synchronous = synchronous

    def url(self, database: str) -> str:
        return multi_host_url(sorted(proxy.port for proxy in self.proxies), database)

    async def replicate(self) -> Cluster:
        """Make a standby at the other port."""
        self.standby = await self.primary.standby(synchronous=self._synchronous)
        self.proxies[1].upstream = self.standby.port
        return self.standby

    async def fail_over(self, *, silent: bool = False) -> Cluster:
        """Kill the primary and promote the standby; return the old primary, which does not run.

        With `silent` its connections stay open, and new ones are not refused, as if its host had lost power.
        """
        old, new = self.primary, self.standby
        assert new is not None
        if silent:
            self.proxies[0].pause()
        await old.kill()
        await new.promote()
        self.primary, self.standby = new, None
        self.proxies.reverse()
        return old


@asynccontextmanager
async def pair(*, synchronous: bool = True) -> AsyncGenerator[tuple[Pair, str]]:
    """Run a primary and a standby; yield them with the URL of a database with the tables of a store."""
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(cluster(in_memory=True))
        proxies = [await stack.enter_async_context(FaultyProxy(primary.port).listening()) for _ in range(2)]
        url = await store_url(primary)
        made = Pair(primary, proxies, synchronous=synchronous)
        await made.replicate()
        yield made, made.url(url.rpartition("/")[2])


@pytest.mark.ci_lane
async def test_a_standby_that_takes_over_has_all_that_was_acknowledged(rng: random.Random, count: Count) -> None:
    seconds = list[float]()
    async with pair() as (servers, url), load(url) as (run, other), LoopDelays.watching() as delays:
        for _ in range(count(1, 2, 20)):
            await run.progress(rng.randrange(1, 400))
            old = await servers.fail_over()
            promoted = time.monotonic() - delays.total
            await run.progress()
            seconds.append(time.monotonic() - delays.total - promoted)
            shutil.rmtree(old.data)
            await servers.replicate()
        assert await run.end() == []
        assert await differences(other, run.writers) == []
    print(f"writing again {max(seconds):.2f} s after a promotion at the latest")
    assert min(seconds) <= MOST_SECONDS


@pytest.mark.ci_lane
async def test_a_standby_takes_over_from_a_host_that_does_not_answer_any_more() -> None:
    async with pair() as (servers, url), load(url) as (run, other), LoopDelays.watching() as delays:
        await run.progress(100)
        await servers.fail_over(silent=True)
        promoted = time.monotonic() - delays.total
        await run.progress()
        seconds = time.monotonic() - delays.total - promoted
        assert await run.end() == []
        assert await differences(other, run.writers) == []
    print(f"writing again {seconds:.2f} s after the promotion")
    assert seconds <= MOST_SECONDS


@pytest.mark.ci_lane
async def test_a_standby_that_lags_behind_loses_what_was_acknowledged_without_it() -> None:
    async with pair(synchronous=False) as (servers, url), load(url) as (run, other):
        assert servers.standby is not None
        await servers.standby.sql("ALTER SYSTEM SET primary_conninfo = ''")
        await servers.standby.sql("SELECT pg_reload_conf()")
        receiver = "SELECT pid, status, latest_end_time FROM pg_stat_wal_receiver"
        async with explained_timeout(lambda: servers.standby and servers.standby.sql(receiver)):
            while await servers.standby.sql("SELECT pid FROM pg_stat_wal_receiver"):
                await asyncio.sleep(0.01)
        await run.progress(100)
        await servers.fail_over()
        await run.cancel()
        assert any("missing" in one for one in await differences(other, run.writers))


@pytest.mark.ci_lane
async def test_an_old_primary_that_is_started_again_is_not_used() -> None:
    async with pair() as (servers, url), open_postgres(url) as store:
        (session_id,) = await create_sessions(store, 1)
        writer = LoadWriter(store, session_id)
        await writer.claim()
        await writer.commit()
        old = await servers.fail_over()
        await writer.commit()
        await old.start()
        await old.release_standbys()
        for proxy in servers.proxies:
            proxy.cut()
        await writer.commit()
        async with open_postgres(url) as other:
            assert await other.log.head(session_id) == 3
        # Through one address, as behind a name that leads to it again.
        database = url.rpartition("/")[2].partition("?")[0]
        async with FaultyProxy(servers.primary.port).listening() as proxy:
            alone = multi_host_url([proxy.port], database)
            async with open_postgres(alone, timeout=3.0) as other:
                assert await other.log.head(session_id) == 3
                proxy.upstream = old.port
                proxy.cut()
                with pytest.raises(StoreError, match=r"is an earlier primary \(timeline 1\)"):
                    await other.log.head(session_id)


# --- turns of a hub ---------------------------------------------------------------------------------------------------

WORDS = [f"word{number} " for number in range(40)]


def hub_over(store: PostgresStore, folder: Path) -> Hub:
    """Return a hub whose model says the words one after another."""
    model = ScriptedModel([[part for word in WORDS for part in (say(word), pause(0.05))]])
    settings = load_settings({"home": folder / "home", "workspace_root": folder}, environ={})
    return Hub(store, models=lambda _: model, tools=lambda _: [], settings=settings)


@pytest.mark.ci_lane
async def test_a_running_turn_goes_on_after_a_restart_and_a_failover(tmp_path: Path) -> None:
    async with pair() as (servers, url), open_postgres(url) as store:
        hub = hub_over(store, tmp_path)
        record = await hub.create(name="s")
        await hub.start(record.id, TurnRequest(input="Go."))
        await wait_for_event(store, record.id, "token")
        await servers.primary.kill()
        await servers.primary.start()
        await servers.fail_over()
        events = await wait_for_turn_end(store, record.id)
        assert events[-1].type == "final"
        assert json.loads(events[-1].frame_json)["data"]["text"] == "".join(WORDS)
        assert [event.seq for event in events] == [*range(1, len(events) + 1)]
        await hub.close()
