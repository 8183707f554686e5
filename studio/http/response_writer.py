"""Responses written in chunks, with a time limit for each write.

A chunk is written once the socket has drained the previous one. Framing and buffering copy what is written; for a
client that stopped reading only a copy of one chunk is in memory. When the socket takes longer than the limit to drain,
the connection is aborted. The chunks of one message are written without another message in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from starlette.types import Message, Send
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

__all__ = [
    "ABORT_KEY",
    "CHUNK_BYTES",
    "WRITER_KEY",
    "WRITE_TIMEOUT_SECONDS",
    "BodyWriter",
    "ConnectionWriter",
    "ResponseSender",
]

CHUNK_BYTES = 64 * 1024
WRITE_TIMEOUT_SECONDS = 10.0

ABORT_KEY = "agenticx.abort"
"""The key in the ASGI scope of a callable that aborts the connection at once."""

WRITER_KEY = "agenticx.body_writer"
"""The key in the ASGI scope of the connection's `BodyWriter`."""

_CLOSE = (b"connection", b"close")


class BodyWriter(Protocol):
    """A writer of the body of a response that has started, has no Content-Length and does not answer HEAD.

    The end of the body is sent as an ASGI message.
    """

    async def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        """Return True once the connection is known to be closing; later writes are lost."""
        ...


class ConnectionWriter:
    """The `BodyWriter` of a request on an h11 connection: it frames the body itself and passes by all `send` wrappers.

    The state of h11 stays right: between two parts of a body of unknown length it has nothing to record.
    """

    __slots__ = ("_flow", "_is_chunked", "_timeout_seconds", "_transport", "is_closing", "lock")

    def __init__(self, cycle: RequestResponseCycle, timeout_seconds: float) -> None:
        self.is_closing = cycle.transport.is_closing
        self._transport = cycle.transport
        self._flow = cycle.flow
        self._is_chunked = cycle.scope["http_version"] >= "1.1"  # before, the connection is closed at the end
        self._timeout_seconds = timeout_seconds
        self.lock = asyncio.Lock()
        """Held while the chunks of one message are written."""

    async def write(self, data: bytes) -> None:
        async with self.lock:
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                if self._flow.write_paused:
                    await self.drain()
                if self.is_closing():
                    return
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked else chunk)

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written; abort the connection if that takes too long."""
        if self._flow.write_paused:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await self._flow.drain()
            except TimeoutError:
                self._transport.abort()


class ResponseSender:
    """The ASGI `send` of a request on an h11 connection.

    A response that begins before the request's body has arrived closes the connection; before it ends, `discard_body`
    is awaited. So does the last response of a server that ends; the header keeps clients from sending another request.
    """

    __slots__ = ("_cycle", "_discard_body", "_is_body_unread", "_send_message", "_writer")

    def __init__(
        self, cycle: RequestResponseCycle, writer: ConnectionWriter, discard_body: Callable[[], Awaitable[None]]
    ) -> None:
        self._cycle = cycle
        self._send_message: Send = cycle.send  # type: ignore[assignment]
        self._writer = writer
        self._discard_body = discard_body
        self._is_body_unread = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_body_unread = self._cycle.more_body
            if self._is_body_unread or not self._cycle.keep_alive:
                headers = [header for header in message["headers"] if header != _CLOSE]
                message = {**message, "headers": [*headers, _CLOSE]}
            await self._send(message)
            return
        async with self._writer.lock:
            if self._is_body_unread and not message.get("more_body"):
                await self._send_in_chunks({**message, "more_body": True})
                await self._discard_body()
                message = {"type": "http.response.body"}
            await self._send_in_chunks(message)

    async def _send_in_chunks(self, message: Message) -> None:
        for part in _split(message):
            await self._send(part)

    async def _send(self, message: Message) -> None:
        await self._writer.drain()
        await self._send_message(message)


def _split(message: Message) -> Iterator[Message]:
    body: bytes = message.get("body", b"")
    last = max(len(body) - 1, 0) // CHUNK_BYTES * CHUNK_BYTES
    for start in range(0, last, CHUNK_BYTES):
        yield {**message, "body": body[start : start + CHUNK_BYTES], "more_body": True}
    yield message if last == 0 else {**message, "body": body[last:]}
