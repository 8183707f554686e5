"""A client of streams on a bare socket: it keeps frames as bytes, leaves whenever it is told to, and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.patience import PATIENCE

__all__ = ["Connection", "Reader", "envelope_of"]


def envelope_of(frame: bytes) -> dict[str, Any]:
    return json.loads(frame.partition(b"\ndata: ")[2])


@dataclass
class Connection:
    """One connection to a stream, as raw bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        """End it by a reset."""
        self.writer.transport.abort()


@dataclass
class Reader:
    """What one client has of a stream, over all its connections: whole frames, those without id apart."""

    port: int
    path: str
    token: str
    frames: list[bytes] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    over: set[str] = field(default_factory=set)  # the turns whose terminal event is here

    @property
    def cursor(self) -> str | None:
        return self.frames[-1].split(b"\n", 1)[0].removeprefix(b"id: ").decode() if self.frames else None

    @property
    def envelopes(self) -> list[dict[str, Any]]:
        return [envelope_of(frame) for frame in self.frames]

    @property
    def types(self) -> list[str]:
        return [envelope["type"] for envelope in self.envelopes]

    async def read(
        self,
        enough: Callable[[Reader], bool] = lambda _: False,
        *,
        cursor: str | None = None,
        most: int | None = None,
        seconds: float = PATIENCE,
    ) -> bool:
        """Read on from `cursor` or from the last frame until there is `enough` or the stream ends.

        False when it left before, by a reset in the middle of things, after `most` bytes.
        """
        async with asyncio.timeout(seconds), self.connected(cursor) as connection:
            rest = bytearray()
            while piece := await connection.reader.read(1 << 16 if most is None else min(most, 1 << 16)):
                searched = max(len(rest) - 1, 0)
                rest += piece
                if rest.find(b"\n\n", searched) >= 0:
                    rest = bytearray(self.take(bytes(rest)))
                if enough(self):
                    return True
                most = most and most - len(piece)
                if most == 0:
                    connection.abort()
                    return False
        return True

    def take(self, piece: bytes) -> bytes:
        """Keep the whole frames in what was read; returns the rest, of a frame that goes on."""
        *whole, rest = piece.split(b"\n\n")
        logged = [frame for frame in whole if frame.startswith(b"id: ")]
        self.frames += logged
        self.others += (frame for frame in whole if frame.startswith(b"data: "))
        for frame in logged:
            if b'"type":"final"' in frame or b'"type":"error"' in frame:
                envelope = envelope_of(frame)
                if envelope["type"] == "final" or envelope["data"].get("fatal"):
                    self.over.add(envelope["turn_id"])
        return rest

    @asynccontextmanager
    async def connected(self, cursor: str | None = None) -> AsyncGenerator[Connection]:
        """A connection on which the head of the answer was read; HTTP/1.0, so that what follows are frames alone."""
        known = cursor if cursor is not None else self.cursor
        head = f"GET {self.path} HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
        head += "\r\n" if known is None else f"Last-Event-ID: {known}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            writer.write(head.encode("latin-1"))
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
            yield Connection(reader, writer)
        finally:
            writer.close()
