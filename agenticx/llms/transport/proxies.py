"""Requests through a proxy, by httpx."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx

from agenticx.llms.transport.clients import HttpRequest, HttpResponse, NotConnected, TransportFailure, decode_headers

__all__ = ["ProxyClient"]

_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "could not be reached in time"),
    (httpx.ConnectError, "could not be reached"),
    (httpx.ProxyError, "could not be reached through the proxy"),
    (httpx.ReadTimeout, "went silent"),
)
_EXCEPTIONS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


class ProxyClient:
    """A client of httpx that sends every request through `proxy`, the URL of one for HTTP or SOCKS 5."""

    def __init__(self, proxy: str, tls: ssl.SSLContext | None, idle_seconds: float) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=idle_seconds)
        self._client = httpx.AsyncClient(
            verify=tls or True, follow_redirects=False, limits=limits, proxy=proxy, trust_env=False
        )

    async def send(self, request: HttpRequest) -> HttpResponse:
        timeout = httpx.Timeout(request.read_timeout, connect=request.connect_timeout)
        try:
            sent = httpx.Request(
                request.method,
                str(request.url),
                headers=dict(request.headers),
                content=request.body,
                extensions={"timeout": timeout.as_dict()},
            )
            return _ProxyResponse(await self._client.send(sent, stream=True))
        except _EXCEPTIONS as exc:
            raise _failure(exc) from exc

    async def aclose(self) -> None:
        await self._client.aclose()


class _ProxyResponse:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = decode_headers(response.headers.raw)
        self._response = response
        self._reads: AsyncIterator[bytes] = response.aiter_raw()

    async def read(self) -> bytes:
        try:
            while (data := await anext(self._reads, None)) == b"":
                pass
        except _EXCEPTIONS as exc:
            raise _failure(exc) from exc
        return data or b""

    async def aclose(self) -> None:
        await self._response.aclose()


def _failure(exc: Exception) -> TransportFailure:
    what = next((what for kind, what in _FAILURES if isinstance(exc, kind)), "broke the connection")
    is_unsent = isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout)
    kind = NotConnected if is_unsent else TransportFailure
    return kind(what, exc, type(exc).__name__, retryable=not isinstance(exc, httpx.InvalidURL))
