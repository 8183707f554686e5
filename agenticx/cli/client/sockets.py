"""Unix sockets in AGX_HOME with mode 0600: their names, and short paths to them."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from agenticx.process_ids import is_running

__all__ = ["SocketPurpose", "listen_at", "remove_stale_sockets", "short_path", "socket_path"]

SocketPurpose = Literal["chat", "sessions"]
"""`chat` sockets take requests for a hand-over to a server, `sessions` sockets requests of other terminals."""

_MAX_PATH_BYTES = 100  # an address has room for 107 on Linux and for 103 on macOS
_BACKLOG = 128


def socket_path(home: Path, purpose: SocketPurpose, pid: int) -> Path:
    """Return the path of a process's socket."""
    return home / f"{purpose}-{pid}.sock"


def listen_at(path: Path) -> socket.socket:
    """Return a non-blocking socket that listens at `path`, mode 0600; raise OSError, as on a read-only disk."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no Unix sockets")
    path.unlink(missing_ok=True)  # of a killed process with the same id
    listening = socket.socket(socket.AF_UNIX)
    try:
        with short_path(path) as address:
            listening.bind(address)
        path.chmod(0o600)  # nobody can connect before `listen`
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


@contextmanager
def short_path(path: Path) -> Generator[str]:
    """Yield a path of the socket that fits into an address: `path`, or one through a temporary link to its folder."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    with TemporaryDirectory(prefix="agx-", ignore_cleanup_errors=True) as folder:
        link = Path(folder, "home")
        link.symlink_to(path.parent.absolute(), target_is_directory=True)
        yield str(link / path.name)


def remove_stale_sockets(home: Path) -> None:
    """Remove the sockets of processes that were killed."""
    with suppress(OSError):  # a read-only folder
        for path in (*home.glob("chat-*.sock"), *home.glob("sessions-*.sock")):
            pid = path.stem.partition("-")[2]
            if not pid.isdecimal() or not is_running(int(pid), of_this_user=True):
                path.unlink(missing_ok=True)
