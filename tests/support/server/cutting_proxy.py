"""A proxy that ends its first connections after random byte counts, by EOF and reset in turn."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from agenticx.testing._accepted import AcceptedConnections

__all__ = ["CuttingProxy"]

_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass
class CuttingProxy:
    """A proxy to the server on port `upstream`, which may change; it cuts each response after the next of `budgets`.

    Once all budgets are used up it passes everything. Connections made while no server listens are reset.
    """

    budgets: list[int]
    upstream: int = 0
    port: int = 0
    cuts: int = 0
    connections: int = 0

    @classmethod
    def random(cls, rng: random.Random, *, cuts: int, total_bytes: int) -> CuttingProxy:
        """Return a proxy whose cuts have all occurred before `total_bytes` were passed."""
        return cls([rng.randrange(1, 4 * total_bytes // (3 * cuts)) for _ in range(cuts)])

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[CuttingProxy]:
        accepted = AcceptedConnections(self._serve)
        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            await accepted.end(server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream_writer: asyncio.StreamWriter | None = None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            sending = asyncio.create_task(_copy(reader, upstream_writer))
            try:
                await self._answer(upstream_reader, writer)
            finally:
                sending.cancel()
        except OSError:
            _reset(writer)
        finally:
            for end in (writer, upstream_writer):
                if end is not None:
                    end.transport.abort()

    async def _answer(self, answer: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        budget = self.budgets.pop(0) if self.budgets else None
        try:
            while piece := await answer.read(1 << 16):
                if budget is not None and len(piece) >= budget:
                    writer.write(piece[:budget])
                    budget = None
                    return await self._cut(writer)
                budget = None if budget is None else budget - len(piece)
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        finally:
            if budget is not None:  # the server or the client closed the connection: the cut is still to come
                self.budgets.insert(0, budget)

    async def _cut(self, writer: asyncio.StreamWriter) -> None:
        self.cuts += 1
        if self.cuts % 2:
            _reset(writer)
        else:
            with suppress(OSError):
                await writer.drain()
                writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
