"""File operations on paths that running commands may change meanwhile: no link on the way is followed.

A folder is opened part by part from the root, each relative to the folder before it. What is done then is done to the
entries of that open folder: a link that takes its place meanwhile has no effect.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "FILE_FLAGS",
    "NEW_FILE_FLAGS",
    "descend",
    "list_folder",
    "move_entry",
    "open_folder",
    "read_small_file",
]

FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""To open an existing file; the open of a pipe or a device does not block."""
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ONLY_PATH = getattr(os, "O_PATH", os.O_RDONLY)  # needs no permission to list the folder
_CHUNK_BYTES = 1024 * 1024
_MAX_DEPTH = 64


@contextmanager
def open_folder(path: Path) -> Generator[int]:
    """Open a folder, by an absolute path without links, and yield a descriptor for `dir_fd`.

    Raises `OSError` if a part of the path is missing, a link or no folder.
    """
    with descend(os.open(path.anchor, _ONLY_PATH | _FOLDER_FLAGS), path.parts[1:]) as folder:
        yield folder


@contextmanager
def descend(folder: int, parts: Sequence[str], *, lists: bool = False, new_mode: int | None = None) -> Generator[int]:
    """Open the folder `parts` below an open one, and yield its descriptor; the one of `folder` is closed.

    The descriptor serves for `dir_fd`, with `lists` for `os.scandir` and `os.fsync` too. Missing folders are made if
    `new_mode` is given. Raises `OSError` if a part is missing, a link or no folder.
    """
    flags = (os.O_RDONLY if lists else _ONLY_PATH) | _FOLDER_FLAGS
    try:
        for part in parts:
            if new_mode is not None:
                with suppress(FileExistsError):
                    os.mkdir(part, new_mode, dir_fd=folder)
            child = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = child
        yield folder
    finally:
        os.close(folder)


def list_folder(name: str, folder: int) -> list[str]:
    """Return the names in the folder `name` of an open folder; raises `OSError`, also if it is a link."""
    descriptor = os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=folder)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def read_small_file(name: str, folder: int, limit: int) -> bytes:
    """Return the content of a regular file of an open folder.

    Raises `OSError` if it is a link, a pipe or the like, or has more than `limit` bytes.
    """
    with _open_file(name, folder) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def move_entry(name: str, folder: int, target: Path, parts: Sequence[str]) -> None:
    """Move an entry of an open folder into the folder `parts` below `target`, an absolute path without links.

    Missing folders of `parts` are made. In another file system the entry is copied, and then removed; pipes and
    sockets are not copied. Raises `OSError`.
    """
    with open_folder(target) as root, descend(os.dup(root), parts, new_mode=0o700) as place:
        try:
            os.rename(name, name, src_dir_fd=folder, dst_dir_fd=place)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
            _copy(name, folder, place, _MAX_DEPTH)
            _remove(name, folder)


def _copy(name: str, source: int, target: int, depth: int) -> None:
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    elif stat.S_ISREG(mode):
        _copy_file(name, source, target)
    elif stat.S_ISDIR(mode):
        _copy_folder(name, source, target, depth)


def _copy_folder(name: str, source: int, target: int, depth: int) -> None:
    if depth == 0:
        raise OSError(errno.ENAMETOOLONG, "it has too many folders in one another", name)
    os.mkdir(name, 0o700, dir_fd=target)
    inside = os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=source)
    try:
        made = os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=target)
        try:
            for entry in os.listdir(inside):
                _copy(entry, inside, made, depth - 1)
        finally:
            os.close(made)
    finally:
        os.close(inside)


def _copy_file(name: str, source: int, target: int) -> None:
    with _open_file(name, source) as old:
        remaining = os.fstat(old.fileno()).st_size  # not what another process appends meanwhile
        with open(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=target), "wb") as new:
            while remaining and (chunk := old.read(min(_CHUNK_BYTES, remaining))):
                new.write(chunk)
                remaining -= len(chunk)


def _remove(name: str, folder: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=folder)  # opens each folder without following links
    else:
        os.unlink(name, dir_fd=folder)


def _open_file(name: str, folder: int) -> BinaryIO:
    """Return a regular file of an open folder, opened for reading; raises `OSError` for anything else."""
    descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file")
        return open(descriptor, "rb")
    except OSError:  # `open` of a folder's descriptor does not close it either
        os.close(descriptor)
        raise
