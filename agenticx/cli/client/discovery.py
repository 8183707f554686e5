"""Discovery of the running studio and of the owner of the data folder; stores used without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agenticx.cli.client.http import ServerEndpoint, ServerUnresponsive
from agenticx.cli.client.reading import ReadingClient
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS, RemoteClient
from agenticx.cli.client.studio_file import StudioAddress, read_address
from agenticx.errors import AgenticXError, SettingsError
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store, open_store_reader, probe_store_owner
from agenticx.sessions.store.memory import MemoryStore
from agenticx.sessions.store.owner import OwnedElsewhere
from agenticx.settings import Settings

__all__ = [
    "fallback_store",
    "find_studio",
    "open_reader",
    "open_store_or_find_server",
    "remote_client",
    "server_with_pid",
    "studio_endpoint",
]

_HEALTH_SECONDS = 1.5
_MAX_HEALTH_BYTES = 64 * 1024


async def open_store_or_find_server(
    settings: Settings, *, response_timeout: float = _HEALTH_SECONDS
) -> Store | ServerEndpoint:
    """Open the store, of which this process becomes the owner, or return the server that owns it.

    Raise `OwnedElsewhere` if another program that is not a server owns it, with the commands that work meanwhile,
    `StoreError` if it cannot be used, `ServerUnresponsive` if its owner is a server that does not answer within
    `response_timeout` seconds.
    """
    try:
        return open_store(settings)
    except OwnedElsewhere as exc:
        server = await server_with_pid(settings, exc.pid, response_timeout=response_timeout)
        if server is None:
            still = "agx sessions list, show, export, replay and usage still work"
            raise OwnedElsewhere(f"{exc}; {still}", pid=exc.pid) from exc
        return server


def open_reader(settings: Settings) -> ReadingClient:
    """Return a client that reads the sessions beside their owner; raise `StoreError` if they cannot be read."""
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
) -> RemoteClient:
    """Return the client of a server, which may come back at another address, within `restart_seconds` of its end."""

    async def locate() -> ServerEndpoint | None:
        pid = probe_store_owner(settings)
        return None if pid is None else await server_with_pid(settings, pid)

    def has_owner() -> bool:
        return probe_store_owner(settings) is not None

    return RemoteClient(locate, server, notify, has_owner=has_owner, restart_seconds=restart_seconds)


async def server_with_pid(
    settings: Settings, pid: int, *, response_timeout: float = _HEALTH_SECONDS
) -> ServerEndpoint | None:
    """Return the studio of this AGX_HOME if it is the process with that id and is ready, else None.

    Raises as `find_studio` does.
    """
    address = await find_studio(settings.home, response_timeout=response_timeout)
    return None if address is None or address.pid != pid else studio_endpoint(address)


async def find_studio(home: Path, *, response_timeout: float = _HEALTH_SECONDS) -> StudioAddress | None:
    """Return the address of the running studio of this AGX_HOME: its discovery file, checked against /api/health.

    None without a studio, also where a killed one left its file: its port may belong to another program, which must
    not get the token. Raises `ServerUnresponsive` if its process accepts connections but does not answer
    within `response_timeout` seconds.
    """
    address = read_address(home)
    if address is None or await _instance_at(address, response_timeout) != address.instance:
        return None
    return address


def studio_endpoint(address: StudioAddress) -> ServerEndpoint:
    """Return the endpoint of a studio, with its token; raises `SettingsError` if that cannot be read."""
    token = _read_server_token(address.token_file)
    return ServerEndpoint(address.host, address.port, token, address.pid, token_file=address.token_file)


async def _instance_at(address: StudioAddress, response_timeout: float) -> str | None:
    """Return the instance of the studio that answers at an address, or None if none does."""
    server = ServerEndpoint(address.host, address.port, None, address.pid, response_timeout)
    try:
        async with asyncio.timeout(response_timeout):
            health = await server.request_json("GET", "/api/health", max_bytes=_MAX_HEALTH_BYTES)
        return str(health["instance"])
    except TimeoutError as exc:
        raise server.unresponsive_error() from exc
    except ServerUnresponsive:
        raise
    except (AgenticXError, ValueError, RecursionError, KeyError, TypeError):  # another program
        return None


def _read_server_token(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"the server's token file {str(path)!r} cannot be read: {exc}") from exc
