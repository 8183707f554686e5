"""Clients for requests to a provider: their protocol, and the one over `agenticx.http`."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from errno import ECONNREFUSED
from typing import Protocol

from agenticx.http.http1 import ConnectionPool, Http1Response, ProtocolError, request_bytes
from agenticx.http.url import Url
from agenticx.llms.transport.hosts import is_loopback

__all__ = [
    "DirectClient",
    "HttpRequest",
    "HttpResponse",
    "NoLocalServer",
    "NotConnected",
    "ProviderClient",
    "TransportFailure",
    "decode_headers",
]


class TransportFailure(Exception):
    """A request or response that failed at the level of sockets or TLS; the message continues `the server …`."""

    def __init__(self, what: str, exc: Exception, name: str, *, retryable: bool = True) -> None:
        super().__init__(f"{what}: {_cause(exc) or name}")
        self.retryable = retryable


class NotConnected(TransportFailure):
    """A connection that could not be made, so that nothing was sent."""


class NoLocalServer(NotConnected):
    """A refused connection to this machine: nothing listens there, so that it is not tried again."""


def _cause(exc: Exception) -> str:
    """Return what is wrong in words, without the numbers of errors; empty if the error does not say it."""
    if codes := _failed_connects(exc):
        return ", ".join("nothing listens there" if code == ECONNREFUSED else os.strerror(code) for code in codes)
    return exc.strerror or str(exc) if isinstance(exc, socket.gaierror) else str(exc)


def _failed_connects(exc: Exception) -> list[int]:
    """Return the error numbers of failed connects; asyncio joins the errors of several addresses in one text."""
    found = re.findall(r"\[Errno (\d+)\] Connect call failed", str(exc))
    return sorted({int(code) for code in found})


def _is_refused(exc: OSError) -> bool:
    """Return whether every address refused the connection."""
    return _failed_connects(exc) == [ECONNREFUSED]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request and its limits: seconds for the connection, and for each wait for bytes."""

    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes | None
    connect_timeout: float
    read_timeout: float


class HttpResponse(Protocol):
    """A response whose head has arrived; the names of its headers are lower case."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at its end; raise `TransportFailure`."""
        ...

    async def aclose(self) -> None: ...


class ProviderClient(Protocol):
    """A sender of requests; it keeps connections and belongs to one event loop."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Return the response once its head has arrived; raise `TransportFailure`."""
        ...

    async def aclose(self) -> None: ...


class DirectClient:
    """A client without proxies, cookies and redirects."""

    def __init__(self, tls: ssl.SSLContext | None, idle_seconds: float) -> None:
        self._pool = ConnectionPool(idle_seconds=idle_seconds, tls=tls)

    async def send(self, request: HttpRequest) -> HttpResponse:
        content = _encode_request(request)
        try:
            connection = await self._pool.acquire(request.url.origin, request.connect_timeout)
        except TimeoutError as exc:
            raise NotConnected("could not be reached in time", exc, "ConnectTimeout") from exc
        except OSError as exc:
            if is_loopback(request.url.host) and _is_refused(exc):
                raise NoLocalServer("could not be reached", exc, "ConnectError", retryable=False) from exc
            raise NotConnected("could not be reached", exc, "ConnectError") from exc
        try:
            return _DirectResponse(await self._pool.send(connection, content, request.read_timeout))
        except (OSError, ProtocolError) as exc:
            raise _read_failure(exc) from exc

    async def aclose(self) -> None:
        self._pool.close()


class _DirectResponse:
    def __init__(self, response: Http1Response) -> None:
        self.status = response.head.status
        self.headers = decode_headers(response.head.headers)
        self._response = response

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (OSError, ProtocolError) as exc:
            raise _read_failure(exc) from exc

    async def aclose(self) -> None:
        self._response.close()


def _read_failure(exc: Exception) -> TransportFailure:
    if isinstance(exc, TimeoutError):
        return TransportFailure("went silent", exc, "ReadTimeout")
    return TransportFailure("broke the connection", exc, "ReadError")


def _encode_request(request: HttpRequest) -> bytes:
    headers = request.headers
    if not any(name.lower() == "host" for name in headers):
        headers = {"host": request.url.netloc, **headers}
    return request_bytes(request.method, request.url.target, headers, request.body)


def decode_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their names in lower case; the values of one that occurs several times are joined by commas."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(_decode(name).lower(), []).append(_decode(value))
    return {name: ", ".join(found) for name, found in values.items()}


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin-1")
