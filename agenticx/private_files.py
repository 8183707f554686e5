"""Files below AGX_HOME that only the user may read, replaced whole by processes that take turns."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "acquire_lock",
    "file_signature",
    "locked_folder",
    "make_folders",
    "read_regular_file",
    "replace_file",
]

_PAUSE_SECONDS = 0.02


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file, without waiting if it is a pipe; raises `OSError`.

    `FileNotFoundError` means that nothing has that name. A link whose target is missing, what is no regular file, and
    a file of more than `max_bytes` are other errors, each a sentence about the file.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        _refuse_dangling_link(path)
        raise
    except IsADirectoryError as exc:
        raise OSError("it is not a regular file") from exc
    if len(content) > max_bytes:
        raise OSError(f"it has more than {max_bytes:,} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, if it is a pipe: an `opener` of `open`."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _refuse_dangling_link(path: Path) -> None:
    """Raise an `OSError` other than `FileNotFoundError` if `path` is a link whose target is missing."""
    if path.is_symlink():
        raise OSError(f"it is a link to {os.readlink(path)!r}, which is missing") from None


def replace_file(path: Path, content: bytes, temporary: Path) -> None:
    """Write a new file of mode 0600 at `temporary` and put it in the place of `path`, durably; raises `OSError`.

    Where `path` is a link, its target is replaced, and the new file is first in the target's folder. A file that a
    killed process left at `temporary` is removed: no other writer may use that name at the same time.
    """
    if path.is_symlink():
        path = Path(os.path.realpath(path))
        temporary = path.with_name(temporary.name)
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


def file_signature(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change with each change of a file, None if nothing has its name; raises any other `OSError`.

    A link whose target is missing is such an error.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        _refuse_dangling_link(path)
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def make_folders(folder: Path, home: Path) -> None:
    """Make a folder and those between it and AGX_HOME, that included, readable by the user alone; raises `OSError`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    between = (each for each in reversed(folder.parents) if each.is_relative_to(home) and each != home)
    for each in (*between, folder):  # `parents` of mkdir gives those above the usual mode
        each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def locked_folder(folder: Path, seconds: float) -> Generator[None]:
    """Hold the lock of a folder, below which whoever holds it may rename or remove it.

    Raises `FileNotFoundError` if the folder is gone, `TimeoutError` if another holds the lock for that many seconds,
    and `OSError` if the file of the lock cannot be made.
    """
    path = folder / ".lock"
    while True:
        if (descriptor := _lock(path, seconds)) is None:
            raise TimeoutError(f"another process has been using it for {seconds:g} seconds")
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the folder was replaced while this one waited
    try:
        yield
    finally:
        os.close(descriptor)


def acquire_lock(path: Path, seconds: float) -> int | None:
    """Lock the file at `path`, made if needed, and return its descriptor, whose closing unlocks it; raises `OSError`.

    Returns None if another process holds the lock for that many seconds.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _lock(path, seconds)


def _lock(path: Path, seconds: float) -> int | None:
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
