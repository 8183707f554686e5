"""The hand-over of the data folder from a chat that owns it to a server, over a socket in AGX_HOME.

A chat listens on AGX_HOME/chat-PID.sock, a socket with mode 0600. A server connects and sends the line `release`; the
answers are lines: `waiting` while a turn runs, then `released` once the store is closed, or `refused` and a reason. Any
other request, and one of another user, is refused.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, suppress
from pathlib import Path

from agenticx.cli.client.sockets import listen_at, short_path, socket_path
from agenticx.errors import AgenticXError

__all__ = ["HandoverListener", "HandoverRefused", "is_chat", "request_handover"]

_CONNECT_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_READ_BYTES = 4096
_REQUEST_SECONDS = 5.0
_REQUEST = b"release\n"


class HandoverRefused(AgenticXError):
    """Raised by a chat that cannot give its data folder up; the message says why."""


def is_chat(home: Path, pid: int) -> bool:
    """Return True if the process is a chat that can be asked for the data folder."""
    return socket_path(home, "chat", pid).exists()


def request_handover(
    home: Path, pid: int, notify: Callable[[str], None], *, stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Ask the process that owns the data folder to give it up; return True once it has.

    Returns False at once for a process that is no chat. While a turn runs there, this waits for its end, and calls
    `notify` with a sentence that says so; it returns False once `stopped` is true. Raises `HandoverRefused`. Blocks.
    """
    try:
        connection = _request(socket_path(home, "chat", pid))
    except OSError:  # there is none, or the process has ended
        return False
    with closing(connection):
        for line in _read_lines(connection, stopped):
            word, _, reason = line.strip().partition(" ")
            match word:
                case "waiting":
                    notify(f"waiting for the turn of the chat in process {pid} to end; Ctrl-C gives up")
                case "released":
                    return True
                case "refused":
                    raise HandoverRefused(f"the chat in process {pid} keeps the sessions: {reason}")
                case _:
                    return False
    return False


class HandoverListener:
    """A listener that answers the requests of servers to this process.

    Once `wait_until_idle` returns, `release` closes the store; it raises `HandoverRefused` where that is not possible.
    """

    def __init__(
        self, home: Path, wait_until_idle: Callable[[], Awaitable[None]], release: Callable[[], Awaitable[None]]
    ) -> None:
        self._path = socket_path(home, "chat", os.getpid())
        self._wait_until_idle = wait_until_idle
        self._release = release
        self._release_lock = asyncio.Lock()  # a second server is answered once the store is closed, too
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen; where no socket can be made, nothing is answered."""
        with suppress(OSError):  # a read-only folder, Windows
            self._server = await asyncio.start_unix_server(self._answer, sock=listen_at(self._path))

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._path.unlink()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError), closing(writer):
            if (reason := await _reason_to_refuse(reader, writer)) is not None:
                writer.write(f"refused {reason}\n".encode())
                await writer.drain()
                return
            idle = asyncio.ensure_future(self._wait_until_idle())
            await asyncio.sleep(0)
            if not idle.done():
                writer.write(b"waiting\n")
                await writer.drain()
                await idle
            if reader.at_eof():  # the server has given up
                return
            try:
                async with self._release_lock:
                    await self._release()
            except HandoverRefused as exc:
                writer.write(f"refused {exc}\n".encode())
            else:
                writer.write(b"released\n")
            await writer.drain()


async def _reason_to_refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    """Read the request, and return the reason not to answer it; None for one of a server of the same user."""
    if not _is_same_user(writer.get_extra_info("socket")):
        return "it belongs to another user"
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            request = await reader.readexactly(len(_REQUEST))
    except (TimeoutError, asyncio.IncompleteReadError):
        request = b""
    return None if request == _REQUEST else "the request is not one of agx serve"


def _is_same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end runs as this user; True where the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):  # macOS: the mode of the socket decides
        return True
    credentials = struct.Struct("3i")  # process, user, group
    _, user, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return user == os.geteuid()


def _request(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        with short_path(path) as address:
            connection.connect(address)
        connection.sendall(_REQUEST)
        connection.settimeout(None)  # a turn may take long
    except OSError:
        connection.close()
        raise
    return connection


def _read_lines(connection: socket.socket, stopped: Callable[[], bool]) -> Generator[str]:
    """Yield the lines of a chat's answer until it closes the connection, or `stopped` is true."""
    pending = b""
    while not stopped():
        if not select.select([connection], [], [], _PAUSE_SECONDS)[0]:
            continue
        data = connection.recv(_READ_BYTES)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
