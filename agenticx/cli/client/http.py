"""HTTP requests to the studio server on this machine: one per connection, with the token, streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11

from agenticx.errors import AgenticXError, SessionBusy, SessionNotFound, SettingsError

__all__ = ["RequestRejected", "ServerEndpoint", "ServerUnreachable", "ServerUnresponsive"]

_CONNECT_TIMEOUT = 5.0  # seconds
_RESPONSE_TIMEOUT = 10.0  # seconds; no request of the CLI takes long
_READ_TIMEOUT = 25.0  # seconds; a stream has a heartbeat every 10 s

_READ_BYTES = 65_536


class ServerUnreachable(AgenticXError):
    """Raised when the server does not answer or closes the connection in the middle of a response."""


class ServerUnresponsive(ServerUnreachable):
    """Raised when the server accepts connections but sends nothing: it is blocked or suspended."""


class RequestRejected(AgenticXError):
    """Raised for a problem response (RFC 9457); the message is its `detail`, `code` its `code`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """The address of a server, as it is written in a URL, and the bearer token for it."""

    host: str
    port: int
    token: str = field(repr=False)
    pid: int | None = None
    response_timeout: float = _RESPONSE_TIMEOUT
    """Seconds that the server may take to start a response."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def request_json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the decoded JSON body, None if it is empty.

        Raise `ServerUnreachable`, or for a problem response: `SessionNotFound`, `SessionBusy`, `SettingsError` for an
        unknown model, bad settings or an invalid body, else `RequestRejected`.
        """
        async with self.stream(method, path, body) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        return json.loads(content) if content else None

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the chunks of the response body as they arrive; raise as `request_json` does, also while iterating."""
        reader, writer = await self._connect()
        try:
            exchange = _Exchange(self, reader, h11.Connection(h11.CLIENT))
            writer.write(exchange.encode_request(self._request(method, path, body), body))
            status = await exchange.read_status(self.response_timeout)
            async with aclosing(exchange.read_chunks()) as chunks:
                if status >= 400:
                    raise _error_from_problem(status, b"".join([chunk async for chunk in chunks]))
                yield chunks
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                return await asyncio.open_connection(self.host.strip("[]"), self.port)
        except TimeoutError as exc:
            raise self.unresponsive_error() from exc
        except OSError as exc:
            raise ServerUnreachable(f"the server at {self.url} does not answer") from exc

    def unresponsive_error(self) -> ServerUnresponsive:
        """Return the error for a server that sends nothing."""
        if self.pid is None:
            return ServerUnresponsive(f"the server at {self.url} does not answer")
        hint = f"if it is suspended, `kill -CONT {self.pid}` resumes it"
        return ServerUnresponsive(f"the server at {self.url} (process {self.pid}) does not answer; {hint}")

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> h11.Request:
        headers = [
            ("Host", f"{self.host}:{self.port}"),
            ("Authorization", f"Bearer {self.token}"),
            ("Connection", "close"),
        ]
        if body is not None:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(_encode_json(body))))]
        return h11.Request(method=method, target=path, headers=headers)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request and its response."""

    server: ServerEndpoint
    reader: asyncio.StreamReader
    connection: h11.Connection

    def encode_request(self, head: h11.Request, body: Mapping[str, Any] | None) -> bytes:
        parts = [head, *([] if body is None else [h11.Data(data=_encode_json(body))]), h11.EndOfMessage()]
        return b"".join(self.connection.send(part) or b"" for part in parts)

    async def read_status(self, timeout: float) -> int:
        while not isinstance(event := await self._next_event(timeout), h11.Response):
            pass
        return event.status_code

    async def read_chunks(self) -> AsyncGenerator[bytes]:
        while isinstance(event := await self._next_event(_READ_TIMEOUT), h11.Data):
            yield bytes(event.data)

    async def _next_event(self, timeout: float) -> object:
        try:
            while (event := self.connection.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(timeout):
                    self.connection.receive_data(await self.reader.read(_READ_BYTES))
        except TimeoutError as exc:
            raise self.server.unresponsive_error() from exc
        except (OSError, h11.RemoteProtocolError) as exc:
            raise ServerUnreachable(
                f"the server at {self.server.url} closed the connection in the middle of a response"
            ) from exc
        return event


def _encode_json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _error_from_problem(status: int, content: bytes) -> AgenticXError:
    try:
        problem: Any = json.loads(content)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, detail = "", f"the server answered with status {status}"
    match code:
        case "session_not_found":
            return SessionNotFound(detail)
        case "session_busy":
            return SessionBusy(detail)
        case "unknown_model" | "bad_settings" | "invalid_body":
            return SettingsError(detail)  # as if the turn ran in this process
        case _:
            return RequestRejected(detail, code)
