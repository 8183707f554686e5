"""The contract of shared values, for each implementation."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import ExitStack
from functools import partial

import pytest

from agenticx.errors import StoreError
from agenticx.shared_state.values import MemorySharedValues, SharedValues
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.proxy import FaultyProxy, through

pytestmark = pytest.mark.anyio

MakeWorker = Callable[[], SharedValues]


_IN_A_DATABASE = [pytest.param(name, marks=pytest.mark.ci_lane) for name in ("postgres", "pooled postgres")]


@pytest.fixture(params=["memory", *_IN_A_DATABASE])
async def worker(request: pytest.FixtureRequest) -> AsyncGenerator[MakeWorker]:
    """Yield a function that returns the values of another worker."""
    if request.param == "memory":
        values = MemorySharedValues()
        yield lambda: values
        return
    from agenticx.sessions.store.postgres import PostgresValues

    url = await request.getfixturevalue("postgres").fresh_database()
    is_pooled = request.param == "pooled postgres"
    with ExitStack() as closing:
        yield lambda: closing.enter_context(contextlib.closing(PostgresValues(url, is_pooled=is_pooled)))


def run_at_once(calls: Iterable[Callable[[], bytes | None]]) -> list[bytes | None]:
    """Return the results of the calls, which threads begin at once."""
    calls, results = list(calls), list[bytes | None]()
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], bytes | None]) -> None:
        barrier.wait()
        results.append(call())

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


async def test_each_worker_sees_what_another_one_stores_and_removes(worker: MakeWorker) -> None:
    one, two = worker(), worker()
    assert one.get("a") is None
    one.put("a", b"\x00\xff")
    one.put("a/b", b"1", seconds=1000.0)
    one.put("a%", b"2")
    one.put("a_b", b"")
    one.put("b", b"3")
    assert (two.get("a"), two.get("a/b"), two.get("a_b"), two.get("")) == (b"\x00\xff", b"1", b"", None)
    assert two.items("a/") == {"a/b": b"1"}
    assert two.items("a%") == {"a%": b"2"}
    assert two.items("a_") == {"a_b": b""}
    assert two.items("").keys() == {"a", "a/b", "a%", "a_b", "b"}
    two.put("a", b"new")
    assert one.get("a") == b"new"
    assert (one.take("a"), two.take("a"), two.get("a")) == (b"new", None, None)


async def test_a_value_expires_and_makes_room_for_another(worker: MakeWorker) -> None:
    one, two = worker(), worker()
    for name in ("a", "b", "c"):
        one.put(name, b"old", seconds=0.0)
    assert (two.get("a"), two.take("b"), two.items("")) == (None, None, {})
    assert two.put_if_absent("c", b"new") == b"new"
    one.put("d", b"kept", seconds=0.0)
    one.put("d", b"kept")
    assert two.items("") == {"c": b"new", "d": b"kept"}


async def test_values_are_replaced_together_or_not_at_all(worker: MakeWorker) -> None:
    one, two = worker(), worker()
    one.put("a", b"1")
    one.put("b", b"2", seconds=1000.0)
    one.put("gone", b"3", seconds=0.0)
    assert two.replace({"a": (b"1", b"one"), "b": (b"2", b"two")})
    for changes in ({"b": (b"2", b"3")}, {"c": (b"", b"3")}, {"gone": (b"3", b"4")}):
        assert not two.replace({"a": (b"one", b"1"), **changes})
    assert one.items("") == {"a": b"one", "b": b"two"}
    assert two.replace({})


async def test_of_workers_that_begin_at_once_one_stores_and_one_takes(worker: MakeWorker) -> None:
    workers = [worker() for _ in range(4)]
    for name in [f"n{number}" for number in range(10)]:
        stored = run_at_once(partial(one.put_if_absent, name, b"%d" % number) for number, one in enumerate(workers))
        assert len(set(stored)) == 1
        assert stored[0] in (b"0", b"1", b"2", b"3")
        taken = run_at_once(partial(one.take, name) for one in workers)
        assert sorted(taken, key=lambda value: value is None) == [stored[0], None, None, None]


async def test_a_call_that_waits_for_the_database_ends_with_the_values(postgres: Cluster) -> None:
    from agenticx.sessions.store.postgres import PostgresValues

    url = await postgres.fresh_database()
    async with FaultyProxy(postgres.port).listening() as proxy:
        values = await asyncio.to_thread(PostgresValues, through(proxy, url))
        await asyncio.to_thread(values.put, "a", b"1")
        proxy.pause()
        waiting = asyncio.create_task(asyncio.to_thread(values.get, "a"))
        assert await asyncio.wait([waiting], timeout=0.1) == (set(), {waiting})
        values.close()
        for call in (waiting, asyncio.to_thread(values.get, "a")):
            with pytest.raises(StoreError, match="the shared values are closed"):
                await call
        proxy.resume()
