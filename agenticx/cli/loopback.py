"""HTTP to our own server on this machine: one request per connection, with the token, the body as it comes."""

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

_CONNECT_TIMEOUT = 5.0
_RESPONSE_TIMEOUT = 10.0  # nothing that is asked takes long
_READ_TIMEOUT = 25.0  # a stream's heartbeat comes every 10 s

_READ_BYTES = 65_536


class ServerUnreachable(AgenticXError):
    """The server does not answer, or broke off."""


class ServerUnresponsive(ServerUnreachable):
    """The server is there and says nothing: it is held up, or was stopped."""


class RequestRejected(AgenticXError):
    """The server answered with a problem, whose sentence this is; `code` is the problem's own."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """A server's address, as it stands in a URL, and the token that opens it."""

    host: str
    port: int
    token: str = field(repr=False)
    pid: int | None = None
    response_timeout: float = _RESPONSE_TIMEOUT
    """How long the server may take to begin an answer."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def request_json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers; raises `Unreachable`, or what it was refused with.

        That is `SessionNotFound`, `SessionBusy`, `SettingsError` for what cannot be asked for, else `Refused`.
        """
        async with self.stream(method, path, body) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        return json.loads(content) if content else None

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The body of the answer in pieces, as they come; raises what `json` raises, while it is read too."""
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
        """What is to be said of a server that says nothing."""
        if self.pid is None:
            return ServerUnresponsive(f"the server at {self.url} does not answer")
        hint = f"if it was stopped, `kill -CONT {self.pid}` lets it go on"
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
    """One request and its answer."""

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
            raise ServerUnreachable(f"the server at {self.server.url} broke off its answer") from exc
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
            return SettingsError(detail)  # what a command that runs the turn itself would say, too
        case _:
            return RequestRejected(detail, code)
