"""Readers that are slow or do not read at all: their cost for the server, and the events they get."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import tracemalloc
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from studio.http.response_writer import WRITE_TIMEOUT_SECONDS
from tests.support.commits import append
from tests.support.server.agx_processes import agx_serve, outcome
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.server.slow_readers import (
    MAX_MEMORY,
    check_stalled_request_is_dropped,
    memory_growth_for_stopped_readers,
    wait_until_answered,
)
from tests.support.server.stream_checks import stalled_reader
from tests.support.timeouts import PATIENCE, PatientClock, wait_until

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
READERS = 100
BEAT = b": beat\n\n"


@pytest.mark.ci_lane
@pytest.mark.promise("B3")
async def test_a_hundred_stopped_readers_cost_bounded_memory_at_any_event_size(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served:
        assert await memory_growth_for_stopped_readers(served, READERS) <= MAX_MEMORY


@pytest.mark.ci_lane
@pytest.mark.promise("B3")
async def test_dropped_readers_leave_no_large_event_in_memory(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 2.5})) as studio:
        with without_collector():
            assert await memory_left_by_dropped_readers(studio, 20) < 20 * MEGABYTE


async def memory_left_by_dropped_readers(studio: RunningStudio, readers: int) -> int:
    """Return the bytes that stay in memory after so many readers were dropped in the middle of a large event."""
    session_id, relay = await studio.session(), studio.services.relay
    for _ in range(3):
        large = RuntimeEvent(EventType.TOKEN, {"text": "x" * 3 * MEGABYTE, "message_id": "m", "offset": 0})
        await append(studio.services.store, session_id, None, [large])
    before, _ = tracemalloc.get_traced_memory()
    with ExitStack() as stopped:
        await wait_until_answered([stopped.enter_context(stalled_reader(studio, session_id)) for _ in range(readers)])
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


async def test_a_server_ends_soon_beside_readers_that_read_nothing(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client() as client:
        session = (await client.post("/api/sessions", json={})).json()["id"]
        for _ in range(3):
            turn = {"input": "x" * 400_000, "when_busy": "queue"}
            assert (await client.post(f"/api/sessions/{session}/turns", json=turn)).status_code == 202
        with ExitStack() as stopped:
            for path in (f"/api/sessions/{session}/events", f"/api/sessions/{session}/export?format=jsonl"):
                reader = stopped.enter_context(socket.create_connection(("127.0.0.1", served.port)))
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}"
                reader.sendall(f"{head}\r\n\r\n".encode())
                assert await asyncio.to_thread(reader.recv, 1) == b"H"
            began = time.monotonic()
            served.process.terminate()
            assert await outcome(served.process) == (0, "", "")
            assert time.monotonic() - began < WRITE_TIMEOUT_SECONDS


@pytest.mark.ci_lane
async def test_no_heartbeat_is_written_between_the_chunks_of_an_event(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 1.0})) as studio:
        session_id = await studio.session()
        large = RuntimeEvent(EventType.TOKEN, {"text": "x" * MEGABYTE, "message_id": "m", "offset": 0})
        await append(studio.services.store, session_id, None, [large])
        with stalled_reader(studio, session_id, buffer_bytes=32 * 1024) as slow:
            received = await asyncio.to_thread(read_slowly, slow)
    chunks = list(chunks_of(received.partition(b"\r\n\r\n")[2]))
    first, last = (index for index, chunk in enumerate(chunks) if chunk.startswith(b"id: ") or chunk.endswith(b"}\n\n"))
    assert json.loads(b"".join(chunks[first : last + 1]).partition(b"data: ")[2])["data"] == large.data
    assert max(len(chunk) for chunk in chunks) == 64 * 1024
    assert chunks[last + 1] == BEAT


def read_slowly(reader: socket.socket) -> bytes:
    """Read until a heartbeat that follows an event of a megabyte; the reading takes several heartbeats' time."""
    received = b""
    reader.settimeout(PATIENCE)
    while not (len(received) > MEGABYTE and received.endswith(BEAT + b"\r\n")):
        time.sleep(0.1)
        data = reader.recv(32 * 1024)
        assert data, "the connection was closed"
        received += data
    return received


def chunks_of(body: bytes) -> Iterator[bytes]:
    """Yield the chunks of a body in chunked transfer coding."""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]


@pytest.mark.ci_lane
@pytest.mark.promise("B3")
@pytest.mark.parametrize("read_part", ["nothing", "all but the end"])
async def test_a_client_that_stops_reading_a_long_response_is_dropped(make_studio: StudioMaker, read_part: str) -> None:
    async with make_studio(clock=PatientClock({10.0: 2.5, 30.0: 2.0})) as studio:
        await check_stalled_request_is_dropped(studio, read_part)
