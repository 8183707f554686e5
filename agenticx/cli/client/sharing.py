"""The sessions of a terminal that owns them, served to other terminals at a Unix socket in AGX_HOME.

The server is the studio's HTTP application, without a port and without a discovery file: who knows the owner of the
database finds its socket. It is found through an entry point, because the library must not import the studio, and
imported once another terminal connects, so that a terminal alone starts as fast as without it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from agenticx.cli.client.sockets import listen_at, remove_stale_sockets, socket_path
from agenticx.core.session_notes import SessionNotes
from agenticx.errors import AgenticXError
from agenticx.forks import drop_in_child
from agenticx.llms.images.base import ImageProvider
from agenticx.logs import get_logger
from agenticx.sessions.hub.hub import Hub
from agenticx.sessions.store.base import Store
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.registry import Toolbox

__all__ = ["ENTRY_POINT_GROUP", "ServeSessions", "SessionSharing", "SharedParts"]

ENTRY_POINT_GROUP = "agenticx.session_servers"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The parts of a terminal that run its turns and the turns of other terminals."""

    settings: Settings
    store: Store
    hub: Hub
    toolbox: Toolbox
    images: ImageProvider | None
    notes: SessionNotes


class ServeSessions(Protocol):
    """The entry point: serves sessions at a listening socket while the returned context lasts, then closes the socket.

    The context yields a function that makes the server accept no more connections.
    """

    def __call__(
        self, listening: socket.socket, parts: SharedParts
    ) -> AbstractAsyncContextManager[Callable[[], None]]: ...


class SessionSharing:
    """The listening socket of this process for other terminals; it answers them from `serve` on.

    A terminal makes it before it becomes the owner of the database, so that every owner that shares can be reached.
    If no socket can be made, for example in a read-only folder, `is_possible` is false, and nobody is served.
    """

    def __init__(self, home: Path) -> None:
        self.path = socket_path(home, "sessions", os.getpid())
        self._listening: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._server = AsyncExitStack()
        self._stop_serving: Callable[[], None] | None = None
        remove_stale_sockets(home)
        with suppress(OSError):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._listening = listen_at(self.path)
        drop_in_child(self)

    @property
    def is_possible(self) -> bool:
        return self._listening is not None

    def drop(self) -> None:
        """Close the socket in a forked child: others would wait for its answer once this process has ended."""
        if self._listening is not None:
            self._listening.close()

    def serve(self, parts: SharedParts) -> None:
        """Serve the sessions to all that connect, until `stop_accepting`."""
        if self._listening is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening, self._start, loop, self._listening, parts)

    def _start(self, loop: asyncio.AbstractEventLoop, listening: socket.socket, parts: SharedParts) -> None:
        """Start the server, as the first client has connected; its connection waits."""
        loop.remove_reader(listening)
        self._task = loop.create_task(self._serve(listening, parts), name="agx sharing")

    async def _serve(self, listening: socket.socket, parts: SharedParts) -> None:
        try:
            serve = await run_in_thread(_load_server, name="agx sharing")
            await parts.hub.recover()  # other terminals may go on with the turns that wait in their sessions
            self._stop_serving = await self._server.enter_async_context(serve(listening, parts))
        except (AgenticXError, ImportError) as exc:
            _log.error("the sessions cannot be shared with other terminals", reason=str(exc))
            self.stop_accepting()
            self.remove()

    def stop_accepting(self) -> None:
        """Accept no more connections."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        if self._task is not None:
            self._task.cancel()
        if self._stop_serving is None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        else:
            self._stop_serving()

    def remove(self) -> None:
        """Remove the socket; while it is there, others wait for this process, which is giving the database up."""
        with suppress(OSError):
            self.path.unlink()

    async def aclose(self) -> None:
        """Accept no more connections, and close those that there are."""
        self.stop_accepting()
        if self._task is not None:
            await asyncio.wait({self._task})
        await self._server.aclose()


def _load_server() -> ServeSessions:
    found = next(iter(entry_points(group=ENTRY_POINT_GROUP)), None)
    if found is None:
        raise ImportError(f"no package has an entry point {ENTRY_POINT_GROUP!r}; reinstall agenticx")
    return found.load()
