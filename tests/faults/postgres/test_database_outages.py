"""Databases that cannot be reached for a while: commits, readers and turns wait for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import Commit, Hub, OutcomeUnknown, PostgresStore, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, pause, say
from agenticx.tools import Tool, tool
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.proxy import FaultyProxy, through
from tests.support.postgres.stores import store_url
from tests.support.postgres.writers import LoadReader, LoadWriter, create_sessions, open_postgres, stored_events
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.stores import token
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

TIMEOUT_SECONDS = 1.0  # in an outage


@asynccontextmanager
async def behind_a_proxy(server: Cluster) -> AsyncGenerator[tuple[PostgresStore, FaultyProxy]]:
    """Open a store behind a proxy; its lease is long enough for any outage."""
    async with FaultyProxy(server.port).listening() as proxy:
        url = through(proxy, await store_url(server))
        async with open_postgres(url, lease=60.0) as store:
            yield store, proxy


@contextmanager
def impatient(store: PostgresStore) -> Generator[None]:
    """Give up what is begun while the body runs after `TIMEOUT_SECONDS`; before and behind it, a server may be slow."""
    server = store._database.server  # pyright: ignore[reportPrivateUsage]
    usual, server.timeout = server.timeout, TIMEOUT_SECONDS
    try:
        yield
    finally:
        server.timeout = usual


async def end_connections(proxy: FaultyProxy) -> None:
    """Refuse new connections and cut those there are."""
    await proxy.refuse()
    proxy.cut()


async def test_a_commit_without_an_answer_has_an_unknown_outcome_after_the_timeout(postgres: Cluster) -> None:
    async with behind_a_proxy(postgres) as (store, proxy):
        (session_id,) = await create_sessions(store, 1)
        lease = await store.ownership.claim(session_id)
        await lease.commit(Commit(turn_id="turn_1", events=[token("first")]))
        commit = Commit(turn_id="turn_1", events=[token("a")])
        before = proxy.passed["requests"]
        proxy.cut_after(1, "answers")  # of the commit, which is stored
        await proxy.refuse()
        began = time.monotonic()
        with impatient(store), pytest.raises(OutcomeUnknown, match=r"cannot be reached|has not answered"):
            await lease.commit(commit)
        assert time.monotonic() - began > TIMEOUT_SECONDS / 2
        assert proxy.passed["requests"] > before
        with pytest.raises(OutcomeUnknown, match="an earlier write"):
            await lease.commit(Commit(turn_id="turn_1", events=[token("b")]))
        await proxy.accept()
        (event,) = await lease.commit(commit)
        assert (await stored_events(store, session_id))[1:] == [event]


async def test_a_commit_that_was_never_sent_is_known_not_to_be_stored(postgres: Cluster) -> None:
    async with behind_a_proxy(postgres) as (store, proxy):
        (session_id,) = await create_sessions(store, 1)
        writer = LoadWriter(store, session_id)
        await writer.claim()
        await writer.commit()
        await end_connections(proxy)
        connection = store._database.writer._connection  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        await wait_until(connection.is_closed)
        began = time.monotonic()
        with impatient(store), pytest.raises(StoreError, match="cannot be reached") as caught:
            await writer.commit()
        assert not isinstance(caught.value, OutcomeUnknown)
        assert time.monotonic() - began > TIMEOUT_SECONDS / 2
        await proxy.accept()
        await writer.commit()
        assert await store.log.head(session_id) == 2


@pytest.mark.ci_lane
async def test_a_silent_server_is_waited_for_no_longer_than_the_timeout(postgres: Cluster) -> None:
    async with behind_a_proxy(postgres) as (store, proxy):
        (session_id,) = await create_sessions(store, 1)
        lease = await store.ownership.claim(session_id)
        await lease.commit(Commit(turn_id="turn_1", events=[token("first")]))
        proxy.pause()
        commit = Commit(turn_id="turn_1", events=[token("a")])
        began = time.monotonic()
        with impatient(store):
            with pytest.raises(OutcomeUnknown):
                await lease.commit(commit)
            with pytest.raises(StoreError, match=f"has not answered for {TIMEOUT_SECONDS:g} seconds"):
                await store.log.head(session_id)
        assert time.monotonic() - began < 9.0  # and not the ten seconds of an attempt, which are for slow servers
        proxy.resume()
        (event,) = await lease.commit(commit)
        assert (event.seq, await store.log.head(session_id)) == (2, 2)


async def test_readers_keep_their_streams_over_an_outage(postgres: Cluster) -> None:
    async with (
        behind_a_proxy(postgres) as (reading, proxy),
        open_postgres(reading_url(postgres, reading)) as store,
    ):
        (session_id,) = await create_sessions(store, 1)
        writer, reader = LoadWriter(store, session_id), LoadReader(reading, session_id)
        await writer.claim()
        following = asyncio.create_task(reader.follow(lambda: len(reader.seen) == 3))
        for number in range(1, 4):
            await writer.commit()
            if number < 3:
                await wait_until(
                    lambda: len(reader.seen) == len(writer.stored),
                    state=lambda: f"{len(reader.seen)} of {len(writer.stored)} events are read, {following!r}",
                )
                await end_connections(proxy)
                if number == 1:
                    await proxy.accept()
        await proxy.accept()
        await following
        assert reader.seen == writer.stored


def reading_url(server: Cluster, store: PostgresStore) -> str:
    """Return the URL of the store's database without the proxy."""
    return server.url(store._database.server.url.rpartition("/")[2])  # pyright: ignore[reportPrivateUsage]


def hub_over(store: PostgresStore, folder: Path, script: Sequence[Any], *tools: Tool) -> Hub:
    model = ScriptedModel(script)
    settings = load_settings({"home": folder / "home", "workspace_root": folder}, environ={})
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings)


@pytest.mark.ci_lane
async def test_a_turn_waits_for_the_database_and_goes_on(postgres: Cluster, tmp_path: Path) -> None:
    async with behind_a_proxy(postgres) as (store, proxy):
        words = [part for number in range(20) for part in (say(f"word{number} "), pause(0.02))]
        hub = hub_over(store, tmp_path, [words])
        record = await hub.create(name="s")
        await hub.start(record.id, TurnRequest(input="Go."))
        await wait_for_event(store, record.id, "token")
        await end_connections(proxy)
        await wait_until(lambda: store._database.server.error)  # pyright: ignore[reportPrivateUsage]
        await proxy.accept()
        events = await wait_for_turn_end(store, record.id)
        assert json.loads(events[-1].frame_json)["data"]["text"] == "".join(f"word{number} " for number in range(20))
        await hub.close()


@pytest.mark.ci_lane
async def test_a_turn_that_waits_too_long_ends_with_an_error_of_the_storage(postgres: Cluster, tmp_path: Path) -> None:
    works, is_cut = asyncio.Event(), asyncio.Event()

    @tool(risk="read")
    async def work() -> str:
        """Work until the database cannot be reached: no commit is under way then."""
        works.set()
        await is_cut.wait()
        return "done"

    async with behind_a_proxy(postgres) as (store, proxy):
        hub = hub_over(store, tmp_path, [call("work"), *["again"] * 2], work)
        record = await hub.create(name="s")
        turn = await hub.start(record.id, TurnRequest(input="Go."))
        await works.wait()
        with impatient(store):
            await end_connections(proxy)
            is_cut.set()
            with pytest.raises(StoreError):
                await hub.start(record.id, TurnRequest(input="Another."))
            await hub.wait_for_turn(record.id, turn.id)  # else it may go on, as its own commit began later
        await proxy.accept()
        await hub.start(record.id, TurnRequest(input="Again."))
        events = await wait_for_turn_end(store, record.id, ends=2)
        ends = [event for event in events if event.terminal]
        assert [event.type for event in ends] == ["error", "final"]
        assert json.loads(ends[0].frame_json)["data"]["code"] == "storage"
        await hub.close()
