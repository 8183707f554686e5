"""A client's connection: the time it is given, and the end of those that bring nothing, take nothing or are too many.

1. Each request has to be there 30 seconds after the connection was made or the answer before it was told, however it
   trickles in. Clients that end what they do not use sooner (httpx after five seconds, undici after four) never send a
   request into the very moment at which the server ends its side.
2. An answer that is told before the body of its request has come says `Connection: close`. What is still on its way is
   read and thrown away for five seconds at most, as ending at once would take the answer from a client that is sending.
3. Beyond a number that leaves files for the database and for what tools start, new connections are ended at once.
4. Where connections cannot be accepted at all, as files are used up by something else, they wait; the log says so once
   a minute, without a traceback.
5. There are no WebSockets: a request to upgrade is answered as if it did not ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agenticx.clocks import Clock, SystemClock
from agenticx.exhaustion import exhausted_error
from agenticx.logs import get_logger
from studio.pieces import ABORT, GONE, STALLED_SECONDS

__all__ = ["ACCEPTED_AT_ONCE", "REQUEST_SECONDS", "Connection", "Crowd"]

REQUEST_SECONDS = 30.0
ACCEPTED_AT_ONCE = 16
"""How many connections may be there beyond the most, for the moment that it takes to refuse them."""

_UNREAD_SECONDS = 5.0
_MOST = 2_000
_OTHER_FILES = 256
_TELL_AGAIN_SECONDS = 60.0
_CLOSE = (b"connection", b"close")

_log = get_logger(__name__)


def _most_connections() -> int:
    """As many as the limit of open files allows beside everything else."""
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, max(files - _OTHER_FILES, files // 2))


@dataclass(slots=True)
class Crowd:
    """The most connections that a server has; the log tells once a minute of more, and of those it cannot accept."""

    clock: Clock = field(default_factory=SystemClock)
    most: int = field(default_factory=_most_connections)
    _refused: int = 0
    _told: float | None = None
    _told_unaccepted: float | None = None

    def refuse(self) -> None:
        self._refused += 1
        now = self.clock.monotonic()
        if self._told is None or now - self._told >= _TELL_AGAIN_SECONDS:
            _log.warning("too many connections: new ones are refused", most=self.most, refused=self._refused)
            self._refused, self._told = 0, now

    def leave_waiting(self, exc: OSError) -> None:
        """Tell that connections could not be accepted; they are tried again every second."""
        now = self.clock.monotonic()
        if self._told_unaccepted is None or now - self._told_unaccepted >= _TELL_AGAIN_SECONDS:
            _log.warning(
                "new connections cannot be accepted and wait", reason=str(exhausted_error(exc) or exc.strerror)
            )
            self._told_unaccepted = now

    @contextmanager
    def told_by(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """While the body runs, have `loop` say here which connections it cannot accept, instead of in tracebacks."""
        before = loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            exc = context.get("exception")
            if isinstance(exc, OSError) and str(context.get("message")).startswith("socket.accept()"):
                self.leave_waiting(exc)
            elif before is not None:
                before(loop, context)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handle)
        try:
            yield
        finally:
            loop.set_exception_handler(before)


class Connection(H11Protocol):
    """uvicorn's on h11, with our limits, and a way for the application to drop it at once."""

    clock: Clock = SystemClock()
    crowd = Crowd()
    _untaken = 0
    _discarding = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        answering = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            self._impatience.cancel()
            scope[ABORT], scope[GONE] = transport.abort, transport.is_closing
            await answering(scope, receive, self._ending_unread(receive, send))  # type: ignore[arg-type]

        self.app = app  # type: ignore[assignment]
        self._await_request()
        if len(self.connections) > self.crowd.most:
            self.crowd.refuse()
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._impatience.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()

    def shutdown(self) -> None:
        if self._discarding:
            self.transport.close()
        else:
            super().shutdown()

    def _await_request(self) -> None:
        seconds = max(1.0, self.clock.real(REQUEST_SECONDS))
        self._impatience = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Closing waits for the end of an answer to be taken: it is waited for only while some of it is."""
        self._impatience.cancel()
        untaken = self.transport.get_write_buffer_size()
        if untaken == 0:
            super().timeout_keep_alive_handler()
        elif untaken == self._untaken:
            self.transport.abort()
        else:
            self._untaken = untaken
            patience = self.clock.real(STALLED_SECONDS)
            self._impatience = self.loop.call_later(patience, self.timeout_keep_alive_handler)

    def _ending_unread(self, receive: Receive, send: Send) -> Send:
        """`send` that ends the connection with an answer to a request whose body has not come by then."""
        cycle, unread = self.cycle, False

        async def sending(message: Message) -> None:
            nonlocal unread
            if message["type"] == "http.response.start" and cycle.more_body:
                unread = True
                headers = [header for header in message["headers"] if header != _CLOSE]
                message = {**message, "headers": [*headers, _CLOSE]}
            elif unread and not message.get("more_body"):
                await send({**message, "more_body": True})
                await self._discard(receive)
                message = {"type": "http.response.body"}
            await send(message)

        return sending

    async def _discard(self, receive: Receive) -> None:
        """Read what there is of a body until its end, or for as long as a client is given to notice its answer."""
        self._discarding = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.clock.real(_UNREAD_SECONDS)):
                while (await receive()).get("more_body"):
                    pass

    def _should_upgrade(self) -> bool:
        return False
