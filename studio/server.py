"""The HTTP server of the studio: uvicorn with a listening socket of ours, and a shutdown that stops turns first."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette

from agenticx.errors import ResourcesExhausted, SettingsError, error_text
from agenticx.forks import drop_in_child
from agenticx.llms.providers.resolve import load_wire
from agenticx.resource_exhaustion import (
    raise_if_exhausted,
)
from agenticx.threads import start_thread
from studio.app import make_app
from studio.http.connection import ConnectionLimit, ServerConnection, uvicorn_config
from studio.services import Services

__all__ = ["StudioServer", "freeze_startup_memory", "listen"]

_SHUTDOWN_SECONDS = 4.5
"""The time from the signal to the exit. Open responses get the rest of it after the turns have stopped, at least a
second."""
_REQUEST_SECONDS = 1.0
"""The time for a last request on each connection, before a worker that hands over shuts down."""
_PAUSE_SECONDS = 0.02
_UNREAD_SECONDS = 0.9
"""The time of a shutdown for connections whose client reads nothing."""
_BACKLOG = 2048
_SEND_BUFFER_BYTES = 64 * 1024
"""By default the system buffers up to 4 MB for a slow client, and reports the socket writable only once a third of that
was read: a slow client would look like a stopped one, and each stopped one would cost 4 MB."""


class StudioServer(uvicorn.Server):
    """uvicorn on h11 with the studio's start and shutdown.

    It calls `on_ready` once it accepts connections, stops turns before it ends streams, and exits without raising the
    signal again; `stop` ends it as a signal does.
    """

    def __init__(
        self,
        services: Services,
        on_ready: Callable[[], None] = lambda: None,
        stop: threading.Event | None = None,
        *,
        app: Starlette | None = None,
    ) -> None:
        clock = services.clock
        self._connection_limit = ConnectionLimit(clock)
        self._connection_type = ServerConnection.with_limits(clock, self._connection_limit)
        super().__init__(uvicorn_config(app or make_app(services), self._connection_type, clock, lifespan=True))
        self.services = services
        services.relay.shutdown_seconds = math.inf  # `shutdown` ends the streams, after the turns of a worker
        self._on_ready = on_ready
        self._listening: Sequence[socket.socket] = ()
        self._stop = stop or threading.Event()
        self._hands_over = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._listening = sockets or ()
        drop_in_child(self)
        with self._connection_limit.log_accept_errors_of(asyncio.get_running_loop()):
            await super().serve(sockets)

    def drop(self) -> None:
        """Close the sockets in a forked child: clients would wait for it where the server has been killed."""
        for listening in self._listening:
            listening.close()
        for connection in list(self.server_state.connections):
            own: Any = connection.transport.get_extra_info("socket")  # asyncio's wrapper of the socket
            os.close(own._sock.detach())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_BACKLOG)  # not passed to asyncio: it would also accept that many in one iteration
        self.should_exit = self.should_exit or self._stop.is_set()
        if self.should_exit:
            return
        self._on_ready()
        self._preload_wires()

    async def on_tick(self, counter: int) -> bool:
        """Return True once the server is to end; called ten times a second."""
        return await super().on_tick(counter) or self._stop.is_set()

    def _preload_wires(self) -> None:
        """Start a thread that imports the clients of the default models; in the first turn it would block the loop."""
        settings = self.services.settings
        names = (self.services.models.default, *settings.fallback_models)

        def load() -> None:
            with suppress(SettingsError, ImportError, OSError):  # reported by the first turn
                for name in names:
                    load_wire(name)

        with suppress(ResourcesExhausted):
            start_thread(load, name="agx loading models")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        hands_over = self._hands_over and self.services.store.log.is_shared
        self._connection_type.is_ending = True
        waiting = await self._accept_waiting() if hands_over else ()
        for server in self.servers:
            server.close()
        for connection in waiting:
            with suppress(OSError):  # the client has gone
                await loop.connect_accepted_socket(self._make_connection, connection)
        if hands_over:
            await self._hand_over()
        deadline = loop.time() + _SHUTDOWN_SECONDS
        await self.services.hub.close()
        grace = self.config.timeout_graceful_shutdown = max(1, int(deadline - loop.time()))
        relay = self.services.relay
        relay.closing_reason = "handed_over" if hands_over else "parent_ended" if self._stop.is_set() else "stopped"
        relay.closing.set()
        unsent = {connection: _unsent_bytes(connection) for connection in self.server_state.connections}
        loop.call_later(_UNREAD_SECONDS, self._abort_connections, unsent)
        loop.call_later(grace, self._abort_connections)  # before uvicorn would cancel the tasks of the responses
        await super().shutdown(sockets)

    async def _accept_waiting(self) -> Sequence[socket.socket]:
        """Accept the connections that wait: closing the listening sockets would reset them, and lose their requests."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
        await asyncio.sleep(0)  # the loop makes connections of the sockets that it has accepted
        return [connection for listening in self._listening for connection in _waiting_connections(listening)]

    def _make_connection(self) -> asyncio.Protocol:
        return self._connection_type(self.config, self.server_state, self.lifespan.state)

    async def _hand_over(self) -> None:
        """Give the sessions to other workers, if there are any, while the turns and requests of this one end.

        A connection is closed after its next response, with the header `Connection: close`. An idle connection is
        closed after a second; by then a load balancer has noticed that this worker accepts no more connections.
        """
        clock = self.services.clock
        began = clock.monotonic()
        handing_over = asyncio.create_task(self._drain(), name="agx drain")
        while not (handing_over.done() or self.force_exit):
            self._close_connections(idle=clock.monotonic() - began >= _REQUEST_SECONDS)
            await asyncio.wait({handing_over}, timeout=_PAUSE_SECONDS)
        handing_over.cancel()
        await asyncio.gather(handing_over, return_exceptions=True)
        self._close_connections(idle=True)  # a request on one of them would be refused from now on

    async def _drain(self) -> None:
        hub, clock, seconds = self.services.hub, self.services.clock, self.services.settings.drain_seconds
        began = clock.monotonic()
        await hub.drain(seconds)
        while (passed := clock.monotonic() - began) < seconds and any(
            _is_idle(connection) or not connection.cycle.response_started for connection in self._connections
        ):
            await clock.sleep(_PAUSE_SECONDS)
        await hub.drain(seconds - passed)  # with the turns of the last requests

    def _close_connections(self, *, idle: bool) -> None:
        """Close each busy connection after its response, and with `idle` also the idle connections, at once."""
        for connection in self._connections:
            if not _is_idle(connection) or (idle and not _has_input(connection)):
                connection.shutdown()

    @property
    def _connections(self) -> Sequence[Any]:
        """The open connections, each a `ServerConnection`."""
        return [each for each in self.server_state.connections if not cast("Any", each).transport.is_closing()]

    def _abort_connections(self, unsent: Mapping[Any, int] | None = None) -> None:
        """Abort the connections; with `unsent`, earlier numbers of unsent bytes, only those without progress."""
        for connection in list(self.server_state.connections):
            if unsent is None or 0 < unsent.get(connection, 0) <= _unsent_bytes(connection):
                connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle SIGHUP too: when the terminal closes, the turns are stopped as in any other shutdown."""
        with super().capture_signals():
            if not _exits_on_hangup():
                yield
                return
            previous = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, previous)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Request a clean shutdown on the first signal, and an immediate exit on a further Ctrl-C.

        Programs may send SIGTERM twice: two that take over, or one that ends while its parent does. On SIGTERM a worker
        of a shared store hands its sessions over first.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self._hands_over = self._hands_over or sig == signal.SIGTERM
        self.should_exit = True


def _waiting_connections(listening: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that the system has accepted for a listening socket and the server has not."""
    while True:
        try:
            connection, _ = listening.accept()
        except ConnectionAbortedError:  # its client has gone
            continue
        except OSError:  # there is none, or no file descriptor for it
            return
        connection.setblocking(False)
        yield connection


def _is_idle(connection: Any) -> bool:
    """Return True for a connection without a request, or whose last response is complete."""
    return connection.cycle is None or connection.cycle.response_complete


def _has_input(connection: Any) -> bool:
    """Return True if a connection has bytes that were not read yet, or a part of a request."""
    own: Any = connection.transport.get_extra_info("socket")
    try:
        return bool(connection.conn.trailing_data[0] or own._sock.recv(1, socket.MSG_PEEK))
    except OSError:  # there are none, or the client has gone
        return False


def _unsent_bytes(connection: Any) -> int:
    return connection.transport.get_write_buffer_size()


def _exits_on_hangup() -> bool:
    """Return True if SIGHUP has its default action and its handler can be changed.

    Under nohup it is ignored, and outside the main thread handlers cannot be changed.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    return sys.platform != "win32" and main_thread and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet; the server listens once it is ready.

    Raises `SettingsError` if the address cannot be bound.
    """
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)  # its connections inherit it
        bound.bind(socket_address)
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error_text(exc)}; another --port may be free"
        ) from exc
    return bound


def freeze_startup_memory() -> None:
    """Exclude the objects made at start-up from garbage collection, and run the collector less often.

    These objects live as long as the process; with the default threshold the collector would run every few thousand
    events.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
