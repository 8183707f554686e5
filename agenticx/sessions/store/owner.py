"""Ownership of a file by one process at a time, with a lock on a second file in the same folder."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from agenticx.errors import StoreError, error_text
from agenticx.forks import drop_in_child
from agenticx.process_ids import is_running
from agenticx.resource_exhaustion import exhausted_error

__all__ = ["FileIdentity", "OwnedElsewhere", "OwnerLock", "probe_owner_pid"]

_ATTEMPTS = 250
_PAUSE_SECONDS = 0.02


class OwnedElsewhere(StoreError):
    """An error because another process owns the file; `pid` is its id, 0 if it could not be read."""

    def __init__(self, message: str, *, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class OwnerLock:
    """A lock held from construction until `release`; the system frees it when the process dies.

    A forked child shares the open file, and so the lock. The child closes it: otherwise it would hold the lock after
    its parent's death.
    """

    def __init__(self, owned: Path) -> None:
        path = _lock_file(owned)
        self._file = -1
        drop_in_child(self)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise StoreError(f"the lock {str(path)!r} cannot be created: {error_text(exc)}") from exc
        if not _lock_with_retries(self._file):
            pid, program = _read_owner_info(self._file)
            self.drop()
            raise OwnedElsewhere(
                f"{str(owned)!r} belongs to {program} (process {pid}); end that, or use another AGX_HOME or store",
                pid=pid,
            )
        owner_info = json.dumps({"pid": os.getpid(), "program": _program()}).encode()
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, owner_info, 0)
        except OSError as exc:
            self.drop()
            reason = exhausted_error(exc) or exc.strerror
            raise StoreError(f"{str(owned)!r} cannot be opened, as {str(path)!r} cannot be written: {reason}") from exc
        self._identity = FileIdentity(path)

    def check(self) -> None:
        """Raise `StoreError` if the lock is not where others look for it: another process may own the database."""
        if self._file < 0:
            raise StoreError("the database belongs to the process that opened it, not to one forked from that")
        if not self._identity.is_unchanged():
            raise StoreError(
                "the lock of the database was removed, so another process may have it: nothing more is stored; restart"
            )

    def release(self) -> None:
        """Release the lock; the file stays, because removing it would let two processes lock it at once."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            _unlock(self._file)  # also where a child of code that bypasses `forks` still has it
            self.drop()

    def drop(self) -> None:
        """Close the file without releasing the lock that another process shares."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class FileIdentity:
    """The identity of the file at a path, to detect that it was moved away or replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _identity(path)

    def is_unchanged(self) -> bool:
        """Return True if the same file is still at the path."""
        return _identity(self._path) == self._known


def probe_owner_pid(owned: Path) -> int | None:
    """Return the id of the process that owns the file, or None; 0 if the owner has not written its id yet.

    If no process owns it, the probe takes the lock for a moment; `OwnerLock` retries meanwhile.
    """
    try:
        file = os.open(_lock_file(owned), os.O_RDWR)
    except OSError:
        return None
    try:
        if not _try_lock(file):
            return _read_owner_info(file)[0]
        _unlock(file)
        return None
    finally:
        os.close(file)


def _lock_with_retries(file: int) -> bool:
    """Return True once the lock is held, False if a running process holds it.

    A lock whose file names no running process is held only briefly: by `probe_owner_pid`, or by an owner that is
    starting.
    """
    for _ in range(_ATTEMPTS):
        if _try_lock(file):
            return True
        if is_running(_read_owner_info(file)[0]):
            return False
        time.sleep(_PAUSE_SECONDS)
    return False


def _lock_file(owned: Path) -> Path:
    """Return the path of the lock, in the folder of the resolved path: all links to a file share one lock."""
    owned = owned.resolve()
    return owned.with_name(f"{owned.name}.owner")


def _read_owner_info(file: int) -> tuple[int, str]:
    """Return the id and the name of the process that owns the lock, as it wrote them; id 0 if it has not."""
    try:
        info: Any = json.loads(os.pread(file, 4096, 0))
        return int(info["pid"]), str(info["program"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, "another program"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _program() -> str:
    words = [Path(sys.argv[0]).name or "python", *sys.argv[1:2]]
    return " ".join(words)[:100]


def _make_locking() -> tuple[Callable[[int], bool], Callable[[int], None]]:
    """Return the functions that lock an open file, if it is free, and unlock it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        windows = cast(Any, msvcrt)

        def lock_byte(file: int) -> bool:
            os.lseek(file, 1 << 30, os.SEEK_SET)  # far after the content, because others cannot read a locked byte
            try:
                windows.locking(file, windows.LK_NBLCK, 1)
            except OSError:
                return False
            return True

        def unlock_byte(file: int) -> None:
            os.lseek(file, 1 << 30, os.SEEK_SET)
            windows.locking(file, windows.LK_UNLCK, 1)

        return lock_byte, unlock_byte

    def lock_file(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock_file(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

    return lock_file, unlock_file


_try_lock, _unlock = _make_locking()
