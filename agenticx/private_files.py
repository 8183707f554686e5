"""Files below AGX_HOME that only the user may read, replaced whole by processes that take turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["acquire_lock", "replace_file"]

_PAUSE_SECONDS = 0.02


def replace_file(path: Path, content: bytes, temporary: Path) -> None:
    """Write a new file of mode 0600 at `temporary` and put it in the place of `path`, durably; raises `OSError`.

    A file that a killed process left at `temporary` is removed: no other writer may use that name at the same time.
    """
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)  # a umask may have narrowed the mode
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def acquire_lock(path: Path, seconds: float) -> int | None:
    """Lock the file at `path`, made if needed, and return its descriptor, whose closing unlocks it; raises `OSError`.

    Returns None if another process holds the lock for that many seconds.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    is_locked = False
    try:
        deadline = time.monotonic() + seconds
        while not (is_locked := _try_lock(descriptor)) and time.monotonic() <= deadline:
            time.sleep(_PAUSE_SECONDS)
    finally:
        if not is_locked:
            os.close(descriptor)
    return descriptor if is_locked else None


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # a file system that cannot sync folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_try_lock() -> Callable[[int], bool]:
    try:
        import fcntl
    except ImportError:  # Windows: the last of several writers at once wins, and the file is whole
        return lambda _: True

    def lock_file(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    return lock_file


_try_lock = _make_try_lock()
