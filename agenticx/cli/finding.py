"""Which desk a command works at: the server that has the data folder, else this process, else a store in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agenticx.cli.loopback import Loopback
from agenticx.cli.server_desk import ServerDesk
from agenticx.errors import SettingsError
from agenticx.sessions.base import Store
from agenticx.sessions.memory import MemoryStore
from agenticx.sessions.opening import database_path, open_store
from agenticx.sessions.sqlite.owner import OwnedElsewhere, owner_pid
from agenticx.settings import Settings
from agenticx.token_file import token_path

__all__ = ["own_store", "server_desk", "server_with_pid", "store_in_memory"]


def own_store(settings: Settings) -> Store | Loopback:
    """The store, which from now on belongs to this process, or the server that has it.

    Raises `OwnedElsewhere` where another program has it that is no server, and `StoreError` where it is of no use.
    """
    try:
        return open_store(settings)
    except OwnedElsewhere as exc:
        server = server_with_pid(settings, exc.pid)
        if server is None:
            raise
        return server


def store_in_memory(why: Exception, tell: Callable[[str], None]) -> Store:
    """A store that ends with the process, which the person is told together with the reason."""
    tell(f"what is said now is not kept, as {why}")
    return MemoryStore()


def server_desk(settings: Settings, server: Loopback, tell: Callable[[str], None]) -> ServerDesk:
    """The desk of a server, which may come back at another address."""

    def locate() -> Loopback | None:
        pid = owner_pid(database_path(settings))
        return None if pid is None else server_with_pid(settings, pid)

    return ServerDesk(locate, server, tell)


def server_with_pid(settings: Settings, pid: int) -> Loopback | None:
    """The server that a process is, by the note that it put into AGX_HOME; None if it is none that is ready."""
    try:
        note: Any = json.loads((settings.home / f"studio-{pid}.json").read_text())
        host, _, port = str(note["url"]).removeprefix("http://").rpartition(":")
        if host not in ("127.0.0.1", "[::1]"):
            return None
        return Loopback(host, int(port), _token(settings), pid)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _token(settings: Settings) -> str:
    path = token_path(settings)
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"the server's token is kept in {str(path)!r}, which cannot be read: {exc}") from exc
