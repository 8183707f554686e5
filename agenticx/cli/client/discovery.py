"""Discovery of the server that owns the data folder, and the stores used without one."""

from __future__ import annotations

from collections.abc import Callable

from agenticx.cli.client.address_file import read_address
from agenticx.cli.client.http import ServerEndpoint
from agenticx.cli.client.remote import RemoteClient
from agenticx.errors import SettingsError
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import database_path, open_store
from agenticx.sessions.store.memory import MemoryStore
from agenticx.sessions.store.sqlite.owner import OwnedElsewhere, probe_owner_pid
from agenticx.settings import Settings
from agenticx.token_file import token_path

__all__ = ["fallback_store", "open_store_or_find_server", "remote_client", "server_with_pid"]


def open_store_or_find_server(settings: Settings) -> Store | ServerEndpoint:
    """Open the store, of which this process becomes the owner, or return the server that owns it.

    Raise `OwnedElsewhere` if another program that is not a server owns it, `StoreError` if it cannot be used.
    """
    try:
        return open_store(settings)
    except OwnedElsewhere as exc:
        server = server_with_pid(settings, exc.pid)
        if server is None:
            raise
        return server


def fallback_store(error: Exception, notify: Callable[[str], None]) -> Store:
    """Return a store in memory, and notify the user that the session is not stored, with the reason."""
    notify(f"this session is not stored: {error}")
    return MemoryStore()


def remote_client(settings: Settings, server: ServerEndpoint, notify: Callable[[str], None]) -> RemoteClient:
    """Return the client of a server, which may come back at another address."""

    def locate() -> ServerEndpoint | None:
        pid = probe_owner_pid(database_path(settings))
        return None if pid is None else server_with_pid(settings, pid)

    return RemoteClient(locate, server, notify)


def server_with_pid(settings: Settings, pid: int) -> ServerEndpoint | None:
    """Return the server with that process id, from its address file, or None if it is not a server that is ready."""
    address = read_address(settings.home, pid)
    return None if address is None else ServerEndpoint(address.host, address.port, _read_server_token(settings), pid)


def _read_server_token(settings: Settings) -> str:
    path = token_path(settings)
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"the server's token file {str(path)!r} cannot be read: {exc}") from exc
