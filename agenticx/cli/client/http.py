"""HTTP requests to a studio or another terminal on this machine: one per connection, streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agenticx.cli.client.sockets import short_path
from agenticx.errors import AgenticXError, SessionBusy, SessionNotFound, SettingsError
from agenticx.http.http1 import ConnectionPool, Http1Connection, Http1Response, ProtocolError, request_bytes
from agenticx.tools.artifacts.files import UnknownArtifact

__all__ = [
    "PROVIDER_VARIABLES",
    "TERMINAL_TOKEN",
    "RequestRejected",
    "ServerEndpoint",
    "ServerUnreachable",
    "ServerUnresponsive",
]

TERMINAL_TOKEN = "terminal"
"""The token of a terminal's server, no secret: the mode of its socket decides who can connect."""

PROVIDER_VARIABLES = "AgenticX-Provider-Variables"
"""The header with the variables of providers of a terminal, for the turns that it begins at another terminal."""

_CONNECT_TIMEOUT = 5.0  # seconds
_RESPONSE_TIMEOUT = 10.0  # seconds; no request of the CLI takes long
_READ_TIMEOUT = 25.0  # seconds; a stream has a heartbeat every 10 s
_MAX_PROBLEM_BYTES = 64 * 1024


class ServerUnreachable(AgenticXError):
    """Raised when the server does not answer or closes the connection in the middle of a response."""


class ServerUnresponsive(ServerUnreachable):
    """Raised when the server accepts connections but sends nothing: it is blocked or suspended."""


class RequestRejected(AgenticXError):
    """Raised for a problem response (RFC 9457); the message is its `detail`, `code` its `code`.

    `instance` is that of a server that answers that it cannot store turns.
    """

    def __init__(self, message: str, code: str, *, instance: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.instance = instance


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """The address of a server, as it is written in a URL, and the bearer token for it; None sends no token.

    That of another terminal is the socket at `socket_path`.
    """

    host: str
    port: int
    token: str | None = field(repr=False)
    pid: int | None = None
    response_timeout: float = _RESPONSE_TIMEOUT
    """Seconds that the server may take to start a response."""
    token_file: Path | None = None
    """The file that the token was read from."""
    socket_path: Path | None = None

    @classmethod
    def of_terminal(cls, socket_path: Path, pid: int) -> ServerEndpoint:
        """Return the endpoint of the terminal that serves its sessions at a Unix socket."""
        return cls("localhost", 0, TERMINAL_TOKEN, pid, socket_path=socket_path)

    @property
    def is_terminal(self) -> bool:
        """True for another terminal, False for a studio."""
        return self.socket_path is not None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """The server as messages name it."""
        return f"the server at {self.url}" if self.socket_path is None else "the agx that has the sessions"

    async def request_json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, max_bytes: int | None = None
    ) -> Any:
        """Send a request and return the decoded JSON body, None if it is empty.

        At most `max_bytes` of the body are read. Raise `ServerUnreachable`, ValueError for a body that is not JSON, or
        the error of a problem response: `SessionNotFound`, `SessionBusy`, `UnknownArtifact`, `SettingsError` for an
        unknown model, bad settings or an invalid body, else `RequestRejected`.
        """
        async with self.stream(method, path, body) as chunks:
            content = await _read_up_to(max_bytes, chunks)
        return json.loads(content) if content else None

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the chunks of the response body as they arrive; raise as `request_json` does, also while iterating."""
        with closing(ConnectionPool(idle_seconds=0)) as pool:
            with self._translate_errors("does not answer"):
                connection = await self._connect(pool)
            with self._translate_errors():
                content = self._request(method, path, body)
                response = await pool.send(connection, content, self.response_timeout, _READ_TIMEOUT)
            with closing(response):
                async with aclosing(self._read_chunks(response)) as chunks:
                    if response.head.status >= 400:
                        content = await _read_up_to(_MAX_PROBLEM_BYTES, chunks)
                        raise self._error_from_problem(response.head.status, content)
                    yield chunks

    async def _connect(self, pool: ConnectionPool) -> Http1Connection:
        if self.socket_path is None:
            return await pool.acquire((self.host.strip("[]"), self.port, False), _CONNECT_TIMEOUT)
        with short_path(self.socket_path) as path:
            return await pool.acquire_unix(path, _CONNECT_TIMEOUT)

    def unresponsive_error(self) -> ServerUnresponsive:
        """Return the error for a server that sends nothing."""
        if self.pid is None:
            return ServerUnresponsive(f"{self.name} does not answer")
        hint = f"if it is suspended, `kill -CONT {self.pid}` resumes it"
        return ServerUnresponsive(f"{self.name} (process {self.pid}) does not answer; {hint}")

    def _error_from_problem(self, status: int, content: bytes) -> AgenticXError:
        error = _error_from_problem(status, content, "" if self.is_terminal else f"{self.name}: ")
        if isinstance(error, RequestRejected) and error.code == "unauthorized" and self.token_file is not None:
            problem = f"{str(self.token_file)!r} was replaced and no longer has the token of the server at {self.url}"
            return RequestRejected(f"{problem}; restart that: `agx serve --take-over`", error.code)
        if isinstance(error, RequestRejected) and error.code == "shutting_down" and self.is_terminal:
            return ServerUnreachable(f"{self.name} ends")  # the next one takes the request
        return error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        headers = {"Host": f"{self.host}:{self.port}", "Connection": "close"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.is_terminal and (method in ("POST", "PATCH") or path.startswith("/api/models")):
            headers |= _variables_header()
        if body is None:
            return request_bytes(method, path, headers)
        return request_bytes(method, path, headers | {"Content-Type": "application/json"}, json.dumps(body).encode())

    async def _read_chunks(self, response: Http1Response) -> AsyncGenerator[bytes]:
        while True:
            with self._translate_errors():
                chunk = await response.read()
            if not chunk:
                return
            yield chunk

    @contextmanager
    def _translate_errors(self, what: str = "closed the connection in the middle of a response") -> Generator[None]:
        try:
            yield
        except TimeoutError as exc:
            raise self.unresponsive_error() from exc
        except (OSError, ProtocolError) as exc:
            raise ServerUnreachable(f"{self.name} {what}") from exc


def _variables_header() -> dict[str, str]:
    from agenticx.llms.providers.terminal_variables import own_variables  # with the catalogue it takes 0.1 s

    variables = own_variables()
    return {PROVIDER_VARIABLES: json.dumps(variables)} if variables else {}


async def _read_up_to(max_bytes: int | None, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the bytes of all chunks, or of the first ones that have `max_bytes` together."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if max_bytes is not None and len(content) > max_bytes:
            return bytes(content[:max_bytes])
    return bytes(content)


def _error_from_problem(status: int, content: bytes, server: str) -> AgenticXError:
    instance: str | None = None
    try:
        problem: Any = json.loads(content)
        code, detail = str(problem["code"]), str(problem["detail"])
        instance = problem.get("server_instance")
    except (ValueError, KeyError, TypeError):
        code, detail = "", f"the server answered with status {status}"
    match code:
        case "session_not_found":
            return SessionNotFound(detail)
        case "session_busy":
            return SessionBusy(detail)
        case "artifact_not_found":
            return UnknownArtifact(detail)
        case "unknown_model":
            return SettingsError(f"{server}{detail}")  # a key may be missing there, and be set here
        case "unknown_agent" | "bad_agent" | "unknown_team" | "bad_team" | "bad_settings" | "invalid_body":
            return SettingsError(detail)  # as if the turn ran in this process
        case _:
            return RequestRejected(detail, code, instance=instance)
