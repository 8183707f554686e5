"""`agx serve`: the studio on a socket, from its one line on stderr to a clean end."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from types import FrameType

import uvicorn

from agenticx.cli.options import current_folder
from agenticx.errors import ResourcesExhausted, SettingsError
from agenticx.exhaustion import exit_on_memory_error, limit_malloc_arenas, raise_if_exhausted
from agenticx.llms.catalog import find_model_facts, load_wire
from agenticx.settings import Settings, load_settings
from agenticx.threads import start_thread
from studio.app import make_app
from studio.auth import load_token
from studio.connections import ACCEPTED_AT_ONCE, REQUEST_SECONDS, Connection, Crowd
from studio.log_writer import background_logging, print_to_stderr
from studio.opening import Address, open_in_browser, page_url
from studio.services import Services, make_services

__all__ = ["StudioServer", "configure", "listen", "main", "run", "serve", "settle_memory"]

_ENDING_SECONDS = 4.5
"""From the wish to end to the end; what turns leave of it is the readers', who have a second in any case."""
_BACKLOG = 2048
_SEND_BUFFER_BYTES = 64 * 1024
"""Left to itself the system buffers up to 4 MB for a slow client, and says that some of it was taken only once a third
is gone: a slow client would look like one that stopped, and each that stopped would cost 4 MB."""


_EPILOG = """\
The line on stderr holds the page's address with a ticket that works once, within ten minutes; `agx open` gives
another. Programs use the token in AGX_HOME/token: curl -N -H "Authorization: Bearer $(cat ~/.agenticx/token)" …

To be reached from other machines: --host, --allow-remote, and AGX_ALLOWED_HOSTS with the names it is called by.
Whoever holds the token can run commands as you; put TLS in front of it."""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8765, help="the port, 0 for any free one (default: 8765)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--allow-remote", action="store_true", help="allow a --host that other machines can reach")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise ArgumentTypeError(f"{text!r} is no port; ports are 1 to 65535, or 0 for any free one")
    return int(text)


def run(arguments: Namespace) -> int:
    settings = load_settings()
    with background_logging(settings.log_level) as announce:
        return serve(
            settings,
            host=arguments.host,
            port=arguments.port,
            allow_remote=arguments.allow_remote,
            open_page=arguments.open,
            announce=announce,
        )


def main() -> int:
    """`python -m studio.server`: the same as `agx serve`."""
    parser = ArgumentParser(prog="agx serve")
    configure(parser)
    return run(parser.parse_args())


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    open_page: bool = False,
    announce: Callable[[str], None] = print_to_stderr,
) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; returns the exit code.

    `announce` is called with the line that says that turns are accepted, and where. Raises `SettingsError` for what
    must not be served.
    """
    _check_host(host, settings, allow_remote=allow_remote)
    _check_models(settings)
    if settings.workspace_root is None:
        current_folder()  # the workspace of sessions that name none
    token = load_token(settings)
    limit_malloc_arenas()
    listening = listen(host, port)
    address = Address(_reachable(host), listening.getsockname()[1])
    services = make_services(settings, token=token, port=address.port)

    def ready() -> None:
        settle_memory()
        url = page_url(address, services.tickets.issue())
        announce(f"AgenticX studio is ready (model {services.models.default}): {url}")
        address.announce(settings.home)
        if open_page:
            open_in_browser(address, url, settings.home)

    try:
        with asyncio.Runner() as runner, exit_on_memory_error(runner.get_loop()):
            runner.run(StudioServer(services, ready).serve(sockets=[listening]))
    except KeyboardInterrupt:
        return 130
    finally:
        listening.close()
        address.withdraw(settings.home)
    return 0


def settle_memory() -> None:
    """What start-up made stays: the collector need not look at it, nor at every few thousand events."""
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


def _check_models(settings: Settings) -> None:
    """Raises `SettingsError` for a name that no model can have; one whose key is missing may get it later."""
    for name in (settings.model, *settings.fallback_models):
        if name:
            find_model_facts(name)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """The own host that the page is opened at."""
    return "[::1]" if host in ("::1", "::") else "127.0.0.1"


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, which accepts nothing before the server is ready; raises `SettingsError` if it cannot be had."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)  # its connections inherit it
        bound.bind(where)
    except OSError as exc:
        raise_if_exhausted(exc)
        raise SettingsError(f"cannot listen on {host} port {port}: {exc}; another --port may be free") from exc
    return bound


class StudioServer(uvicorn.Server):
    """uvicorn on h11 with our edges: it says when it is ready, stops turns before streams, and ends without re-raising.

    httptools would be quicker but answers requests with two Host headers.
    """

    def __init__(self, services: Services, ready: Callable[[], None] = lambda: None) -> None:
        clock = services.clock
        self._crowd = Crowd(clock)
        connection = type("Connection", (Connection,), {"clock": clock, "crowd": self._crowd})
        super().__init__(
            uvicorn.Config(
                make_app(services),
                http=connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=ACCEPTED_AT_ONCE,
                timeout_keep_alive=max(1, int(clock.real(REQUEST_SECONDS))),
            )
        )
        self._services = services
        self._ready = ready

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with self._crowd.told_by(asyncio.get_running_loop()):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_BACKLOG)  # so many may wait; asyncio would accept as many at a time, too
        self._ready()
        self._load_models()

    def _load_models(self) -> None:
        """Have a thread import what the usual models are asked with, which would hold the loop in the first turn."""
        settings = self._services.settings
        names = (self._services.models.default, *settings.fallback_models)

        def load() -> None:
            with suppress(SettingsError, ImportError, OSError, MemoryError):  # the first turn tells of it
                for name in names:
                    load_wire(name)

        with suppress(ResourcesExhausted):
            start_thread(load, name="agx loading models")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _ENDING_SECONDS
        for server in self.servers:
            server.close()
        await self._services.hub.close()
        self.config.timeout_graceful_shutdown = max(1, int(until - loop.time()))
        self._services.relay.closing.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Hear SIGHUP too: the terminal is gone, and the turns are to end as they do at any other end."""
        with super().capture_signals():
            if not _ends_at_hangup():
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks for a clean end, any further one does not wait for it."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _ends_at_hangup() -> bool:
    """Whether SIGHUP ends this process as it is; under nohup it does not, and in a thread it cannot be changed."""
    main_thread = threading.current_thread() is threading.main_thread()
    return sys.platform != "win32" and main_thread and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
