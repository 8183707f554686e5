"""`agx serve`: the studio on a socket, from the ready line on stderr to the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, TextIO

from starlette.applications import Starlette

from agenticx.cli.client.handover import is_chat, request_handover
from agenticx.cli.client.sockets import remove_stale_sockets
from agenticx.cli.client.studio_file import StudioAddress
from agenticx.cli.options import current_folder
from agenticx.credentials.server_token import token_path
from agenticx.errors import SettingsError
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import (
    exit_on_memory_error,
    limit_malloc_arenas,
)
from agenticx.sessions.store.factory import probe_store_owner
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.owner import OwnedElsewhere, OwnerLock
from agenticx.settings import Settings, load_settings
from studio.app import AppParts, create_app, parts_of
from studio.app_import import import_app
from studio.event_loop import new_event_loop
from studio.log_writer import background_logging, print_to_stderr
from studio.open_page import open_in_browser, page_url, remove_redirect_page
from studio.parent_watch import watch_parent
from studio.server import StudioServer, freeze_startup_memory, listen
from studio.services import Services
from studio.single_instance import lock_home

__all__ = ["configure", "main", "run", "serve"]

_STDOUT, _STDERR = 1, 2

_log = get_logger(__name__)

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
    """Yield stdout for this module alone: what the application and its processes print goes to stderr."""
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
    """Run `agx serve` as `python -m studio.serve`."""
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

    Once turns are accepted, `announce` is called with the ready line and its URL of the page, and `announce_json` with
    the content of the discovery file and the ticket. Before that, `notify` gets a line while the server waits for the
    turn of a chat that owns the sessions. Raises `SettingsError` for a host, setting or model that the server must not
    start with, `OwnedElsewhere` if another studio has this AGX_HOME and is not to be replaced, or if another process
    has the sessions.
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

    The lock is not held while this waits for the chat's turn, so another studio can start or be refused as usual.
    """
    drain_seconds = settings.drain_seconds if settings.postgres_urls else 0.0
    lock_own_home = partial(
        lock_home, settings.home, take_over=take_over, drain_seconds=drain_seconds, stopped=stop.is_set
    )
    while True:
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
        if not request_handover(settings.home, owner_pid, notify, stopped=stop.is_set):
            return lock_own_home()
        # Another chat may have taken the sessions over before the lock was held again.


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


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
