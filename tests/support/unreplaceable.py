"""Files that cannot be replaced by renaming, without and with the rights of root."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["bind_file", "drop_file_capabilities", "enter_mount_namespace", "hide_proc", "unwritable"]

_HEADER = struct.pack("=Ii", 0x20080522, 0)  # version 3, this thread
_OVERRIDES = 0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
_MNT_DETACH = 2
_CLONE_NEWNS, _MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 1, 32, 4096, 0x4000, 0x40000


def drop_file_capabilities() -> tuple[int, ...]:
    """Make permissions count for root too, in this thread and those that it starts; return what it had before."""
    had = ctypes.create_string_buffer(24)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "capget") or libc.capget(_HEADER, had) != 0:
        pytest.skip("the rights of root cannot be dropped on this system")
    words = struct.unpack("=6I", had.raw)
    _set_capabilities((words[0] & ~_OVERRIDES, *words[1:]))
    return words


def _set_capabilities(words: tuple[int, ...]) -> None:
    assert ctypes.CDLL(None, use_errno=True).capset(_HEADER, struct.pack("=6I", *words)) == 0


@contextmanager
def unwritable(folder: Path) -> Generator[None]:
    """Let nobody, not even root, create or rename files in the folder."""
    mode = folder.stat().st_mode & 0o7777
    before = drop_file_capabilities()
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(mode)
        _set_capabilities(before)


def enter_mount_namespace() -> bool:
    """Give this process mounts of its own; return False if it may not."""
    libc = ctypes.CDLL(None)
    return libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0


def bind_file(source: Path, file: Path, *, read_only_folder: bool = False) -> None:
    """Mount `source` over `file`, as into a container, and perhaps the folder around it read-only."""
    folder, libc = os.fsencode(file.parent), ctypes.CDLL(None)
    if read_only_folder:
        assert libc.mount(folder, folder, None, _MS_BIND, None) == 0
    assert libc.mount(os.fsencode(source), os.fsencode(file), None, _MS_BIND, None) == 0
    if read_only_folder:
        assert libc.mount(None, folder, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None) == 0


def hide_proc() -> None:
    """Unmount /proc, as where it is unknown which files are mounted."""
    assert ctypes.CDLL(None).umount2(b"/proc", _MNT_DETACH) == 0
