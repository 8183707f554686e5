"""The HTTP client of all wires: requests to a provider, responses as raw bytes.

Requests are sent by `agenticx.http`; only where a proxy is configured by httpx, through `proxies`.

1. Redirects are never followed: the key is sent to the configured host and to no other.
2. Proxies of the environment (`proxy_settings`) are not used for loopback addresses.
3. Responses are requested uncompressed, so that a small body cannot unpack into a large one.
4. Connections are kept per event loop; one that belongs to another loop is never used.
5. Certificates and modules are read when the provider is set up, so that their loading does not count as time of the
   first call. Whether a proxy is configured is decided then, too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from agenticx.errors import ModelError, SettingsError, error_text
from agenticx.http.url import Url
from agenticx.llms.transport.clients import (
    DirectClient,
    HttpRequest,
    HttpResponse,
    NoLocalServer,
    ProviderClient,
    TransportFailure,
)
from agenticx.llms.transport.errors import COMPRESSED_BODY, ErrorReport, hide_secrets, parse_error_body, status_error
from agenticx.llms.transport.hosts import is_loopback
from agenticx.llms.transport.proxy_settings import Proxy, find_proxy
from agenticx.secret_detection import is_secret_name
from agenticx.settings import provider_setting

__all__ = ["ProviderHttp", "ProviderResponse"]

_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_SECONDS = 2.0
_CONNECT_SECONDS = 20.0
_READ_SECONDS = 315.0
_IDLE_SECONDS = 30.0
_LOCAL_SERVERS = {
    "ollama": "Ollama",
    "ollama-chat": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
}
_SERVERS_BY_PORT = {11434: "Ollama", 1234: "LM Studio"}
_IDLE_SECONDS_LOCAL = 4.0  # uvicorn, used by many local servers, closes idle connections after 5


class ProviderHttp:
    """One provider's base URL and headers, and the connections to it.

    `label` names the provider in error messages. They never contain `key`, nor the values of headers and query
    parameters whose names mark them as secret. The key is sent as a bearer token, or as it is in the header
    `key_header`. `base_url_hint` is advice added to the error for a 404.
    Raises `SettingsError` for a base URL, key or certificates that do not allow any request.
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
        proxy = None if is_loopback(self._base_url.host) else find_proxy(self._base_url)
        logins = proxy.secrets if proxy else ()
        self._secrets = (_checked_key(key, label), *_secrets_in(self._base_url, headers or {}), *logins)
        self._headers = {"accept-encoding": "identity", "user-agent": "agenticx", **(headers or {})}
        if key and key_header:
            self._headers[key_header] = key
        elif key:
            self._headers["authorization"] = f"Bearer {key}"
        self._tls = _tls_context() if self._base_url.scheme == "https" else None
        self._make_client = DirectClient if proxy is None else _proxy_client(proxy)
        self._urls: dict[tuple[object, ...], Url] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, ProviderClient] = WeakKeyDictionary()

    @property
    def host(self) -> str:
        """Host and port without credentials, for messages and logs."""
        return self._base_url.netloc

    @property
    def is_local(self) -> bool:
        """True if the host is this machine."""
        return is_loopback(self._base_url.host)

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        accept: str,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ProviderResponse:
        """Post `body` and return the response once its headers have arrived; raise `ModelError` for any but 2xx.

        `query` is appended to the base URL's own query. `timeout` bounds each wait for bytes, in seconds. The caller
        closes the response.
        """
        headers = {**self._headers, "content-type": content_type, "accept": accept}
        seconds = _READ_SECONDS if timeout is None else timeout
        url = self._url(path, query or {})
        return await self._send(HttpRequest("POST", url, headers, body, min(_CONNECT_SECONDS, seconds), seconds))

    async def get(self, path: str, *, timeout: float, limit: int) -> bytes:
        """Return the body at `path`, at most `limit` bytes; raise `ModelError` otherwise."""
        request = HttpRequest("GET", self._url(path, {}), self._headers, None, timeout, timeout)
        async with await self._send(request) as response:
            return await response.read(limit)

    def hide_secrets(self, error: ModelError) -> ModelError:
        """Return the same error without the key; every error about a provider passes through here."""
        return hide_secrets(error, self._secrets)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    def _url(self, path: str, query: Mapping[str, str]) -> Url:
        """Return the URL of `path`, from a cache: building one takes as long as reading ten tokens."""
        key = (path, *query.items())
        if key not in self._urls:
            self._urls[key] = self._base_url.with_path(path, query)
        return self._urls[key]

    def _client(self) -> ProviderClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            idle_seconds = _IDLE_SECONDS if self._tls else _IDLE_SECONDS_LOCAL
            client = self._clients[loop] = self._make_client(self._tls, idle_seconds)
        return client

    async def _send(self, request: HttpRequest) -> ProviderResponse:
        try:
            response = await self._client().send(request)
        except TransportFailure as exc:
            raise self._transport_error(exc) from exc
        opened = ProviderResponse(response, self._transport_error)
        if 200 <= response.status < 300:
            return opened
        async with opened:
            report = await self._error_report(opened)
        error = status_error(
            response.status, opened.headers, report, label=self._label, base_url_hint=self._base_url_hint
        )
        raise self.hide_secrets(error)

    async def _error_report(self, response: ProviderResponse) -> ErrorReport:
        if response.is_compressed:
            return COMPRESSED_BODY
        return parse_error_body(await response.read_prefix(_ERROR_BODY_BYTES, _ERROR_BODY_SECONDS))

    def _server_name(self) -> str:
        """Return the name of the program that serves models at the base URL, as far as it is known."""
        provider = self._label.partition(":")[0]
        return _LOCAL_SERVERS.get(provider) or _SERVERS_BY_PORT.get(self._base_url.port or 0, "the model server")

    def _transport_error(self, exc: TransportFailure) -> ModelError:
        hint = f"; is {self._server_name()} running?" if isinstance(exc, NoLocalServer) else ""
        text = f"{self._label} at {self.host} {exc}{hint}"
        error = ModelError(text, code="provider.transport", retryable=exc.retryable)
        return self.hide_secrets(error)


class ProviderResponse:
    """A response: its headers and, read by read, its body. Use it in `async with`, or close it."""

    def __init__(self, response: HttpResponse, transport_error: Callable[[TransportFailure], ModelError]) -> None:
        self.headers = response.headers
        self._response = response
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
            return await self._response.read() or None
        except TransportFailure as exc:
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


# --- addresses, certificates and keys ---------------------------------------------------------------------------------


def _proxy_client(proxy: Proxy) -> Callable[[ssl.SSLContext | None, float], ProviderClient]:
    from agenticx.llms.transport.proxies import ProxyClient  # httpx takes 0.15 s

    return partial(ProxyClient, proxy.url)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context of all providers; reading the certificates takes 20 ms, and more on a busy machine."""
    import certifi  # http:// does not need it

    file, folder = provider_setting("SSL_CERT_FILE"), provider_setting("SSL_CERT_DIR")
    try:
        tls = ssl.create_default_context(
            cafile=file or (None if folder else certifi.where()), capath=None if file else folder
        )
    except OSError as exc:
        raise SettingsError(
            f"the certificates for https cannot be read: {error_text(exc)}; is SSL_CERT_FILE right?"
        ) from exc
    tls.set_alpn_protocols(["http/1.1"])
    return tls


def _checked_url(text: str) -> Url:
    try:
        url = Url.parse(text.strip())
    except ValueError as exc:
        raise SettingsError(f"base URL {text!r} is not a URL ({exc}); it looks like http://127.0.0.1:11434/v1") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"base URL {text!r} needs http:// or https:// and a host, as in http://127.0.0.1:11434/v1")
    return url


def _checked_key(key: str | None, label: str) -> str:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise SettingsError(f"the key for {label} has blanks, line ends or non-ASCII characters; paste it again")
    return key or ""


def _secrets_in(base: Url, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values whose names mark them as secret, and the password in the base URL."""
    yield base.password
    parameters = ((name, value) for name, values in base.parameters.items() for value in values)
    for name, value in (*headers.items(), *parameters):
        if is_secret_name(name):
            yield value.rpartition(" ")[2]  # without `Bearer`
