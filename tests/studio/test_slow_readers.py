"""What readers that read slowly or not at all cost the server, and what they get."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import Message

from agenticx.clocks import ScaledClock
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.sessions.base import SessionRecord
from agenticx.sessions.memory import MemoryStore
from studio.relay import Relay
from tests.studio.running import frames_of, until
from tests.studio.serving import Served, agx_serve

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
READERS = 100
RETRY = b"retry: 500\n\n"
BEAT = b": beat\n\n"


def resident(served: Served) -> int:
    """The server's memory in bytes."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def stopped_readers(served: Served, path: str) -> Generator[None]:
    """Connections that ask for the stream and take nothing."""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n\r\n"
    with ExitStack() as open_ones:
        for _ in range(READERS):
            quiet = open_ones.enter_context(socket.socket())
            quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            quiet.connect(("127.0.0.1", served.port))
            quiet.sendall(head.encode())
        yield


async def open_streams(client: httpx.AsyncClient, count: int) -> None:
    """Return once the server holds so many streams."""
    async with asyncio.timeout(20):
        while (await client.get("/api/ready")).json()["streams"] < count:
            await asyncio.sleep(0.02)


async def last_frame(client: httpx.AsyncClient, path: str, cursor: str) -> bytes:
    """What stands behind `cursor`, up to the end of the next frame."""
    async with client.stream("GET", path, headers={"Last-Event-ID": cursor}, timeout=60) as answer:
        got = bytearray()
        async for piece in answer.aiter_raw():
            got += piece.removeprefix(RETRY)
            if got.endswith(b"\n\n") and not got.endswith(BEAT):
                return bytes(got)
    raise AssertionError("the stream ended")


@pytest.mark.promise("B3")
async def test_a_hundred_readers_that_stopped_cost_bounded_memory_whatever_the_events_weigh(tmp_path: Path) -> None:
    async with agx_serve(tmp_path / "home") as served, served.client(200) as client:
        session_id = (await client.post("/api/sessions", json={})).json()["id"]
        path = f"/api/sessions/{session_id}/events"
        message = {"input": "say " + "y" * 3 * MEGABYTE}
        assert (await client.post(f"/api/sessions/{session_id}/turns", json=message, timeout=60)).status_code == 202
        async with client.stream("GET", path, timeout=60) as answer:
            log = await until(frames_of(answer), "final")
        before_last = log[-2].id or ""
        before = resident(served)
        with stopped_readers(served, path):
            await open_streams(client, READERS)
            reading = [asyncio.create_task(last_frame(client, path, before_last)) for _ in range(READERS)]
            got = await asyncio.gather(*reading)
            grown = resident(served) - before
        assert {len(frame) for frame in got} == {len(log[-1].raw) + 2}
        assert grown <= 150 * MEGABYTE


async def test_no_heartbeat_falls_into_an_event_that_goes_out_in_pieces() -> None:
    store = MemoryStore()
    session = SessionRecord(workspace="/", created_at="now")
    await store.create(session)
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * MEGABYTE, "message_id": "m", "offset": 0})
    await store.append(session.id, None, [large], expected_seq=0)
    stream = Relay(store, clock=ScaledClock(1000)).respond(session.id, None)  # a heartbeat each 10 ms
    sent: list[bytes] = []
    enough = asyncio.Event()

    async def send(message: Message) -> None:
        await asyncio.sleep(0.005)  # what the socket takes for a piece
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
