"""The one way out: posts a request to a provider and hands back the raw bytes of its answer.

Known differences to a plain httpx client:

1. Redirects are never followed: the key goes to the host that was configured and to no other.
2. Proxies of the environment are not used for loopback addresses.
3. Answers are asked for uncompressed, so that a small body cannot unpack into a large one.
4. Connections are kept per event loop; one that belongs to another loop is never used.
5. Unless a proxy is configured, requests go over `_http1`, which costs a fifth of httpx's own transport.
6. What https needs is read when the provider is set up, so that no clock of a first call pays for it.
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
from agenticx.llms._failures import COMPRESSED, Complaint, body_complaint, hide_secrets, status_error
from agenticx.llms._http1 import Connections, Http1Reply, ProtocolError, request_bytes
from agenticx.llms.loopback import is_loopback
from agenticx.secret_names import is_secret_name

__all__ = ["Answer", "ProviderHttp"]

_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_SECONDS = 2.0
_CONNECT_SECONDS = 20.0
_READ_SECONDS = 315.0
_IDLE_SECONDS = 30.0
_IDLE_SECONDS_LOCAL = 4.0  # uvicorn, which many local servers run on, closes idle connections after 5

_FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "could not be reached in time"),
    (httpx.ConnectError, "could not be reached"),
    (httpx.ProxyError, "could not be reached through the proxy"),
    (httpx.ReadTimeout, "went silent"),
)
_BROKEN = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


class ProviderHttp:
    """One provider's base URL and headers, and the connections to it.

    `who` names the provider in error messages. `key` never appears in them, nor does what headers or the base URL have
    under a name that says secret. It is sent as bearer token, or bare in the header `key_header`. `base_hint` is advice
    for a 404.
    Raises `SettingsError` for a base URL, key or certificates that no request could be made with.
    """

    def __init__(
        self,
        base_url: str,
        *,
        who: str,
        key: str | None = None,
        key_header: str | None = None,
        headers: Mapping[str, str] | None = None,
        base_hint: str = "",
    ) -> None:
        self._base = _checked_url(base_url)
        self._who = who
        self._base_hint = base_hint
        self._secrets = (_checked_key(key, who), *_secrets_in(self._base, headers or {}))
        self._headers = {"accept-encoding": "identity", "user-agent": "agenticx", **(headers or {})}
        if key and key_header:
            self._headers[key_header] = key
        elif key:
            self._headers["authorization"] = f"Bearer {key}"
        self._tls = _tls() if self._base.scheme == "https" else None
        self._urls: dict[tuple[object, ...], httpx.URL] = {}
        self._ways: WeakKeyDictionary[asyncio.AbstractEventLoop, _Way] = WeakKeyDictionary()

    @property
    def host(self) -> str:
        """Host and port, fit for messages and logs."""
        return self._base.netloc.decode("ascii")

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        accept: str,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Post JSON and return the answer as soon as its head is there; raises `ModelError` for any other than 2xx.

        `query` goes behind what the base URL has of it. `timeout` bounds each wait for bytes, in seconds. The caller
        closes the answer.
        """
        headers = {**self._headers, "content-type": "application/json", "accept": accept}
        limits = {"timeout": _timeout(timeout).as_dict()}
        url = self._url(path, query or {})
        return await self._send(httpx.Request("POST", url, content=body, headers=headers, extensions=limits))

    async def get(self, path: str, *, timeout: float, limit: int) -> bytes:
        """The body at `path`, at most `limit` bytes; raises `ModelError`."""
        limits = {"timeout": httpx.Timeout(timeout).as_dict()}
        request = httpx.Request("GET", self._url(path, {}), headers=self._headers, extensions=limits)
        async with await self._send(request) as answer:
            return await answer.read(limit)

    def hide_secrets(self, error: ModelError) -> ModelError:
        """The same error without the key; whatever is raised of a provider passes here before anybody sees it."""
        return hide_secrets(error, self._secrets)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if way := self._ways.pop(asyncio.get_running_loop(), None):
            await way.aclose()

    def _url(self, path: str, query: Mapping[str, str]) -> httpx.URL:
        """Kept, because making one takes as long as reading ten tokens, and a provider has few."""
        key = (path, *query.items())
        if key not in self._urls:
            url = self._base.copy_with(path=self._base.path.rstrip("/") + path)
            self._urls[key] = url.copy_merge_params(query) if query else url
        return self._urls[key]

    def _way(self) -> _Way:
        loop = asyncio.get_running_loop()
        way = self._ways.get(loop)
        if way is None:
            idle_seconds = _IDLE_SECONDS if self._tls else _IDLE_SECONDS_LOCAL
            proxied = not is_loopback(self._base.host) and bool(getproxies())
            way = self._ways[loop] = (_by_proxy if proxied else _direct)(self._tls, idle_seconds)
        return way

    async def _send(self, request: httpx.Request) -> Answer:
        try:
            response = await self._way().send(request)
        except _BROKEN as exc:
            raise self._transport_error(exc) from exc
        answer = Answer(response, self._transport_error)
        if response.is_success:
            return answer
        async with answer:
            complaint = await self._complaint(answer)
        error = status_error(response.status_code, answer.headers, complaint, who=self._who, base_hint=self._base_hint)
        raise self.hide_secrets(error)

    async def _complaint(self, answer: Answer) -> Complaint:
        if answer.is_compressed:
            return COMPRESSED
        return body_complaint(await answer.beginning(_ERROR_BODY_BYTES, _ERROR_BODY_SECONDS))

    def _transport_error(self, exc: Exception) -> ModelError:
        what = next((what for kind, what in _FAULTS if isinstance(exc, kind)), "broke the connection")
        error = ModelError(
            f"{self._who} at {self.host} {what}: {str(exc) or type(exc).__name__}",
            code="provider.transport",
            retryable=not isinstance(exc, httpx.InvalidURL),
        )
        return self.hide_secrets(error)


class Answer:
    """The head of an answer and, read by read, its body. Use it in `async with`, or close it."""

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
        """Whether the server compresses, which it was asked not to do."""
        return self.headers.get("content-encoding", "identity").lower() != "identity"

    async def next_bytes(self) -> bytes | None:
        """What one read of the socket brought, None at the clean end; raises `ModelError` if the connection breaks."""
        try:
            return await anext(self._reads, None)
        except _BROKEN as exc:
            raise self._transport_error(exc) from exc

    async def read(self, limit: int) -> bytes:
        """The whole body; one over `limit` bytes is a `ModelError`."""
        body = bytearray()
        while (data := await self.next_bytes()) is not None:
            body += data
            if len(body) > limit:
                raise ModelError(f"an answer of over {limit} bytes", code="provider.bad_reply")
        return bytes(body)

    async def beginning(self, limit: int, seconds: float) -> bytes:
        """What comes of the body, up to `limit` bytes and for up to `seconds`: the status says more than its end."""
        body = bytearray()
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(seconds):
                while len(body) < limit and (data := await self.next_bytes()) is not None:
                    body += data
        return bytes(body[:limit])

    async def aclose(self) -> None:
        """Close it; a body that was not read to its end takes the connection with it."""
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


# --- the two ways out ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Way:
    """How requests are sent, and how the connections are ended."""

    send: Callable[[httpx.Request], Awaitable[httpx.Response]]
    aclose: Callable[[], Awaitable[None]]


def _by_proxy(tls: ssl.SSLContext | None, idle_seconds: float) -> _Way:
    """httpx as it comes: it knows all about proxies."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=idle_seconds)
    client = httpx.AsyncClient(verify=tls or True, follow_redirects=False, limits=limits)
    return _Way(partial(client.send, stream=True), client.aclose)


def _direct(tls: ssl.SSLContext | None, idle_seconds: float) -> _Way:
    """httpx's requests and responses over `_http1`, without a client: no cookies, no redirects."""
    transport = _Direct(tls, idle_seconds)
    return _Way(transport.handle_async_request, transport.aclose)


class _Direct(httpx.AsyncBaseTransport):
    """httpx's side of `_http1`."""

    def __init__(self, tls: ssl.SSLContext | None, idle_seconds: float) -> None:
        self._connections = Connections(idle_seconds=idle_seconds, tls=tls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, limits = request.url, request.extensions["timeout"]
        secure = url.scheme == "https"
        origin = (url.raw_host.decode("ascii").strip("[]"), url.port or (443 if secure else 80), secure)
        content = request_bytes(request.method.encode(), url.raw_path, request.headers.raw, request.content)
        with _as_httpx(request):
            wire = await self._connections.connection(origin, limits["connect"])
        with _as_httpx(request, httpx.ReadTimeout, httpx.ReadError):
            reply = await self._connections.exchange(wire, content, limits["read"])
        return httpx.Response(reply.head.status, headers=reply.head.headers, stream=_Body(reply, request))

    async def aclose(self) -> None:
        self._connections.close()


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: Http1Reply, request: httpx.Request) -> None:
        self._reply = reply
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            with _as_httpx(self._request, httpx.ReadTimeout, httpx.ReadError):
                data = await self._reply.read()
            if not data:
                return
            yield data

    async def aclose(self) -> None:
        self._reply.close()


@contextmanager
def _as_httpx(
    request: httpx.Request,
    late: type[httpx.TimeoutException] = httpx.ConnectTimeout,
    broken: type[httpx.NetworkError] = httpx.ConnectError,
) -> Generator[None]:
    """Failures of `_http1` in httpx's words."""
    try:
        yield
    except TimeoutError as exc:
        raise late(str(exc), request=request) from exc
    except OSError as exc:
        raise broken(str(exc), request=request) from exc
    except ProtocolError as exc:
        raise httpx.RemoteProtocolError(str(exc), request=request) from exc


@cache
def _tls() -> ssl.SSLContext:
    """For all providers: reading the certificates takes 20 ms, and far more on a busy machine."""
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


def _checked_key(key: str | None, who: str) -> str:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise SettingsError(f"the key for {who} has blanks, line ends or non-ASCII characters; paste it again")
    return key or ""


def _secrets_in(base: httpx.URL, headers: Mapping[str, str]) -> Iterator[str]:
    """What stands under a name that says secret, and a login's password."""
    yield base.password
    for name, value in (*headers.items(), *base.params.items()):
        if is_secret_name(name):
            yield value.rpartition(" ")[2]  # without `Bearer`
