"""HTTP/1.1 on plain asyncio, as far as a model call needs it: one request, one answer read as it comes.

Providers send a chunk per token, and the usual stack spends 6 µs on each chunk and 0.5 ms on each request.

1. A read hands over all that has arrived, however the server cut it into chunks.
2. Strict where leniency is dangerous (folded headers, signs or blanks in sizes, several lengths), lenient about bare
   line feeds, which small servers do send.
3. A connection is kept only after an answer that ended where it said it would. A kept one that the server closed or
   said something on is dropped; a request is never sent twice.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from agenticx.alarms import ResettableTimer

__all__ = ["Connections", "Head", "Http1Reply", "ProtocolError", "request_bytes"]

Headers = list[tuple[bytes, bytes]]
Origin = tuple[str, int, bool]
"""Host, port, and whether over TLS."""

_NEXT_ADDRESS_SECONDS = 0.25
_MAX_HEAD = 64 * 1024
_MAX_LINE = 4 * 1024
_MAX_INTERIM = 12
_BUFFERED = 256 * 1024
"""Bytes that may wait to be read before the socket is left alone."""
_AT_ONCE = 32 * 1024
"""Bytes that are handed over before others on the loop have their turn: whoever reads them may take 10 µs for six."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_START = b"HTTP/1."
_SETTINGS = b"\4\0\0\0\0\0"  # the frame that begins every HTTP/2 connection: type, flags, stream
_TLS_RECORDS = (b"\x15", b"\x16")  # alert, handshake
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class ProtocolError(Exception):
    """The server did not speak HTTP/1.1, or broke off in the middle of its answer."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer; `keeps` says that the connection may serve another request."""

    status: int
    headers: Headers
    keeps: bool

    def values(self, name: bytes) -> list[bytes]:
        """The values of a header, lower case, split at commas."""
        found = [value for key, value in self.headers if key.lower() == name]
        return [part.strip().lower() for value in found for part in value.split(b",")]


class Connections:
    """Connections to servers, kept for at most `idle_seconds` between requests. Belongs to one event loop."""

    def __init__(self, *, idle_seconds: float, tls: ssl.SSLContext | None = None, most: int = 20) -> None:
        self._idle_seconds = idle_seconds
        self._tls = tls
        self._most = most
        self._idle: dict[Origin, list[_Wire]] = defaultdict(list)

    async def connection(self, origin: Origin, timeout: float | None) -> _Wire:
        """A kept connection or a new one; raises OSError (which ssl.SSLError is) or TimeoutError."""
        return self._take(origin) or await self._connect(origin, timeout)

    async def exchange(self, wire: _Wire, request: bytes, timeout: float | None) -> Http1Reply:
        """Send the bytes of a request; returns when the head of the answer is there.

        `timeout` bounds each wait for bytes. Raises OSError, TimeoutError, or `ProtocolError` for what came back.
        """
        try:
            wire.transport.write(request)
            head, rest = await _read_head(wire, timeout)
            return Http1Reply(head, rest, wire, self, timeout)
        except BaseException:
            wire.transport.abort()
            raise

    def put_back(self, wire: _Wire) -> None:
        """Keep a connection whose answer is complete."""
        idle = self._idle[wire.origin]
        wire.idle_since = asyncio.get_running_loop().time()
        idle.append(wire)
        if len(idle) > self._most:
            idle.pop(0).transport.abort()

    def close(self) -> None:
        """Drop all kept connections."""
        for idle in self._idle.values():
            for wire in idle:
                wire.transport.abort()
        self._idle.clear()

    def _take(self, origin: Origin) -> _Wire | None:
        idle, now = self._idle[origin], asyncio.get_running_loop().time()
        while idle:
            wire = idle.pop()
            if wire.is_quiet and now - wire.idle_since < self._idle_seconds:
                return wire
            wire.transport.abort()
        return None

    async def _connect(self, origin: Origin, timeout: float | None) -> _Wire:
        host, port, secure = origin
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, wire = await loop.create_connection(
                lambda: _Wire(loop, origin),
                host,
                port,
                ssl=self._tls if secure else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS if secure else None,
            )
        return wire


class Http1Reply:
    """An answer: its head, and its body read by read."""

    def __init__(self, head: Head, rest: bytes, wire: _Wire, connections: Connections, timeout: float | None) -> None:
        self.head = head
        self._framing = _framing(head)
        self._decoded = self._framing.feed(rest) if rest else b""
        self._wire: _Wire | None = wire
        self._connections = connections
        self._timeout = timeout

    async def read(self) -> bytes:
        """What has come of the body, empty at its end; raises OSError, TimeoutError or `ProtocolError`."""
        framing, (decoded, self._decoded) = self._framing, (self._decoded, b"")
        while not decoded and not framing.done and self._wire is not None:
            if data := await self._wire.read(self._timeout):
                decoded = framing.feed(data)
            else:
                framing.end()
        return decoded

    def close(self) -> None:
        """Keep the connection if it can serve again, else drop it."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        if self.head.keeps and self._framing.done and self._framing.is_clean and wire.is_quiet:
            self._connections.put_back(wire)
        else:
            wire.transport.abort()


# --- the socket -----------------------------------------------------------------------------------------------------


class _Wire(asyncio.Protocol):
    """One connection, and what arrived on it and was not read yet."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._loop = loop
        self._arrived: list[bytes] = []
        self._size = 0
        self._more = False
        self._over = False
        self._failure: Exception | None = None
        self._wake: asyncio.Future[None] | None = None
        self._alarm = ResettableTimer(self._wake_up)

    @property
    def is_quiet(self) -> bool:
        """Open, and nothing came that nobody asked for."""
        return not (self._over or self._arrived or self.transport.is_closing())

    async def read(self, timeout: float | None) -> bytes:
        """What has arrived, at least a byte; empty at the end. Raises OSError or TimeoutError."""
        if self._more:
            await asyncio.sleep(0)
        if not self._arrived and not self._over:
            await self._something(None if timeout is None else self._loop.time() + timeout)
        if not self._arrived and self._failure is not None:
            raise self._failure
        data = self._arrived[0] if len(self._arrived) == 1 else b"".join(self._arrived)
        data, rest = data[:_AT_ONCE], data[_AT_ONCE:]
        self._arrived, self._more = [rest] if rest else [], bool(rest)
        if len(rest) <= _BUFFERED < self._size:
            self.transport.resume_reading()
        self._size = len(rest)
        return data

    async def _something(self, until: float | None) -> None:
        """Wait for bytes or the end; raises TimeoutError if neither has come by `until`."""
        while not self._arrived and not self._over:
            if until is not None:
                if self._loop.time() >= until:
                    raise TimeoutError
                self._alarm.set(until)
            self._wake = self._loop.create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        before = self._size
        self._arrived.append(data)
        self._size += len(data)
        if before <= _BUFFERED < self._size:
            self.transport.pause_reading()
        self._wake_up()

    def eof_received(self) -> None:
        self._over = True
        self._wake_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._failure = exc
        self._alarm.cancel()
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


# --- the head -------------------------------------------------------------------------------------------------------


def request_bytes(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """A whole request; raises ValueError for what would make another request of it."""
    lines = [b"%b %b HTTP/1.1" % (method, target), *(b"%b: %b" % header for header in headers)]
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise ValueError("a line end in the head of a request")
    return b"\r\n".join([*lines, b"", body])


async def _read_head(wire: _Wire, timeout: float | None) -> tuple[Head, bytes]:
    """The head of the final answer, and what of its body came along."""
    received, searched, interim = b"", 0, 0
    while True:
        if (end := _HEAD_END.search(received, searched)) is not None:
            head, received, searched = _parse_head(received[: end.start()]), received[end.end() :], 0
            if head.status >= 200:
                return head, received
            if head.status == 101:
                raise ProtocolError("the server switches to another protocol")
            interim += 1
            if interim > _MAX_INTERIM:
                raise ProtocolError(f"the server sent more than {_MAX_INTERIM} interim answers")
            continue
        if len(received) > _MAX_HEAD:
            raise ProtocolError(f"the head of the answer is longer than {_MAX_HEAD} bytes")
        data = await wire.read(timeout)
        if not data:
            raise ProtocolError("the server closed the connection without an answer")
        searched = max(0, len(received) - 3)
        received += data
        if not received.startswith(_START[: len(received)]):
            raise ProtocolError(_spoken(received))


def _spoken(received: bytes) -> str:
    """What a server that does not begin its answer as HTTP/1.1 does speaks, as far as its first bytes say."""
    if received[:2] == b"\0\0" and received[3:9] == _SETTINGS:
        return "the server speaks HTTP/2 only; put it behind something that speaks HTTP/1.1"
    if received[:1] in _TLS_RECORDS and received[1:2] == b"\3":
        return "the server speaks TLS; should the base URL begin with https://?"
    return _no_status(received.partition(b"\n")[0])


def _no_status(line: bytes) -> str:
    return f"the answer begins with {line[:60]!r}, not with an HTTP/1.1 status"


def _parse_head(data: bytes) -> Head:
    first, *lines = data.split(b"\n")
    status = _STATUS.fullmatch(first.removesuffix(b"\r"))
    if status is None:
        raise ProtocolError(_no_status(first))
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None:
            raise ProtocolError(f"the answer has the header line {line[:60]!r}")
        headers.append((name, value.strip()))
    head = Head(int(status[2]), headers, keeps=True)
    keeps = (
        b"close" not in head.values(b"connection") if status[1] == b"1" else b"keep-alive" in head.values(b"connection")
    )
    return replace(head, keeps=keeps)


# --- the body -------------------------------------------------------------------------------------------------------


class _Framing(Protocol):
    """Where a body ends. `feed` gives what of some bytes belongs to it; `end` is told that no more will come.

    `is_clean` says that the connection stands right behind the body, with nothing more on it.
    """

    done: bool
    is_clean: bool

    def feed(self, data: bytes) -> bytes: ...
    def end(self) -> None: ...


def _framing(head: Head) -> _Framing:
    if head.status in (204, 304):
        return _Sized(0)
    if codings := head.values(b"transfer-encoding"):
        if codings != [b"chunked"]:
            raise ProtocolError(f"the body comes in the coding {b', '.join(codings)[:60]!r}")
        return _Chunked()
    if lengths := set(head.values(b"content-length")):
        if len(lengths) > 1 or _LENGTH.fullmatch(length := lengths.pop()) is None:
            raise ProtocolError("the length of the body makes no sense")
        return _Sized(int(length))
    return _UntilClosed()


class _Sized:
    def __init__(self, length: int) -> None:
        self.is_clean = True
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        self.is_clean = len(data) <= self._left
        data = data[: self._left]
        self._left -= len(data)
        self.done = self._left == 0
        return data

    def end(self) -> None:
        raise ProtocolError(f"the server closed the connection {self._left} bytes before the end of the body")


class _UntilClosed:
    def __init__(self) -> None:
        self.done = False
        self.is_clean = False

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> None:
        self.done = True


class _Chunked:
    """Sizes and chunks in turn, then trailers, which nobody reads."""

    def __init__(self) -> None:
        self.done = False
        self.is_clean = True
        self._held: bytes = b""
        self._left = 0
        self._after_chunk = False
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        pieces: list[bytes] = []
        place = 0
        while not self.done:
            if self._left:
                piece = data[place : place + self._left]
                pieces.append(piece)
                place += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._after_chunk = True
            end = data.find(b"\n", place)
            if end < 0:
                break
            line = data[place:end].removesuffix(b"\r")
            place = end + 1
            self._take_line(line)
        self._held = data[place:]
        self.is_clean = not (self.done and self._held)
        if len(self._held) > _MAX_LINE:
            raise ProtocolError("a line between the chunks of the body is too long")
        return b"".join(pieces)

    def _take_line(self, line: bytes) -> None:
        """A line between chunks: the end of a chunk, a size, or a trailer."""
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
            self._left = int(size, 16)
            self._in_trailer = self._left == 0

    def end(self) -> None:
        raise ProtocolError("the server closed the connection in the middle of the body")
