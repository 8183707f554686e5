"""Discovery of the running studio and of the owner of the data folder; stores used without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from agenticx.cli.client.http import RequestRejected, ServerEndpoint, ServerUnresponsive
from agenticx.cli.client.reading import ReadingClient
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS, RemoteClient
from agenticx.cli.client.sockets import socket_path
from agenticx.cli.client.studio_file import STUDIO_FILE, StudioAddress, read_address
from agenticx.errors import AgenticXError, SettingsError, error_text
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store, open_store_reader, probe_store_owner
from agenticx.sessions.store.memory import MemoryStore
from agenticx.sessions.store.owner import OwnedElsewhere, probe_owner_pid
from agenticx.settings import Settings

__all__ = [
    "fallback_store",
    "find_studio",
    "is_shared_by_terminal",
    "is_studio_starting",
    "open_reader",
    "open_store_or_find_server",
    "remote_client",
    "server_with_pid",
    "studio_endpoint",
]

_HEALTH_SECONDS = 1.5
_TERMINAL_SECONDS = 10.0  # a terminal imports its server when the first client connects, maybe on a busy machine
_BRIEF_OWNER_SECONDS = 1.0
_ENDING_OWNER_SECONDS = 20.0
_POLL_SECONDS = 0.05
_MAX_HEALTH_BYTES = 64 * 1024


async def open_store_or_find_server(
    settings: Settings, *, response_timeout: float = _HEALTH_SECONDS
) -> Store | ServerEndpoint:
    """Open the store as its owner, or return the server or terminal that owns it.

    Another owner, such as a command that changes a session, gets a moment to end, and a terminal that is giving the
    sessions up, whose socket is still there, more of it. Raise `OwnedElsewhere` if it has not ended by then,
    `StoreError` if the store cannot be used, `ServerUnresponsive` if its owner is a server that does not answer within
    `response_timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    began = waiting_since = loop.time()
    owner_pid = None
    while True:
        try:
            return open_store(settings)
        except OwnedElsewhere as exc:
            server = await server_with_pid(settings, exc.pid, response_timeout=response_timeout)
            if server is not None:
                return server
            if exc.pid != owner_pid:
                owner_pid, waiting_since = exc.pid, loop.time()
            is_ending = socket_path(settings.home, "sessions", exc.pid).exists()
            waited = loop.time() - (began if is_ending else waiting_since)
            if waited > (_ENDING_OWNER_SECONDS if is_ending else _BRIEF_OWNER_SECONDS):
                still = "agx sessions list, show, export, replay and usage still work"
                raise OwnedElsewhere(f"{exc}; {still}", pid=exc.pid) from exc
        await asyncio.sleep(_POLL_SECONDS)


def open_reader(settings: Settings) -> ReadingClient:
    """Return a client that reads the sessions while another process owns them; raise `StoreError` on failure."""
    return ReadingClient(open_store_reader(settings))


def fallback_store(error: Exception, notify: Callable[[str], None]) -> Store:
    """Return a store in memory, and notify the user that the session is not stored, with the reason."""
    notify(f"this session is not stored: {error}")
    return MemoryStore()


def remote_client(
    settings: Settings,
    server: ServerEndpoint,
    notify: Callable[[str], None],
    *,
    restart_seconds: float = RETRY_LIMIT_SECONDS,
    take_over: Callable[[], Awaitable[ServerEndpoint | None]] | None = None,
) -> RemoteClient:
    """Return the client of a server. A server that ends may come back at another address within `restart_seconds`.

    `take_over` is passed to `RemoteClient`.
    """

    async def locate() -> ServerEndpoint | None:
        pid = probe_store_owner(settings)
        return None if pid is None else await server_with_pid(settings, pid)

    def has_owner() -> bool:
        return probe_store_owner(settings) is not None

    return RemoteClient(
        locate, server, notify, has_owner=has_owner, restart_seconds=restart_seconds, take_over=take_over
    )


async def server_with_pid(
    settings: Settings, pid: int, *, response_timeout: float = _HEALTH_SECONDS
) -> ServerEndpoint | None:
    """Return the studio or the terminal with that process id, if it serves the sessions and is ready, else None.

    Raises as `find_studio` does.
    """
    path = socket_path(settings.home, "sessions", pid)
    if path.exists():
        terminal = ServerEndpoint.of_terminal(path, pid)
        is_ready = await _instance_at(terminal, max(2 * response_timeout, _TERMINAL_SECONDS)) is not None
        return terminal if is_ready else None
    address = await find_studio(settings.home, response_timeout=response_timeout)
    return None if address is None or address.pid != pid else studio_endpoint(address)


def is_shared_by_terminal(settings: Settings) -> bool:
    """Return True if a terminal owns the store and serves its sessions to others, as far as can be seen."""
    pid = probe_store_owner(settings)
    return bool(pid) and socket_path(settings.home, "sessions", pid or 0).exists()


def is_studio_starting(settings: Settings) -> bool:
    """Return True if a studio has AGX_HOME, whose sessions it owns or is about to own."""
    return probe_owner_pid(settings.home / STUDIO_FILE) is not None


async def find_studio(home: Path, *, response_timeout: float = _HEALTH_SECONDS) -> StudioAddress | None:
    """Return the address of the running studio of this AGX_HOME: its discovery file, checked against /api/health.

    Return None without a studio, also if a killed studio left its file: its port may belong to another program, and
    that must not get the token. Raise `ServerUnresponsive` if the process accepts connections but does not answer
    within `response_timeout` seconds.
    """
    address = read_address(home)
    if address is None:
        return None
    server = ServerEndpoint(address.host, address.port, None, address.pid)
    return address if await _instance_at(server, response_timeout) == address.instance else None


def studio_endpoint(address: StudioAddress) -> ServerEndpoint:
    """Return the endpoint of a studio, with its token; raises `SettingsError` if that cannot be read."""
    token = _read_server_token(address.token_file)
    return ServerEndpoint(address.host, address.port, token, address.pid, token_file=address.token_file)


async def _instance_at(server: ServerEndpoint, response_timeout: float) -> str | None:
    """Return the instance of the server that answers at an address, or None if none does."""
    server = replace(server, response_timeout=response_timeout)
    try:
        async with asyncio.timeout(response_timeout):
            health = await server.request_json("GET", "/api/health", max_bytes=_MAX_HEALTH_BYTES)
        return str(health["instance"])
    except TimeoutError as exc:
        raise server.unresponsive_error() from exc
    except ServerUnresponsive:
        raise
    except RequestRejected as exc:  # it answers, also while it cannot store turns
        return exc.instance
    except (AgenticXError, ValueError, RecursionError, KeyError, TypeError):  # another program
        return None


def _read_server_token(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"the server's token file {str(path)!r} cannot be read: {error_text(exc)}") from exc
