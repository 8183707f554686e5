"""A raw HTTP server on loopback that sends the same head and given chunks to every request."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agenticx.testing._accepted import AcceptedConnections


@dataclass
class ChunkServer:
    """The state of a running server: its address, connections and requests; `client_gone` is set at a disconnect."""

    base_url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def chunk_server(
    pieces: Callable[[], Iterable[bytes]],
    *,
    head: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
    then_silent: bool = False,
    then_closed: bool = False,
    then_reset: bool = False,
    seconds_between: float = 0.0,
    port: int = 0,
) -> AsyncIterator[ChunkServer]:
    """Serve `head` and each piece as an HTTP chunk of its own, with `seconds_between` of the loop's time between them.

    `pieces` is called for each request. After that the connection is kept for the next request, left silent, closed or
    reset.
    """
    state = ChunkServer()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            lengths = (line for line in request.lower().split(b"\r\n") if line.startswith(b"content-length"))
            length = next(lengths, b"none: 0")
            state.requests.append(request + await reader.readexactly(int(length.partition(b":")[2])))
            writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
            for number, piece in enumerate(pieces()):
                if number and seconds_between:
                    await asyncio.sleep(seconds_between)
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if number % 64 == 0:
                    await writer.drain()
                    await asyncio.sleep(0)
            if then_silent or then_closed or then_reset:
                await writer.drain()
                await (reader.read() if then_silent else _disconnect(writer, reset=then_reset))
                return
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            state.client_gone.set()
            writer.close()

    accepted = AcceptedConnections(serve)
    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    state.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        await accepted.end(server)


async def _disconnect(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
