"""Readers that stop reading: their cost in memory, and when they are dropped."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agenticx.runtime import EventType, RuntimeEvent
from tests.support.commits import append
from tests.support.server.agx_processes import ServedStudio
from tests.support.server.running_studio import TOKEN, RunningStudio
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import PATIENCE, wait_until

__all__ = [
    "MAX_MEMORY",
    "check_stalled_request_is_dropped",
    "memory_growth_for_stopped_readers",
    "wait_until_answered",
]

MEGABYTE = 1024 * 1024
MAX_MEMORY = 150 * MEGABYTE


async def memory_growth_for_stopped_readers(served: ServedStudio, readers: int) -> int:
    """Return by how many bytes the server's memory grew while readers stopped in a log of large events.

    A fifth as many other readers read all of it meanwhile.
    """
    async with served.client(2 * readers) as client:
        session_id = (await client.post("/api/sessions", json={"name": "Large"})).json()[
            "id"
        ]  # with a name, so that no turn adds a naming event
        path = f"/api/sessions/{session_id}/events"
        message = {"input": "say " + "y" * 3 * MEGABYTE}
        assert (await client.post(f"/api/sessions/{session_id}/turns", json=message)).status_code == 202
        log = StreamClient(served.port, path, served.token)
        await log.read(lambda log: bool(log.ended_turns))
        late = [StreamClient(served.port, path, served.token, frames=log.frames[:-1]) for _ in range(readers // 5)]
        before = resident_bytes(served)
        with stopped_readers(served, path, readers) as stopped:
            await wait_until_answered(stopped)
            await asyncio.gather(*(reader.read(lambda reader: bool(reader.ended_turns)) for reader in late))
            grown = resident_bytes(served) - before
    assert all(reader.frames == log.frames for reader in late)
    return grown


async def check_stalled_request_is_dropped(studio: RunningStudio, read_part: str, *, seconds: float = PATIENCE) -> None:
    """Check that a client that stops reading a long response is dropped within `seconds` of real time.

    Until then less than 256 KiB are buffered for it.
    """
    session_id = await studio.session()
    large = RuntimeEvent(EventType.TOKEN, {"text": "x" * MEGABYTE, "message_id": "m", "offset": 0})
    await append(studio.services.store, session_id, None, [large] * 3)
    await studio.client.aclose()
    connections = studio.server.server_state.connections
    await wait_until(lambda: not connections)
    studio.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as quiet:
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        quiet.connect(("127.0.0.1", studio.port))
        head = f"GET /api/sessions/{session_id}/messages HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
        quiet.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        await wait_until(lambda: connections)
        (connection,) = connections
        async with asyncio.timeout(PATIENCE):
            while read_part != "nothing" and not (connection.cycle and connection.cycle.response_complete):
                await asyncio.to_thread(quiet.recv, 4096)
        async with asyncio.timeout(PATIENCE):
            while (waiting := connection.transport.get_write_buffer_size()) == 0:
                await asyncio.sleep(0.001)
        assert waiting < MEGABYTE // 4
        async with asyncio.timeout(seconds):
            await wait_until(lambda: not connections)


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
    await wait_until(lambda: len(begun.poll(0)) >= len(stopped))


def resident_bytes(served: ServedStudio) -> int:
    """Return the server's resident memory in bytes."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
