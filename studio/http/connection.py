"""Client connections: their time limits and their maximum number.

1. The head of a request must be complete 30 seconds after the connection was made or the previous response was sent, no
   matter how many bytes of it arrived. Clients close idle connections sooner (httpx after five seconds, undici after
   four), so they never send a request at the moment when the server closes its side.
2. A response that is sent before the request's body has arrived has the header `Connection: close`. The rest of the
   body is then read and discarded for at most five seconds: closing at once would reset the connection, and a client
   that is still sending would lose the response.
3. Above a number of connections that leaves file descriptors for the database and for the processes of tools, new
   connections are aborted at once.
4. While connections cannot be accepted at all, because something else used up the file descriptors, they stay in the
   listen queue; the log reports it once a minute, without a traceback.
5. There are no WebSockets: a request with an Upgrade header is answered as if it had none.
6. A response of a server that ends is the last one of its connection, and has the header `Connection: close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agenticx.clocks import Clock, SystemClock
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import exhausted_error
from studio.http.response_writer import ABORT_KEY, WRITE_TIMEOUT_SECONDS, WRITER_KEY, ConnectionWriter, ResponseSender

__all__ = ["ConnectionLimit", "ServerConnection", "uvicorn_config"]

REQUEST_SECONDS = 30.0
ACCEPT_BATCH_SIZE = 16
"""The number of connections that may exist above the limit for the moment that it takes to refuse them: asyncio accepts
that many in one iteration of the loop."""

_DISCARD_SECONDS = 5.0
_MAX_CONNECTIONS = 2_000
_RESERVED_FILES = 256
_LOG_INTERVAL_SECONDS = 60.0

_log = get_logger(__name__)


def _default_max_connections() -> int:
    """Return 2,000, or fewer if the limit of open files is lower.

    256 files, or half of a small limit, stay free for other uses.
    """
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return _MAX_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(files - _RESERVED_FILES, files // 2))


@dataclass(slots=True)
class ConnectionLimit:
    """A server's maximum number of connections, and the log of those that are refused or cannot be accepted.

    Each of the two is logged once a minute at most.
    """

    clock: Clock = field(default_factory=SystemClock)
    max_connections: int = field(default_factory=_default_max_connections)
    _refused: int = 0
    _refusal_logged_at: float | None = None
    _accept_error_logged_at: float | None = None

    def log_refused(self) -> None:
        """Count a refused connection; log the count since the last line unless that is less than a minute ago."""
        self._refused += 1
        now = self.clock.monotonic()
        if self._refusal_logged_at is None or now - self._refusal_logged_at >= _LOG_INTERVAL_SECONDS:
            _log.warning("too many connections: new ones are refused", most=self.max_connections, refused=self._refused)
            self._refused, self._refusal_logged_at = 0, now

    def log_accept_error(self, exc: OSError) -> None:
        """Log that connections could not be accepted; asyncio retries every second."""
        now = self.clock.monotonic()
        if self._accept_error_logged_at is None or now - self._accept_error_logged_at >= _LOG_INTERVAL_SECONDS:
            _log.warning(
                "new connections cannot be accepted and wait", reason=str(exhausted_error(exc) or exc.strerror)
            )
            self._accept_error_logged_at = now

    @contextmanager
    def log_accept_errors_of(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """Log failures of `loop` to accept connections here instead of as tracebacks while the body runs."""
        previous = loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            exc = context.get("exception")
            if isinstance(exc, OSError) and str(context.get("message")).startswith("socket.accept()"):
                self.log_accept_error(exc)
            elif previous is not None:
                previous(loop, context)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handle)
        try:
            yield
        finally:
            loop.set_exception_handler(previous)


class ServerConnection(H11Protocol):
    """uvicorn's h11 protocol with the limits of this module; the scope gets what `response_writer` has keys for."""

    is_ending = False
    """True once the server ends: a response is the last one of its connection then."""
    connection_limit = ConnectionLimit()
    request_seconds = REQUEST_SECONDS
    write_seconds = WRITE_TIMEOUT_SECONDS
    discard_seconds = _DISCARD_SECONDS
    _unsent_bytes = 0
    _discarding = False

    @classmethod
    def with_limits(cls, clock: Clock, connection_limit: ConnectionLimit) -> type[ServerConnection]:
        """Return the class of a server's connections for uvicorn, with time limits in seconds of `clock`."""
        limits = {
            "connection_limit": connection_limit,
            "request_seconds": max(1.0, clock.real(REQUEST_SECONDS)),
            "write_seconds": clock.real(WRITE_TIMEOUT_SECONDS),
            "discard_seconds": clock.real(_DISCARD_SECONDS),
        }
        return type("ServerConnection", (cls,), limits)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._inner_app: ASGIApp = self.app  # type: ignore[assignment]
        self.app = self._run_app  # type: ignore[assignment]
        self._start_request_timer()
        if len(self.connections) > self.connection_limit.max_connections:
            self.connection_limit.log_refused()
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)
        self.app = self._inner_app  # type: ignore[assignment]  # `_run_app` refers to this object

    def _run_app(self, scope: Scope, receive: Receive, _send: Send) -> Awaitable[None]:
        self._timer.cancel()
        if self.is_ending:
            self.cycle.keep_alive = False
        writer = ConnectionWriter(self.cycle, self.write_seconds)
        scope[ABORT_KEY], scope[WRITER_KEY] = self.transport.abort, writer
        return self._inner_app(scope, receive, ResponseSender(self.cycle, writer, partial(self._discard, receive)))

    def on_response_complete(self) -> None:
        self._start_request_timer()
        super().on_response_complete()

    def shutdown(self) -> None:
        if self._discarding:
            self.transport.close()
        else:
            super().shutdown()

    def _start_request_timer(self) -> None:
        self._timer = self.loop.call_later(self.request_seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection.

        Closing waits until the transport's buffer is empty, as long as the client reads some of it every ten seconds;
        after ten seconds without progress the connection is aborted.
        """
        self._timer.cancel()
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes == 0:
            super().timeout_keep_alive_handler()
        elif unsent_bytes == self._unsent_bytes:
            self.transport.abort()
        else:
            self._unsent_bytes = unsent_bytes
            self._timer = self.loop.call_later(self.write_seconds, self.timeout_keep_alive_handler)

    async def _discard(self, receive: Receive) -> None:
        """Read and drop the rest of the request's body, for at most the time that a client has to read its response."""
        self._discarding = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.discard_seconds):
                while (await receive()).get("more_body"):
                    pass

    def _should_upgrade(self) -> bool:
        return False


def uvicorn_config(app: ASGIApp, connection: type[ServerConnection], clock: Clock, *, lifespan: bool) -> uvicorn.Config:
    """Return uvicorn's configuration for an application on such connections, with or without its lifespan.

    httptools would be faster but accepts requests with two Host headers.
    """
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPT_BATCH_SIZE,
        timeout_keep_alive=max(1, int(clock.real(REQUEST_SECONDS))),
    )
