"""`agx serve`: the studio on a socket, from the ready line on stderr to a clean shutdown."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any, TextIO, cast

import uvicorn
from starlette.applications import Starlette

from agenticx.cli.client.handover import is_chat, request_handover
from agenticx.cli.client.sockets import remove_stale_sockets
from agenticx.cli.client.studio_file import StudioAddress
from agenticx.cli.options import current_folder
from agenticx.errors import ResourcesExhausted, SettingsError
from agenticx.forks import drop_in_child
from agenticx.llms.catalog.resolve import load_wire
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import (
    exit_on_memory_error,
    limit_malloc_arenas,
    raise_if_exhausted,
)
from agenticx.sessions.store.factory import probe_store_owner
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.owner import OwnedElsewhere, OwnerLock
from agenticx.settings import Settings, load_settings
from agenticx.threads import start_thread
from agenticx.token_file import token_path
from studio.app import AppParts, create_app, make_app, parts_of
from studio.app_import import import_app
from studio.event_loop import new_event_loop
from studio.http.connection import ConnectionLimit, ServerConnection, uvicorn_config
from studio.log_writer import background_logging, print_to_stderr
from studio.open_page import open_in_browser, page_url, remove_redirect_page
from studio.parent_watch import watch_parent
from studio.services import Services
from studio.single_instance import lock_home

__all__ = ["StudioServer", "configure", "freeze_startup_memory", "listen", "main", "run", "serve"]

_STDOUT, _STDERR = 1, 2

_log = get_logger(__name__)

_SHUTDOWN_SECONDS = 4.5
"""From the signal to the exit. What stopping the turns leaves of it is for open responses, which get a second at
least."""
_REQUEST_SECONDS = 1.0
"""Before that, the time in which a worker that hands over waits for a request on each connection."""
_PAUSE_SECONDS = 0.02
_UNREAD_SECONDS = 0.9
"""Of that for connections whose client reads nothing."""
_BACKLOG = 2048
_SEND_BUFFER_BYTES = 64 * 1024
"""By default the system buffers up to 4 MB for a slow client, and reports the socket writable only once a third of that
was read: a slow client would look like a stopped one, and each stopped one would cost 4 MB."""


_EPILOG = """\
The line on stderr holds the page's address with a ticket that works once, within ten minutes; `agx open` gives
another. Programs use the token in AGX_HOME/token: curl -N -H "Authorization: Bearer $(cat ~/.agenticx/token)" …
The sessions that a chat in a terminal owns are taken over between two of its turns; other commands of agx use the
server while it runs. Out of memory it exits with 70 and one line on stderr; its log stays intact, so start it again
(with `ulimit -v` allow at least 300 MB).

A program that starts it reads one line from stdout once turns are accepted: agx serve --json --port 0. It has url,
port, token_file, ticket, pid, version, api and instance; all else goes to stderr. While the server runs,
AGX_HOME/studio.json has the same without the ticket. A killed server leaves that file: check that the process runs, and
that GET /api/health answers with the same instance. One studio runs per AGX_HOME; a second one exits with 1 and names
the first, or with --take-over ends it, its turns first. With --exit-with-parent it ends as on a signal when that
program ends or closes its stdin, also in a crash.

To be reached from other machines: --host, --allow-remote, and AGX_ALLOWED_HOSTS with the names it is called by.
Whoever holds the token can run commands as you; put TLS in front of it."""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind (default: 127.0.0.1)")
    parser.add_argument("--port", type=_parse_port, default=8765, help="the port, 0 for any free one (default: 8765)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--json", action="store_true", help="print one line of JSON on stdout when turns are accepted")
    parser.add_argument(
        "--take-over", action="store_true", help="end the studio that runs in this AGX_HOME, and take its place"
    )
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="end when the program that started this one ends, or closes the pipe to its stdin",
    )
    parser.add_argument("--app", metavar="M:N", help="serve an application of studio.create_app, as in my_module:app")
    parser.add_argument("--allow-remote", action="store_true", help="allow a --host that other machines can reach")


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise ArgumentTypeError(f"{text!r} is not a port; ports are 1 to 65535, or 0 for any free one")
    return int(text)


def run(arguments: Namespace) -> int:
    stop, stderr = threading.Event(), sys.stderr
    if arguments.exit_with_parent:
        watch_parent(partial(_stop_without_parent, stop))
    with _kept_stdout() as stdout:
        app = create_app() if arguments.app is None else import_app(arguments.app)
        settings = _parts(app).settings or load_settings()
        with background_logging(settings.log_level) as announce:
            return serve(
                settings,
                app,
                host=arguments.host,
                port=arguments.port,
                allow_remote=arguments.allow_remote,
                open_page=arguments.open,
                take_over=arguments.take_over,
                stop=stop,
                announce=announce,
                announce_json=(lambda line: _print_line(stdout, json.dumps(line))) if arguments.json else None,
                notify=partial(_print_line, stderr),  # other lines are queued until the ready line
            )


@contextmanager
def _kept_stdout() -> Generator[TextIO]:
    """Yield stdout, which nothing else writes to: what the application and its processes print goes to stderr."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        if stdout is not sys.__stdout__:  # a stream of a program that calls this
            yield stdout
            return
        kept = os.fdopen(os.dup(_STDOUT), "w", encoding="utf-8")
        os.dup2(_STDERR, _STDOUT)
        try:
            yield kept
        finally:
            os.dup2(kept.fileno(), _STDOUT)
            with suppress(OSError):  # the reader closed the pipe
                kept.close()


def _stop_without_parent(stop: threading.Event, ended: str) -> None:
    _log.info("the server ends with its parent", ended=ended)
    stop.set()


def _parts(app: Starlette) -> AppParts:
    return parts_of(app) or AppParts()


def _print_line(stream: TextIO, line: str) -> None:
    with suppress(OSError):  # the reader closed the pipe
        print(line, file=stream, flush=True)


def main() -> int:
    """Run `agx serve` as `python -m studio.server`."""
    parser = ArgumentParser(prog="agx serve")
    configure(parser)
    return run(parser.parse_args())


def serve(
    settings: Settings,
    app: Starlette,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    open_page: bool = False,
    take_over: bool = False,
    stop: threading.Event | None = None,
    announce: Callable[[str], None] = print_to_stderr,
    announce_json: Callable[[Mapping[str, Any]], None] | None = None,
    notify: Callable[[str], None] = print_to_stderr,
) -> int:
    """Serve an application of `create_app` until SIGINT, SIGTERM or SIGHUP, or `stop`, and return the exit code.

    Once turns are accepted, `announce` is called with the ready line, which has the page's URL, and `announce_json`
    with the content of the discovery file and the ticket; `notify` gets a line before that while the turn of a chat
    that owns the sessions is waited for. Raises `SettingsError` for a host, setting or model with
    which the server must not start, `OwnedElsewhere` if another studio has this AGX_HOME, and is not to be replaced, or
    if another process has the sessions.
    """
    stop = stop or threading.Event()
    _check_host(host, settings, allow_remote=allow_remote)
    if settings.workspace_root is None:
        current_folder()  # the workspace of sessions created without one
    lock = _lock_after_handover(settings, take_over=take_over, stop=stop, notify=notify)
    try:
        limit_malloc_arenas()
        if stop.is_set():
            return 0
        listening = listen(host, port)
        services = app.state.services = _make_services(app, settings)
        address = _address(services, host, listening)
        services.store.address = _worker_address(host, listening)
        ticket = asyncio.run(services.tickets.issue())
        url = page_url(address, ticket)

        def on_ready() -> None:
            freeze_startup_memory()
            address.write_file(settings.home)
            announce(f"AgenticX studio is ready (model {services.models.default}): {url}")
            if announce_json is not None:
                announce_json({**address.to_json(), "ticket": ticket})
            if open_page:
                open_in_browser(address, url, settings.home)

        return _run(StudioServer(services, on_ready, stop, app=app), listening, address)
    finally:
        lock.release()


def _make_services(app: Starlette, settings: Settings) -> Services:
    try:
        return _parts(app).make_services(settings)
    except OwnedElsewhere as exc:
        text = f"{exc}; an `agx run` frees it with the end of its turn: start the server again then"
        raise OwnedElsewhere(text, pid=exc.pid) from exc


def _lock_after_handover(
    settings: Settings, *, take_over: bool, stop: threading.Event, notify: Callable[[str], None]
) -> OwnerLock:
    """Return the lock of AGX_HOME, after a chat that owns the sessions has given them up.

    It is not held while the chat's turn is waited for, so that another studio can start or be refused as usual.
    """
    drain_seconds = settings.drain_seconds if settings.postgres_urls else 0.0
    lock_own_home = partial(
        lock_home, settings.home, take_over=take_over, drain_seconds=drain_seconds, stopped=stop.is_set
    )
    lock = lock_own_home()
    try:
        remove_stale_sockets(settings.home)
        owner_pid = probe_store_owner(settings)
    except SettingsError:
        lock.release()
        raise
    if owner_pid is None or not is_chat(settings.home, owner_pid):
        return lock
    lock.release()
    request_handover(settings.home, owner_pid, notify, stopped=stop.is_set)
    return lock_own_home()


def _run(server: StudioServer, listening: socket.socket, address: StudioAddress) -> int:
    """Run the server and return the exit code; its files in AGX_HOME are gone then."""
    home = server.services.settings.home
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            loop = runner.get_loop()
            with exit_on_memory_error(loop):
                runner.run(server.serve(sockets=[listening]))
    except KeyboardInterrupt:
        return 130
    finally:
        listening.close()
        address.remove_file(home)
        remove_redirect_page(address, home)
    return 0


def _address(services: Services, host: str, listening: socket.socket) -> StudioAddress:
    port: int = listening.getsockname()[1]
    return StudioAddress(_loopback_host(host), port, services.instance, token_path(services.settings).absolute())


def _worker_address(host: str, listening: socket.socket) -> str:
    """Return the URL of this server as other hosts may reach it."""
    wildcard = host in ("0.0.0.0", "::", "")
    name = this_host() if wildcard else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


def freeze_startup_memory() -> None:
    """Exclude the objects made at start-up from garbage collection, and run the collector less often.

    The former live as long as the process; with the default threshold it would run every few thousand events.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _check_host(host: str, settings: Settings, *, allow_remote: bool) -> None:
    if _is_loopback(host):
        return
    if not allow_remote:
        raise SettingsError(f"--host {host!r} can be reached from other machines; add --allow-remote if you mean it")
    if not settings.allowed_hosts:
        raise SettingsError(
            "--allow-remote needs AGX_ALLOWED_HOSTS, the names or addresses that the server is called by"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _loopback_host(host: str) -> str:
    """Return the loopback host of the page's URL."""
    return "[::1]" if host in ("::1", "::") else "127.0.0.1"


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
            f"cannot listen on {host} port {port}: {exc.strerror or exc}; another --port may be free"
        ) from exc
    return bound


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
            listening.listen(_BACKLOG)  # not passed to asyncio, which would also accept so many in one iteration
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
        self.services.relay.closing.set()
        unsent = {connection: _unsent_bytes(connection) for connection in self.server_state.connections}
        loop.call_later(_UNREAD_SECONDS, self._abort_connections, unsent)
        loop.call_later(grace, self._abort_connections)  # before uvicorn would cancel the tasks of the responses
        await super().shutdown(sockets)

    async def _accept_waiting(self) -> Sequence[socket.socket]:
        """Accept the connections that wait: closing the listening sockets would reset them, and lose their requests."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
        await asyncio.sleep(0)  # in which the loop makes connections of those that it has accepted
        return [connection for listening in self._listening for connection in _waiting_connections(listening)]

    def _make_connection(self) -> asyncio.Protocol:
        return self._connection_type(self.config, self.server_state, self.lifespan.state)

    async def _hand_over(self) -> None:
        """Give the sessions to other workers, if there are any, while the turns and requests of this one end.

        A connection is closed after its next response, which says so. One without a request is closed after a second,
        in which a load balancer has noticed that this worker accepts none any more.
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
        await hub.drain(seconds - passed)  # with the turns that those requests have begun

    def _close_connections(self, *, idle: bool) -> None:
        """Close each connection after the response that is being made; with `idle` at once those without a request."""
        for connection in self._connections:
            if not _is_idle(connection) or (idle and not _has_input(connection)):
                connection.shutdown()

    @property
    def _connections(self) -> Sequence[Any]:
        """The open connections, each a `ServerConnection`."""
        return [each for each in self.server_state.connections if not cast("Any", each).transport.is_closing()]

    def _abort_connections(self, unsent: Mapping[Any, int] | None = None) -> None:
        """Abort the connections; with `unsent`, the bytes that each had to send before, those that have sent none."""
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


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
