"""The HTTP client of all wires: requests to a provider, responses as raw bytes.

Known differences to a plain httpx client:

1. Redirects are never followed: the key is sent to the configured host and to no other.
2. Proxies of the environment are not used for loopback addresses.
3. Responses are requested uncompressed, so that a small body cannot unpack into a large one.
4. Connections are kept per event loop; one that belongs to another loop is never used.
5. Unless a proxy is configured, requests are sent by `http1`, which costs a fifth of httpx's own transport.
6. Certificates are read when the provider is set up, so that their loading does not count as time of the first call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from types import TracebackType
from typing import Self
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import httpx

from agenticx.errors import ModelError, SettingsError
from agenticx.http.http1 import ConnectionPool, Http1Response, ProtocolError, request_bytes
from agenticx.llms.transport.errors import COMPRESSED_BODY, ErrorReport, hide_secrets, parse_error_body, status_error
from agenticx.llms.transport.hosts import is_loopback
from agenticx.secret_names import is_secret_name

__all__ = ["ProviderHttp", "ProviderResponse"]

_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_SECONDS = 2.0
_CONNECT_SECONDS = 20.0
_READ_SECONDS = 315.0
_IDLE_SECONDS = 30.0
_IDLE_SECONDS_LOCAL = 4.0  # uvicorn, which many local servers run on, closes idle connections after 5

_TRANSPORT_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "could not be reached in time"),
    (httpx.ConnectError, "could not be reached"),
    (httpx.ProxyError, "could not be reached through the proxy"),
    (httpx.ReadTimeout, "went silent"),
)
_TRANSPORT_EXCEPTIONS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


class ProviderHttp:
    """One provider's base URL and headers, and the connections to it.

    `label` names the provider in error messages. They never contain `key`, nor the values of headers and query
    parameters whose names mark them as secret. The key is sent as a bearer token, or as it is in the header
    `key_header`. `base_url_hint` is advice added to the error for a 404.
    Raises `SettingsError` for a base URL, key or certificates with which no request could be made.
    """

    def __init__(
        self,
        base_url: str,
        *,
        label: str,
        key: str | None = None,
        key_header: str | None = None,
        headers: Mapping[str, str] | None = None,
        base_url_hint: str = "",
    ) -> None:
        self._base_url = _checked_url(base_url)
        self._label = label
        self._base_url_hint = base_url_hint
        self._secrets = (_checked_key(key, label), *_secrets_in(self._base_url, headers or {}))
        self._headers = {"accept-encoding": "identity", "user-agent": "agenticx", **(headers or {})}
        if key and key_header:
            self._headers[key_header] = key
        elif key:
            self._headers["authorization"] = f"Bearer {key}"
        self._tls = _tls_context() if self._base_url.scheme == "https" else None
        self._urls: dict[tuple[object, ...], httpx.URL] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()

    @property
    def host(self) -> str:
        """Host and port without credentials, for messages and logs."""
        return self._base_url.netloc.decode("ascii")

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        accept: str,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ProviderResponse:
        """Post JSON and return the response once its headers have arrived; raise `ModelError` for any but 2xx.

        `query` is appended to the base URL's own query. `timeout` bounds each wait for bytes, in seconds. The caller
        closes the response.
        """
        headers = {**self._headers, "content-type": "application/json", "accept": accept}
        limits = {"timeout": _timeout(timeout).as_dict()}
        url = self._url(path, query or {})
        return await self._send(httpx.Request("POST", url, content=body, headers=headers, extensions=limits))

    async def get(self, path: str, *, timeout: float, limit: int) -> bytes:
        """Return the body at `path`, at most `limit` bytes; raise `ModelError` otherwise."""
        limits = {"timeout": httpx.Timeout(timeout).as_dict()}
        request = httpx.Request("GET", self._url(path, {}), headers=self._headers, extensions=limits)
        async with await self._send(request) as response:
            return await response.read(limit)

    def hide_secrets(self, error: ModelError) -> ModelError:
        """Return the same error without the key; every error about a provider passes through here."""
        return hide_secrets(error, self._secrets)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    def _url(self, path: str, query: Mapping[str, str]) -> httpx.URL:
        """Return the URL of `path`, from a cache: building one takes as long as reading ten tokens."""
        key = (path, *query.items())
        if key not in self._urls:
            url = self._base_url.copy_with(path=self._base_url.path.rstrip("/") + path)
            self._urls[key] = url.copy_merge_params(query) if query else url
        return self._urls[key]

    def _client(self) -> _Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            idle_seconds = _IDLE_SECONDS if self._tls else _IDLE_SECONDS_LOCAL
            proxied = not is_loopback(self._base_url.host) and bool(getproxies())
            client = self._clients[loop] = (_proxy_client if proxied else _direct_client)(self._tls, idle_seconds)
        return client

    async def _send(self, request: httpx.Request) -> ProviderResponse:
        try:
            response = await self._client().send(request)
        except _TRANSPORT_EXCEPTIONS as exc:
            raise self._transport_error(exc) from exc
        opened = ProviderResponse(response, self._transport_error)
        if response.is_success:
            return opened
        async with opened:
            report = await self._error_report(opened)
        error = status_error(
            response.status_code, opened.headers, report, label=self._label, base_url_hint=self._base_url_hint
        )
        raise self.hide_secrets(error)

    async def _error_report(self, response: ProviderResponse) -> ErrorReport:
        if response.is_compressed:
            return COMPRESSED_BODY
        return parse_error_body(await response.read_prefix(_ERROR_BODY_BYTES, _ERROR_BODY_SECONDS))

    def _transport_error(self, exc: Exception) -> ModelError:
        what = next((what for kind, what in _TRANSPORT_FAILURES if isinstance(exc, kind)), "broke the connection")
        error = ModelError(
            f"{self._label} at {self.host} {what}: {str(exc) or type(exc).__name__}",
            code="provider.transport",
            retryable=not isinstance(exc, httpx.InvalidURL),
        )
        return self.hide_secrets(error)


class ProviderResponse:
    """A response: its headers and, read by read, its body. Use it in `async with`, or close it."""

    def __init__(self, response: httpx.Response, transport_error: Callable[[Exception], ModelError]) -> None:
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._reads: AsyncIterator[bytes] = response.aiter_raw()
        self._transport_error = transport_error

    @property
    def content_type(self) -> str:
        """The media type, lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_compressed(self) -> bool:
        """True if the server compressed the body although the request forbids it."""
        return self.headers.get("content-encoding", "identity").lower() != "identity"

    async def next_bytes(self) -> bytes | None:
        """Return the bytes of one socket read, None at the clean end; raise `ModelError` if the connection breaks."""
        try:
            return await anext(self._reads, None)
        except _TRANSPORT_EXCEPTIONS as exc:
            raise self._transport_error(exc) from exc

    async def read(self, limit: int) -> bytes:
        """Return the whole body; raise `ModelError` if it has more than `limit` bytes."""
        body = bytearray()
        while (data := await self.next_bytes()) is not None:
            body += data
            if len(body) > limit:
                raise ModelError(f"the response has more than {limit} bytes", code="provider.bad_reply")
        return bytes(body)

    async def read_prefix(self, limit: int, seconds: float) -> bytes:
        """Return the first `limit` bytes of the body, or what arrives of them in `seconds`; errors end the read.

        It is for error responses, where the status matters more than the end of the body.
        """
        body = bytearray()
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(seconds):
                while len(body) < limit and (data := await self.next_bytes()) is not None:
                    body += data
        return bytes(body[:limit])

    async def aclose(self) -> None:
        """Close the response; if the body was not read to its end, the connection is dropped."""
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


# --- transports: httpx's own for proxies, else http1 ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Client:
    """A function that sends requests, and one that closes the connections."""

    send: Callable[[httpx.Request], Awaitable[httpx.Response]]
    aclose: Callable[[], Awaitable[None]]


def _proxy_client(tls: ssl.SSLContext | None, idle_seconds: float) -> _Client:
    """Return httpx's own client, which supports proxies."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=idle_seconds)
    client = httpx.AsyncClient(verify=tls or True, follow_redirects=False, limits=limits)
    return _Client(partial(client.send, stream=True), client.aclose)


def _direct_client(tls: ssl.SSLContext | None, idle_seconds: float) -> _Client:
    """Return a client that sends httpx requests by `http1`: no cookies, no redirects."""
    transport = _Http1Transport(tls, idle_seconds)
    return _Client(transport.handle_async_request, transport.aclose)


class _Http1Transport(httpx.AsyncBaseTransport):
    """An httpx transport over `http1`."""

    def __init__(self, tls: ssl.SSLContext | None, idle_seconds: float) -> None:
        self._pool = ConnectionPool(idle_seconds=idle_seconds, tls=tls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, limits = request.url, request.extensions["timeout"]
        secure = url.scheme == "https"
        origin = (url.raw_host.decode("ascii").strip("[]"), url.port or (443 if secure else 80), secure)
        content = request_bytes(request.method.encode(), url.raw_path, request.headers.raw, request.content)
        with _translate_errors(request):
            connection = await self._pool.acquire(origin, limits["connect"])
        with _translate_errors(request, httpx.ReadTimeout, httpx.ReadError):
            response = await self._pool.send(connection, content, limits["read"])
        return httpx.Response(
            response.head.status, headers=response.head.headers, stream=_ResponseStream(response, request)
        )

    async def aclose(self) -> None:
        self._pool.close()


class _ResponseStream(httpx.AsyncByteStream):
    def __init__(self, response: Http1Response, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            with _translate_errors(self._request, httpx.ReadTimeout, httpx.ReadError):
                data = await self._response.read()
            if not data:
                return
            yield data

    async def aclose(self) -> None:
        self._response.close()


@contextmanager
def _translate_errors(
    request: httpx.Request,
    timeout_error: type[httpx.TimeoutException] = httpx.ConnectTimeout,
    network_error: type[httpx.NetworkError] = httpx.ConnectError,
) -> Generator[None]:
    """Raise the exceptions of `http1` as those of httpx."""
    try:
        yield
    except TimeoutError as exc:
        raise timeout_error(str(exc), request=request) from exc
    except OSError as exc:
        raise network_error(str(exc), request=request) from exc
    except ProtocolError as exc:
        raise httpx.RemoteProtocolError(str(exc), request=request) from exc


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context of all providers; reading the certificates takes 20 ms, and more on a busy machine."""
    try:
        tls = httpx.create_ssl_context()
    except OSError as exc:
        raise SettingsError(f"the certificates for https cannot be read: {exc}; is SSL_CERT_FILE right?") from exc
    tls.set_alpn_protocols(["http/1.1"])
    return tls


def _timeout(seconds: float | None) -> httpx.Timeout:
    seconds = _READ_SECONDS if seconds is None else seconds
    return httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds))


def _checked_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL as exc:
        raise SettingsError(f"base URL {text!r} is not a URL ({exc}); it looks like http://127.0.0.1:11434/v1") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"base URL {text!r} needs http:// or https:// and a host, as in http://127.0.0.1:11434/v1")
    return url


def _checked_key(key: str | None, label: str) -> str:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise SettingsError(f"the key for {label} has blanks, line ends or non-ASCII characters; paste it again")
    return key or ""


def _secrets_in(base: httpx.URL, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values whose names mark them as secret, and the password in the base URL."""
    yield base.password
    for name, value in (*headers.items(), *base.params.items()):
        if is_secret_name(name):
            yield value.rpartition(" ")[2]  # without `Bearer`
