"""HTTP/1.1 on plain asyncio, as far as the clients here need it: one request, one streamed response.

Providers send a chunk per token, and the usual stack spends 6 µs on each chunk and 0.5 ms on each request.

1. A read returns all bytes that have arrived, regardless of the server's chunk boundaries.
2. Strict where leniency is dangerous (folded headers, signs or blanks in sizes, several lengths), lenient about bare
   line feeds, which small servers do send.
3. A connection is kept only after a response that ended where its framing says. A kept connection that the server
   closed or sent bytes on is dropped; a request is never sent twice.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

from agenticx.batch_queue import BatchQueue

__all__ = ["ConnectionPool", "Http1Connection", "Http1Response", "ProtocolError", "ResponseHead", "request_bytes"]

Headers = list[tuple[bytes, bytes]]
Origin = tuple[str, int, bool]
"""Host, port, and whether over TLS."""

_NEXT_ADDRESS_SECONDS = 0.25
_MAX_HEAD_BYTES = 64 * 1024
_MAX_LINE_BYTES = 4 * 1024
_MAX_INTERIM_RESPONSES = 12
_MAX_BUFFERED_BYTES = 256 * 1024
"""Unread bytes above which reading from the socket is paused."""
_MAX_READ_BYTES = 32 * 1024
"""Bytes returned by one read before other tasks run: a reader may take 10 µs for six bytes."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_STATUS_PREFIX = b"HTTP/1."
_HTTP2_SETTINGS = b"\4\0\0\0\0\0"  # the frame that begins every HTTP/2 connection: type, flags, stream
_TLS_RECORDS = (b"\x15", b"\x16")  # alert, handshake
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class ProtocolError(Exception):
    """A response that is not HTTP/1.1, or that ends in the middle."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of a response; `keep_alive` is true if the connection may serve another request."""

    status: int
    headers: Headers
    keep_alive: bool

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a header, lower case, split at commas."""
        values = [value for key, value in self.headers if key.lower() == name]
        return [part.strip().lower() for value in values for part in value.split(b",")]


class ConnectionPool:
    """A pool of connections, each kept for at most `idle_seconds` between requests; it belongs to one event loop."""

    def __init__(self, *, idle_seconds: float, tls: ssl.SSLContext | None = None, max_idle: int = 20) -> None:
        self._idle_seconds = idle_seconds
        self._tls = tls
        self._max_idle = max_idle
        self._idle: dict[Origin, list[Http1Connection]] = defaultdict(list)

    async def acquire(self, origin: Origin, timeout: float | None) -> Http1Connection:
        """Return a kept connection or a new one; raise OSError (which ssl.SSLError is) or TimeoutError."""
        return self._take_idle(origin) or await self._connect(origin, timeout)

    async def acquire_unix(self, path: str, timeout: float | None) -> Http1Connection:
        """Return a new connection to the Unix socket at `path`; raise OSError or TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_unix_connection(lambda: Http1Connection(loop, (path, 0, False)), path)
        return connection

    async def send(
        self, connection: Http1Connection, request: bytes, timeout: float | None, body_timeout: float | None = None
    ) -> Http1Response:
        """Send the bytes of a request and return the response once its head has arrived.

        `timeout` bounds each wait for bytes, unless `body_timeout` bounds those for the body. Raises OSError,
        TimeoutError, or `ProtocolError` for an invalid response.
        """
        try:
            connection.transport.write(request)
            head, rest = await _read_head(connection, timeout)
            return Http1Response(head, rest, connection, self, body_timeout or timeout)
        except BaseException:
            connection.transport.abort()
            raise

    def release(self, connection: Http1Connection) -> None:
        """Keep a connection whose response is complete."""
        idle = self._idle[connection.origin]
        connection.idle_since = asyncio.get_running_loop().time()
        idle.append(connection)
        if len(idle) > self._max_idle:
            idle.pop(0).transport.abort()

    def close(self) -> None:
        """Drop all kept connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.transport.abort()
        self._idle.clear()

    def _take_idle(self, origin: Origin) -> Http1Connection | None:
        idle, now = self._idle[origin], asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.is_reusable and now - connection.idle_since < self._idle_seconds:
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, origin: Origin, timeout: float | None) -> Http1Connection:
        host, port, secure = origin
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(
                lambda: Http1Connection(loop, origin),
                host,
                port,
                ssl=self._tls if secure else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS if secure else None,
            )
        return connection


class Http1Response:
    """A response: its head, and its body read by read."""

    def __init__(
        self, head: ResponseHead, rest: bytes, connection: Http1Connection, pool: ConnectionPool, timeout: float | None
    ) -> None:
        self.head = head
        self._decoder = _body_decoder(head)
        self._decoded = self._decoder.feed(rest) if rest else b""
        self._connection: Http1Connection | None = connection
        self._pool = pool
        self._timeout = timeout

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at its end; raise OSError, TimeoutError or `ProtocolError`."""
        decoder, (decoded, self._decoded) = self._decoder, (self._decoded, b"")
        while not decoded and not decoder.done and self._connection is not None:
            if data := await self._connection.read(self._timeout):
                decoded = decoder.feed(data)
            else:
                decoder.end()
        return decoded

    def close(self) -> None:
        """Return the connection to the pool if it can be reused, else drop it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.head.keep_alive and self._decoder.done and self._decoder.is_clean and connection.is_reusable:
            self._pool.release(connection)
        else:
            connection.transport.abort()


# --- the socket -----------------------------------------------------------------------------------------------------


class Http1Connection(asyncio.Protocol):
    """One connection and its unread bytes."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._loop = loop
        self._received = BatchQueue[bytes]()
        self._leftover = b""  # of what was taken from the queue
        self._unread_bytes = 0
        self._has_more = False  # after a read: the next one lets other tasks run first
        self._ended = False
        self._exception: Exception | None = None

    @property
    def is_reusable(self) -> bool:
        """True if the connection is open and has no unread bytes."""
        return not (self._ended or self._unread_bytes or self.transport.is_closing())

    async def read(self, timeout: float | None) -> bytes:
        """Return the bytes that have arrived, at least one; empty at the end. Raise OSError or TimeoutError."""
        if self._has_more:
            await asyncio.sleep(0)
        data = self._leftover
        if not data:
            batch = await self._received.take(None if timeout is None else self._loop.time() + timeout)
            if not batch:
                return self._read_end()
            data = batch[0] if len(batch) == 1 else b"".join(batch)
        data, self._leftover = data[:_MAX_READ_BYTES], data[_MAX_READ_BYTES:]
        before = self._unread_bytes
        self._unread_bytes -= len(data)
        self._has_more = self._unread_bytes > 0
        if self._unread_bytes <= _MAX_BUFFERED_BYTES < before:
            self.transport.resume_reading()
        return data

    def _read_end(self) -> bytes:
        """Return no bytes at the end of the connection; raise the error that ended it, or TimeoutError before it."""
        if not self._ended:
            raise TimeoutError
        if self._exception is not None:
            raise self._exception
        return b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        before = self._unread_bytes
        self._unread_bytes += len(data)
        if before <= _MAX_BUFFERED_BYTES < self._unread_bytes:
            self.transport.pause_reading()
        self._received.put(data)

    def eof_received(self) -> None:
        self._ended = True
        self._received.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._exception = exc
        self._received.close()


# --- the head -------------------------------------------------------------------------------------------------------


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return a whole request as bytes, with the length of its body if it has one.

    Raises ValueError for text that is not ASCII, and for line ends that would allow header injection.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise ValueError("a line end in the head of a request")
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    return head if body is None else head + body


async def _read_head(connection: Http1Connection, timeout: float | None) -> tuple[ResponseHead, bytes]:
    """Return the head of the final response, and the bytes of its body that came with it."""
    received, searched, interim = b"", 0, 0
    while True:
        if (end := _HEAD_END.search(received, searched)) is not None:
            head, received, searched = _parse_head(received[: end.start()]), received[end.end() :], 0
            if head.status >= 200:
                return head, received
            if head.status == 101:
                raise ProtocolError("the server switches to another protocol")
            interim += 1
            if interim > _MAX_INTERIM_RESPONSES:
                raise ProtocolError(f"the server sent more than {_MAX_INTERIM_RESPONSES} interim responses")
            continue
        if len(received) > _MAX_HEAD_BYTES:
            raise ProtocolError(f"the head of the response is longer than {_MAX_HEAD_BYTES} bytes")
        data = await connection.read(timeout)
        if not data:
            raise ProtocolError("the server closed the connection without a response")
        searched = max(0, len(received) - 3)
        received += data
        if not received.startswith(_STATUS_PREFIX[: len(received)]):
            raise ProtocolError(_wrong_protocol_message(received))


def _wrong_protocol_message(received: bytes) -> str:
    """Return the error message for a response that does not begin as HTTP/1.1, naming the protocol if it is known."""
    if received[:2] == b"\0\0" and received[3:9] == _HTTP2_SETTINGS:
        return "the server speaks HTTP/2 only; put a proxy that speaks HTTP/1.1 in front of it"
    if received[:1] in _TLS_RECORDS and received[1:2] == b"\3":
        return "the server speaks TLS; should the base URL begin with https://?"
    return _no_status_message(received.partition(b"\n")[0])


def _no_status_message(line: bytes) -> str:
    return f"the response begins with {line[:60]!r}, not with an HTTP/1.1 status"


def _parse_head(data: bytes) -> ResponseHead:
    first, *lines = data.split(b"\n")
    status = _STATUS.fullmatch(first.removesuffix(b"\r"))
    if status is None:
        raise ProtocolError(_no_status_message(first))
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None:
            raise ProtocolError(f"the response has the invalid header line {line[:60]!r}")
        headers.append((name, value.strip()))
    head = ResponseHead(int(status[2]), headers, keep_alive=True)
    keep_alive = (
        b"close" not in head.values(b"connection") if status[1] == b"1" else b"keep-alive" in head.values(b"connection")
    )
    return replace(head, keep_alive=keep_alive)


# --- the body -------------------------------------------------------------------------------------------------------


class _BodyDecoder(Protocol):
    """A decoder that finds the end of a body.

    `feed` returns the part of some bytes that belongs to the body; `end` is called when the server closed the
    connection. `is_clean` is true if no byte has followed the body on the connection.
    """

    done: bool
    is_clean: bool

    def feed(self, data: bytes) -> bytes: ...
    def end(self) -> None: ...


def _body_decoder(head: ResponseHead) -> _BodyDecoder:
    if head.status in (204, 304):
        return _LengthDecoder(0)
    if codings := head.values(b"transfer-encoding"):
        if codings != [b"chunked"]:
            raise ProtocolError(f"the body has the unsupported transfer coding {b', '.join(codings)[:60]!r}")
        return _ChunkedDecoder()
    if lengths := set(head.values(b"content-length")):
        if len(lengths) > 1 or _LENGTH.fullmatch(length := lengths.pop()) is None:
            raise ProtocolError("the response has an invalid or ambiguous content-length")
        return _LengthDecoder(int(length))
    return _UntilCloseDecoder()


class _LengthDecoder:
    def __init__(self, length: int) -> None:
        self.is_clean = True
        self._remaining = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        self.is_clean = len(data) <= self._remaining
        data = data[: self._remaining]
        self._remaining -= len(data)
        self.done = self._remaining == 0
        return data

    def end(self) -> None:
        raise ProtocolError(f"the server closed the connection {self._remaining} bytes before the end of the body")


class _UntilCloseDecoder:
    def __init__(self) -> None:
        self.done = False
        self.is_clean = False

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.done = True


class _ChunkedDecoder:
    """A decoder of chunked bodies: sizes and chunks in turn, then trailers, which are ignored."""

    def __init__(self) -> None:
        self.done = False
        self.is_clean = True
        self._partial_line: bytes = b""
        self._remaining = 0
        self._after_chunk = False
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        data = self._partial_line + data
        chunks: list[bytes] = []
        position = 0
        while not self.done:
            if self._remaining:
                chunk = data[position : position + self._remaining]
                chunks.append(chunk)
                position += len(chunk)
                self._remaining -= len(chunk)
                if self._remaining:
                    break
                self._after_chunk = True
            end = data.find(b"\n", position)
            if end < 0:
                break
            line = data[position:end].removesuffix(b"\r")
            position = end + 1
            self._parse_line(line)
        self._partial_line = data[position:]
        self.is_clean = not (self.done and self._partial_line)
        if len(self._partial_line) > _MAX_LINE_BYTES:
            raise ProtocolError("a line between the chunks of the body is too long")
        return b"".join(chunks)

    def _parse_line(self, line: bytes) -> None:
        """Parse a line between chunks: the end of a chunk, a size, or a trailer."""
        if self._after_chunk:
            self._after_chunk = False
            if line:
                raise ProtocolError("a chunk of the body is longer than its size")
        elif self._in_trailer:
            self.done = not line
        else:
            size = line.partition(b";")[0].rstrip(b" \t")
            if _SIZE.fullmatch(size) is None:
                raise ProtocolError(f"a chunk of the body has the size {line[:60]!r}")
            self._remaining = int(size, 16)
            self._in_trailer = self._remaining == 0

    def end(self) -> None:
        raise ProtocolError("the server closed the connection in the middle of the body")
