"""A faulty disk below SQLite, made with its virtual file system interface (VFS).

Operations fail or are recorded. The shapes of its two tables: https://www.sqlite.org/c3ref/vfs.html and
https://www.sqlite.org/c3ref/io_methods.html.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

FULL, BUSY, IOERR_WRITE, IOERR_FSYNC, IOERR_READ = 13, 5, 778, 1034, 266
FAILURES = {
    "ENOSPC": ("write", FULL),
    "EIO": ("write", IOERR_WRITE),
    "EIO on sync": ("sync", IOERR_FSYNC),
    "EIO on read": ("read", IOERR_READ),
    "BUSY": ("lock", BUSY),
}
_VFS_HEAD = [("version", c_int), ("file_size", c_int), ("path_size", c_int), ("next", c_void_p), ("name", c_char_p)]
_VFS_NAMES = (
    *("open", "delete", "access", "full_path", "dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep"),
    *("time", "last_error", "time64", "set_call", "get_call", "next_call"),
)
_IO_NAMES = (
    *("close", "read", "write", "truncate", "sync", "size", "lock", "unlock", "reserved", "control", "sector"),
    *("features", "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch"),
)


class _Vfs(ctypes.Structure):
    _fields_ = [*_VFS_HEAD, ("data", c_void_p), *((name, c_void_p) for name in _VFS_NAMES)]


class _Methods(ctypes.Structure):
    _fields_ = [("version", c_int), *((name, c_void_p) for name in _IO_NAMES)]


class _File(ctypes.Structure):
    _fields_ = [("methods", POINTER(_Methods))]


_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)  # SQLite keeps the pointer to the name
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_TRANSFER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_SHM_LOCK = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int)
_LOCK_FLAG = 2  # SQLITE_SHM_LOCK


class DiskFault:
    """A fault of the `nth` operation of one kind, read from the file `control`, which `arm` writes."""

    def __init__(self, control: Path, note: Callable[..., None]) -> None:
        self._control = control
        self._note = note
        self._stamp = 0
        self._what: str | None = None
        self._left = 0
        self._seconds = self._until = 0.0

    def next_failure(self, kinds: Callable[[str], bool]) -> str | None:
        """Count an operation; return the failure that it must have now, if that is one of `kinds`, else None."""
        self._read_control()
        if self._what is None or not kinds(self._what):
            return None
        self._left -= 1
        if self._left == 0:
            self._until = time.monotonic() + self._seconds
            self._note("failed", self._what.replace(" ", "_"))
            return self._what
        return self._what if time.monotonic() < self._until else None

    def _read_control(self) -> None:
        try:
            stamp = os.stat(self._control).st_ino
        except FileNotFoundError:
            return
        if stamp != self._stamp:
            self._stamp = stamp
            failure = json.loads(self._control.read_text())
            self._what, self._left, self._seconds, self._until = (
                failure["what"],
                failure["nth"],
                failure["seconds"],
                0.0,
            )


def arm(control: Path, what: str | None, nth: int = 0, seconds: float = 0.0) -> None:
    """Make the `nth` operation fail, and all others until `seconds` have passed."""
    new = control.with_name(f"{control.name}.{time.monotonic_ns()}")
    new.write_text(json.dumps({"what": what, "nth": nth, "seconds": seconds}))
    new.replace(control)


class Disk:
    """A disk that records writes and syncs in `trace`; `control` chooses failures, by the names of FAILURES."""

    def __init__(self, trace: str, control: str | None = None) -> None:
        self._file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._fault = None if control is None else DiskFault(Path(control), self.note)

    def error_code(self, kind: str) -> int:
        """Return the SQLite error code of this operation, 0 for none."""
        what = self._fault and self._fault.next_failure(lambda name: name in FAILURES and FAILURES[name][0] == kind)
        return FAILURES[what][1] if what else 0

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


_kept: list[Any] = []  # what SQLite has pointers to


def install(disk: Disk) -> None:
    """Put all databases that this process opens from now on on `disk`."""
    library = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    library.sqlite3_vfs_register.argtypes = [POINTER(_Vfs), c_int]
    usual = library.sqlite3_vfs_find(None).contents
    ours = _Vfs.from_buffer_copy(usual)
    ours.name, ours.next = b"watched", None
    names: dict[int, str] = {}
    wrap = _WrappedMethods(disk, names)

    def open_(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        code = _OPEN(usual.open)(vfs, name, file, flags, out)
        if code == 0 and name is not None:
            names[file] = _name_at(name)
            ctypes.cast(file, POINTER(_File)).contents.methods = wrap.methods(file)
        return code

    def delete(vfs: int, name: int, sync: int) -> int:
        disk.note("delete", _name_at(name))
        return _DELETE(usual.delete)(vfs, name, sync)

    kept_open, kept_delete = _OPEN(open_), _DELETE(delete)
    ours.open = ctypes.cast(kept_open, c_void_p)
    ours.delete = ctypes.cast(kept_delete, c_void_p)
    _kept.extend([ours, kept_open, kept_delete, wrap])
    library.sqlite3_vfs_register(ctypes.byref(ours), 1)


def _name_at(pointer: int) -> str:
    return Path(os.fsdecode(ctypes.string_at(pointer))).name


class _WrappedMethods:
    """The wrapped file methods, made once for each method table that SQLite has."""

    def __init__(self, disk: Disk, names: dict[int, str]) -> None:
        self._disk = disk
        self._names = names
        self._made: dict[int, tuple[_Methods, list[Any]]] = {}

    def methods(self, file: int) -> Any:
        pointer = ctypes.cast(file, POINTER(_File)).contents.methods
        address = ctypes.cast(pointer, c_void_p).value or 0
        if address not in self._made:
            self._made[address] = self._wrapped(pointer.contents)
        return ctypes.pointer(self._made[address][0])

    def _wrapped(self, usual: _Methods) -> tuple[_Methods, list[Any]]:
        ours = _Methods.from_buffer_copy(usual)
        kept = [
            _TRANSFER(self._read(_TRANSFER(usual.read))),
            _TRANSFER(self._write(_TRANSFER(usual.write))),
            _TRUNCATE(self._truncate(_TRUNCATE(usual.truncate))),
            _SYNC(self._sync(_SYNC(usual.sync))),
            _SHM_LOCK(self._lock(_SHM_LOCK(usual.shm_lock))),
        ]
        for name, function in zip(("read", "write", "truncate", "sync", "shm_lock"), kept, strict=True):
            if getattr(usual, name):
                setattr(ours, name, ctypes.cast(function, c_void_p))
        return ours, kept

    def _read(self, usual: Callable[..., int]) -> Callable[..., int]:
        def read(file: int, to: int, size: int, offset: int) -> int:
            return self._disk.error_code("read") or usual(file, to, size, offset)

        return read

    def _write(self, usual: Callable[..., int]) -> Callable[..., int]:
        def write(file: int, content: int, size: int, offset: int) -> int:
            error = self._disk.error_code("write")
            if error:
                return error
            self._disk.note("write", self._names[file], offset, size)
            return usual(file, content, size, offset)

        return write

    def _truncate(self, usual: Callable[..., int]) -> Callable[..., int]:
        def truncate(file: int, size: int) -> int:
            self._disk.note("truncate", self._names[file], size)
            return usual(file, size)

        return truncate

    def _sync(self, usual: Callable[..., int]) -> Callable[..., int]:
        def sync(file: int, flags: int) -> int:
            code = self._disk.error_code("sync") or usual(file, flags)
            if code == 0:
                self._disk.note("sync", self._names[file])
            return code

        return sync

    def _lock(self, usual: Callable[..., int]) -> Callable[..., int]:
        def lock(file: int, offset: int, count: int, flags: int) -> int:
            if flags & _LOCK_FLAG and (error := self._disk.error_code("lock")):
                return error
            return usual(file, offset, count, flags)

        return lock


def unsynced_writes(trace: Path) -> dict[str, list[tuple[int, int]]]:
    """Return, by file name, the offsets and sizes of the writes since the file was last synced."""
    waiting: dict[str, list[tuple[int, int]]] = {}
    for line in trace.read_text().splitlines():
        match line.split():
            case ["write", name, offset, size]:
                waiting.setdefault(name, []).append((int(offset), int(size)))
            case ["sync" | "delete", name]:
                waiting.pop(name, None)
            case ["truncate", name, size]:
                kept = [(place, min(length, int(size) - place)) for place, length in waiting.pop(name, [])]
                waiting[name] = [(place, length) for place, length in kept if length > 0]
            case _:
                pass
    return waiting
