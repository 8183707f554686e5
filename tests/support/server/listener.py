"""A server that notes what pages ask it for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Listener", "listening"]


@dataclass
class Listener:
    """A server for what pages send: `requests` are the paths of HTTP requests; `/` answers with `page`."""

    port: int
    requests: list[str] = field(default_factory=list[str])
    page: str = ""

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    writers: list[asyncio.StreamWriter] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        line = await reader.readline()
        if re.fullmatch(rb"[A-Z]+ \S+ HTTP/\d\.\d\r\n", line):
            found.requests.append(line.decode().split()[1])
            body = found.page.encode() if found.requests[-1] == "/" else b""
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nContent-Type: text/html\r\nConnection: close"
            writer.write(head.encode() + b"\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    found = Listener(server.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        server.close()
        for writer in writers:  # a blocked frame opens a connection without a request
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
