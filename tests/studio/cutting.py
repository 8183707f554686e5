"""A proxy that ends its first connections after a random number of bytes, in turns politely and by a reset."""

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
    """Lies between a client and the server on port `upstream`, which may change; cuts `budgets` bytes into each answer.

    Once all budgets are used up it lets everything through. Connections that come while no server listens are reset.
    """

    budgets: list[int]
    upstream: int = 0
    port: int = 0
    cuts: int = 0
    connections: int = 0

    @classmethod
    def random(cls, rng: random.Random, *, cuts: int, bytes_in_all: int) -> CuttingProxy:
        """Cuts that will all have come before `bytes_in_all` have gone through."""
        return cls([rng.randrange(1, 4 * bytes_in_all // (3 * cuts)) for _ in range(cuts)])

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[CuttingProxy]:
        accepted = AcceptedConnections(self._serve)
        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await accepted.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        above: asyncio.StreamWriter | None = None
        try:
            answer, above = await asyncio.open_connection("127.0.0.1", self.upstream)
            sending = asyncio.create_task(_copy(reader, above))
            try:
                await self._answer(answer, writer)
            finally:
                sending.cancel()
        except OSError:
            _reset(writer)
        finally:
            for end in (writer, above):
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
            if budget is not None:  # the server or the client ended it: that is no cut of ours
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
