"""A TCP proxy between clients and a server that cuts, holds and refuses connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from agenticx.testing._accepted import AcceptedConnections
from tests.support.postgres.cluster import free_port

__all__ = ["Direction", "FaultyProxy", "through"]

Direction = Literal["requests", "answers"]
"""What clients send, and what the server sends."""

_NO_LINGER = struct.pack("ii", 1, 0)
_PIECE = 1 << 16  # bytes


@dataclass(eq=False)
class FaultyProxy:
    """A proxy to the server on port `upstream` of 127.0.0.1, which may change: it applies to new connections."""

    upstream: int
    port: int = field(default_factory=free_port)
    connections: int = 0
    """How many connections it has accepted."""
    cuts: int = 0
    """How many connections it has cut."""
    passed: dict[Direction, int] = field(default_factory=lambda: {"requests": 0, "answers": 0})
    """How many bytes it has passed on."""

    def __post_init__(self) -> None:
        self._accepted = AcceptedConnections(self._serve)
        self._server: asyncio.Server | None = None
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._budgets: dict[Direction, int] = {}
        self._passing = asyncio.Event()
        self._passing.set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[FaultyProxy]:
        """Accept connections on `port` until the end of the body."""
        await self.accept()
        try:
            yield self
        finally:
            self._passing.set()
            await self._accepted.end(*([] if self._server is None else [self._server]))

    # --- faults

    def cut(self) -> None:
        """Reset all connections at both ends; what was not passed on yet is lost."""
        for ends in self._open:
            self.cuts += 1
            for end in ends:
                _reset(end)
        self._open.clear()

    def cut_after(self, count: int, of: Direction) -> None:
        """Cut all connections as soon as so many further bytes were passed on, over all connections together."""
        assert count > 0
        self._budgets[of] = count

    def pause(self) -> None:
        """Hold all bytes in both directions, and new connections, until `resume`: the network is silent."""
        self._passing.clear()

    def resume(self) -> None:
        """Pass on what was held since `pause`."""
        self._passing.set()

    async def refuse(self) -> None:
        """Refuse new connections until `accept`; open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        """Accept new connections, again after `refuse`."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    # --- connections

    async def connect_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server; raises `OSError`."""
        return await asyncio.open_connection("127.0.0.1", self.upstream)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._passing.wait()
        try:
            from_server, to_server = await self.connect_upstream()
        except OSError:
            return _reset(writer)
        ends = (writer, to_server)
        self._open.add(ends)
        copies = [
            asyncio.ensure_future(self._copy(reader, to_server, "requests")),
            asyncio.ensure_future(self._copy(from_server, writer, "answers")),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(ends)
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            for end in ends:
                end.close()  # after a cut it is closed already

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                await self._passing.wait()
                budget = self._budgets.get(direction)
                if budget is not None and len(piece) >= budget:
                    writer.write(piece[:budget])
                    await writer.drain()
                    self.passed[direction] += budget
                    del self._budgets[direction]
                    return self.cut()
                if budget is not None:
                    self._budgets[direction] = budget - len(piece)
                writer.write(piece)
                self.passed[direction] += len(piece)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):  # it is closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def through(proxy: FaultyProxy, url: str) -> str:
    """Return the URL of the same database behind the proxy."""
    scheme, _, rest = url.partition("@")
    return f"{scheme}@127.0.0.1:{proxy.port}/{rest.partition('/')[2]}"
