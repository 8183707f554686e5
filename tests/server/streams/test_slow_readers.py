"""Readers that are slow or do not read at all: their cost for the server, and the events they get."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.types import Message

from agenticx.clocks import ScaledClock
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions.store.base import SessionRecord
from agenticx.sessions.store.memory import MemoryStore
from studio.http.write_timeout import WriteTimeoutMiddleware
from studio.relay import Relay
from tests.support.server.agx_processes import agx_serve
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.server.slow_readers import (
    MAX_MEMORY,
    check_stalled_request_is_dropped,
    memory_growth_for_stopped_readers,
)
from tests.support.server.stream_checks import stalled_reader
from tests.support.timeouts import PatientClock, wait_until

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
READERS = 100
BEAT = b": beat\n\n"


@pytest.mark.promise("B3")
async def test_a_hundred_stopped_readers_cost_bounded_memory_at_any_event_size(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served:
        assert await memory_growth_for_stopped_readers(served, READERS) <= MAX_MEMORY


@pytest.mark.promise("B3")
async def test_dropped_readers_leave_no_large_event_in_memory(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 5.0})) as studio:
        with without_collector():
            assert await memory_left_by_dropped_readers(studio, 20) < 20 * MEGABYTE


async def memory_left_by_dropped_readers(studio: RunningStudio, readers: int) -> int:
    """Return the bytes that stay in memory after so many readers were dropped in the middle of a large event."""
    session_id, relay = await studio.session(), studio.services.relay
    for seq in range(3):
        large = RuntimeEvent(EventType.TOKEN, {"text": "x" * 3 * MEGABYTE, "message_id": "m", "offset": 0})
        await studio.services.store.append(session_id, None, [large], expected_seq=seq)
    before, _ = tracemalloc.get_traced_memory()
    with ExitStack() as stopped:
        for _ in range(readers):
            stopped.enter_context(stalled_reader(studio, session_id))
        await wait_until(lambda: relay.readers == readers)
        await wait_until(lambda: relay.readers == 0)
    return tracemalloc.get_traced_memory()[0] - before


@contextmanager
def without_collector() -> Generator[None]:
    """Turn the garbage collector off and trace memory, so that unreachable cycles stay and are counted."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_no_heartbeat_is_written_between_the_chunks_of_an_event() -> None:
    store = MemoryStore()
    session = SessionRecord(workspace="/", created_at="now")
    await store.create(session)
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * MEGABYTE, "message_id": "m", "offset": 0})
    await store.append(session.id, None, [large], expected_seq=0)
    relay = Relay(store, clock=ScaledClock(1000))  # sends a heartbeat every 10 ms
    stream = WriteTimeoutMiddleware(await relay.respond(session.id, None))
    sent: list[bytes] = []
    enough = asyncio.Event()

    async def send(message: Message) -> None:
        await asyncio.sleep(0.005)  # the time in which the socket drains a chunk
        sent.append(message.get("body", b""))
        if sent[-1] == BEAT and sum(map(len, sent)) > MEGABYTE:
            enough.set()

    async def receive() -> Message:
        await enough.wait()
        return {"type": "http.disconnect"}

    await stream({"type": "http", "method": "GET"}, receive, send)
    (frame,) = (block for block in b"".join(sent).split(b"\n\n") if block.startswith(b"id: "))
    assert json.loads(frame.partition(b"data: ")[2])["data"] == large.data
    assert max(len(piece) for piece in sent) <= 64 * 1024


@pytest.mark.promise("B3")
@pytest.mark.parametrize("read_part", ["nothing", "all but the end"])
@pytest.mark.cases(quick=1)
async def test_a_client_that_stops_reading_a_long_response_is_dropped(make_studio: StudioMaker, read_part: str) -> None:
    async with make_studio(clock=PatientClock({10.0: 5.0, 30.0: 4.0})) as studio:
        await check_stalled_request_is_dropped(studio, read_part)
