"""Readers that are slow or do not read at all: their cost for the server, and the events they get."""

from __future__ import annotations

import asyncio
import gc
import json
import select
import socket
import tracemalloc
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.types import Message

from agenticx.clocks import ScaledClock
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions.store.memory import MemoryStore
from agenticx.sessions.store.records import SessionRecord
from studio.http.write_timeout import WriteTimeoutMiddleware
from studio.relay import Relay
from tests.support.commits import append
from tests.support.patience import PATIENCE, PatientClock, comes_true
from tests.support.server.reading import Reader
from tests.support.server.running import TOKEN, Studio, StudioMaker
from tests.support.server.serving import ServedStudio, agx_serve
from tests.support.server.stream_checks import stalled_reader

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
READERS = 100
MAX_MEMORY = 150 * MEGABYTE
BEAT = b": beat\n\n"


def resident_bytes(served: ServedStudio) -> int:
    """Return the server's resident memory in bytes."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def stopped_readers(served: ServedStudio, path: str, count: int) -> Generator[Sequence[socket.socket]]:
    """Yield connections that request the stream and never read."""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n\r\n"
    stopped: list[socket.socket] = []
    with ExitStack() as open_ones:
        for _ in range(count):
            quiet = open_ones.enter_context(socket.socket())
            quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            quiet.connect(("127.0.0.1", served.port))
            quiet.sendall(head.encode())
            stopped.append(quiet)
        yield stopped


async def wait_until_answered(stopped: Sequence[socket.socket]) -> None:
    """Wait until the server has started to respond to all of them; the first may already have been dropped again."""
    begun = select.poll()
    for quiet in stopped:
        begun.register(quiet, select.POLLIN)
    async with asyncio.timeout(PATIENCE):
        while len(begun.poll(0)) < len(stopped):
            await asyncio.sleep(0.02)


@pytest.mark.promise("B3")
async def test_a_hundred_stopped_readers_cost_bounded_memory_at_any_event_size(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served:
        assert await memory_growth_for_stopped_readers(served, READERS) <= MAX_MEMORY


async def memory_growth_for_stopped_readers(served: ServedStudio, readers: int) -> int:
    """Return by how many bytes the server's memory grew while readers stopped in a log of large events.

    As many other readers read all of it meanwhile.
    """
    async with served.client(2 * readers) as client:
        session_id = (await client.post("/api/sessions", json={"name": "Large"})).json()[
            "id"
        ]  # with a name, so that no turn adds a naming event
        path = f"/api/sessions/{session_id}/events"
        message = {"input": "say " + "y" * 3 * MEGABYTE}
        assert (await client.post(f"/api/sessions/{session_id}/turns", json=message)).status_code == 202
        log = Reader(served.port, path, served.token)
        await log.read(lambda log: bool(log.ended_turns))
        late = [Reader(served.port, path, served.token, frames=log.frames[:-1]) for _ in range(readers)]
        before = resident_bytes(served)
        with stopped_readers(served, path, readers) as stopped:
            await wait_until_answered(stopped)
            await asyncio.gather(*(reader.read(lambda reader: bool(reader.ended_turns)) for reader in late))
            grown = resident_bytes(served) - before
    assert all(reader.frames == log.frames for reader in late)
    return grown


@pytest.mark.promise("B3")
async def test_dropped_readers_leave_no_large_event_in_memory(make_studio: StudioMaker) -> None:
    async with make_studio(clock=PatientClock({10.0: 5.0})) as studio:
        with without_collector():
            assert await memory_left_by_dropped_readers(studio, 20) < 20 * MEGABYTE


async def memory_left_by_dropped_readers(studio: Studio, readers: int) -> int:
    """Return the bytes that stay in memory after so many readers were dropped in the middle of a large event."""
    session_id, relay = await studio.session(), studio.services.relay
    for _ in range(3):
        large = RuntimeEvent(EventType.TOKEN, {"text": "x" * 3 * MEGABYTE, "message_id": "m", "offset": 0})
        await append(studio.services.store, session_id, None, [large])
    before, _ = tracemalloc.get_traced_memory()
    with ExitStack() as stopped:
        for _ in range(readers):
            stopped.enter_context(stalled_reader(studio, session_id))
        await comes_true(lambda: relay.readers == readers)
        await comes_true(lambda: relay.readers == 0)
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
    await append(store, session.id, None, [large])
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


async def check_stalled_request_is_dropped(studio: Studio, read_part: str, *, seconds: float = PATIENCE) -> None:
    """Check that a client that stops reading a long response is dropped within `seconds` of real time.

    Until then less than 256 KiB are buffered for it.
    """
    session_id = await studio.session()
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * MEGABYTE, "message_id": "m", "offset": 0})
    await append(studio.services.store, session_id, None, [large] * 3)
    await studio.client.aclose()
    connections = studio.server.server_state.connections
    async with asyncio.timeout(PATIENCE):
        while connections:
            await asyncio.sleep(0.01)
    studio.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as quiet:
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        quiet.connect(("127.0.0.1", studio.port))
        head = f"GET /api/sessions/{session_id}/messages HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
        quiet.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            while not connections:
                await asyncio.sleep(0.01)
        (connection,) = connections
        async with asyncio.timeout(PATIENCE):
            while read_part != "nothing" and not (connection.cycle and connection.cycle.response_complete):
                await asyncio.to_thread(quiet.recv, 4096)
        async with asyncio.timeout(PATIENCE):
            while (waiting := connection.transport.get_write_buffer_size()) == 0:
                await asyncio.sleep(0.001)
        assert waiting < MEGABYTE // 4
        async with asyncio.timeout(seconds):
            while connections:
                await asyncio.sleep(0.01)
