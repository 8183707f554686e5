"""A stream client on a plain socket, which stores frames as bytes and can disconnect at any byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.timeouts import PATIENCE

__all__ = ["Connection", "StreamClient", "envelope_of"]

_SHOWN = 20  # frames, in the note of a timeout


def envelope_of(frame: bytes) -> dict[str, Any]:
    return json.loads(frame.partition(b"\ndata: ")[2])


@dataclass
class Connection:
    """A connection to a stream, as raw bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        """Close the connection by a reset."""
        self.writer.transport.abort()


@dataclass
class StreamClient:
    """A client of one stream, and the complete frames it received over all its connections.

    `frames` are those of the log, which have an id; `unnumbered` are those without.
    """

    port: int
    path: str
    token: str
    frames: list[bytes] = field(default_factory=list)
    unnumbered: list[bytes] = field(default_factory=list)
    ended_turns: set[str] = field(default_factory=set)  # ids of the turns whose terminal event was received

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
        is_done: Callable[[StreamClient], bool] = lambda _: False,
        *,
        cursor: str | None = None,
        max_bytes: int | None = None,
        seconds: float = PATIENCE,
    ) -> bool:
        """Read from `cursor` or the last frame until `is_done` returns True or the stream ends.

        Returns False if it reset the connection before, after `max_bytes`.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._read(is_done, cursor, max_bytes)
        except TimeoutError as exc:
            exc.add_note(f"read {self.path} for {seconds:g} s up to {self.cursor}: {self.outline()}")
            raise

    def outline(self) -> str:
        """Return the types of the last events, with the codes of errors, and the frames without an id."""
        events = [envelope_of(frame) for frame in self.frames[-_SHOWN:]]
        shown = [" ".join(filter(None, (event["type"], event["data"].get("code")))) for event in events]
        return f"{len(self.frames)} events, the last ones {shown}, and {self.unnumbered[-_SHOWN:]}"

    async def _read(self, is_done: Callable[[StreamClient], bool], cursor: str | None, max_bytes: int | None) -> bool:
        async with self.connect(cursor) as connection:
            rest = bytearray()
            while piece := await connection.reader.read(1 << 16 if max_bytes is None else min(max_bytes, 1 << 16)):
                searched = max(len(rest) - 1, 0)
                rest += piece
                if rest.find(b"\n\n", searched) >= 0:
                    rest = bytearray(self.feed(bytes(rest)))
                if is_done(self):
                    return True
                max_bytes = max_bytes and max_bytes - len(piece)
                if max_bytes == 0:
                    connection.abort()
                    return False
        return True

    def feed(self, piece: bytes) -> bytes:
        """Store the complete frames of a chunk and return the rest, the beginning of the next frame."""
        *whole, rest = piece.split(b"\n\n")
        logged = [frame for frame in whole if frame.startswith(b"id: ")]
        self.frames += logged
        self.unnumbered += (frame for frame in whole if frame.startswith(b"data: "))
        for frame in logged:
            if b'"type":"final"' in frame or b'"type":"error"' in frame:
                envelope = envelope_of(frame)
                if envelope["type"] == "final" or envelope["data"].get("fatal"):
                    self.ended_turns.add(envelope["turn_id"])
        return rest

    @asynccontextmanager
    async def connect(self, cursor: str | None = None) -> AsyncGenerator[Connection]:
        """Yield a connection after the head of its response, which is HTTP/1.0: only frames follow, no chunk sizes."""
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
