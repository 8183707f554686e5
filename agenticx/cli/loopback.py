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

__all__ = ["Loopback", "Refused", "Silent", "Unreachable"]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0  # nothing that is asked takes long
_SILENCE_SECONDS = 25.0  # a stream's heartbeat comes every 10 s

_READ_BYTES = 65_536


class Unreachable(AgenticXError):
    """The server does not answer, or broke off."""


class Silent(Unreachable):
    """The server is there and says nothing: it is held up, or was stopped."""


class Refused(AgenticXError):
    """The server answered with a problem, whose sentence this is; `code` is the problem's own."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class Loopback:
    """A server's address, as it stands in a URL, and the token that opens it."""

    host: str
    port: int
    token: str = field(repr=False)
    pid: int | None = None
    answer_seconds: float = _ANSWER_SECONDS
    """How long the server may take to begin an answer."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers; raises `Unreachable`, or what it was refused with.

        That is `SessionNotFound`, `SessionBusy`, `SettingsError` for what cannot be asked for, else `Refused`.
        """
        async with self.body(method, path, body) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        return json.loads(content) if content else None

    @asynccontextmanager
    async def body(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The body of the answer in pieces, as they come; raises what `json` raises, while it is read too."""
        reader, writer = await self._connect()
        try:
            exchange = _Exchange(self, reader, h11.Connection(h11.CLIENT))
            writer.write(exchange.request(self._request(method, path, body), body))
            status = await exchange.status(self.answer_seconds)
            async with aclosing(exchange.chunks()) as chunks:
                if status >= 400:
                    raise _problem(status, b"".join([chunk async for chunk in chunks]))
                yield chunks
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(self.host.strip("[]"), self.port)
        except TimeoutError as exc:
            raise self.silent() from exc
        except OSError as exc:
            raise Unreachable(f"the server at {self.url} does not answer") from exc

    def silent(self) -> Silent:
        """What is to be said of a server that says nothing."""
        if self.pid is None:
            return Silent(f"the server at {self.url} does not answer")
        hint = f"if it was stopped, `kill -CONT {self.pid}` lets it go on"
        return Silent(f"the server at {self.url} (process {self.pid}) does not answer; {hint}")

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> h11.Request:
        headers = [
            ("Host", f"{self.host}:{self.port}"),
            ("Authorization", f"Bearer {self.token}"),
            ("Connection", "close"),
        ]
        if body is not None:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(_encoded(body))))]
        return h11.Request(method=method, target=path, headers=headers)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request and its answer."""

    server: Loopback
    reader: asyncio.StreamReader
    wire: h11.Connection

    def request(self, head: h11.Request, body: Mapping[str, Any] | None) -> bytes:
        parts = [head, *([] if body is None else [h11.Data(data=_encoded(body))]), h11.EndOfMessage()]
        return b"".join(self.wire.send(part) or b"" for part in parts)

    async def status(self, seconds: float) -> int:
        while not isinstance(event := await self._event(seconds), h11.Response):
            pass
        return event.status_code

    async def chunks(self) -> AsyncGenerator[bytes]:
        while isinstance(event := await self._event(_SILENCE_SECONDS), h11.Data):
            yield bytes(event.data)

    async def _event(self, seconds: float) -> object:
        try:
            while (event := self.wire.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(seconds):
                    self.wire.receive_data(await self.reader.read(_READ_BYTES))
        except TimeoutError as exc:
            raise self.server.silent() from exc
        except (OSError, h11.RemoteProtocolError) as exc:
            raise Unreachable(f"the server at {self.server.url} broke off its answer") from exc
        return event


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _problem(status: int, content: bytes) -> AgenticXError:
    try:
        problem: Any = json.loads(content)
        code, sentence = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, sentence = "", f"the server answered with status {status}"
    match code:
        case "session_not_found":
            return SessionNotFound(sentence)
        case "session_busy":
            return SessionBusy(sentence)
        case "unknown_model" | "bad_settings" | "invalid_body":
            return SettingsError(sentence)  # what a command that runs the turn itself would say, too
        case _:
            return Refused(sentence, code)
