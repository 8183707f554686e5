"""The database as a file: what may be one at all, how to look at it, what is wrong with it, and whether it is there."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agenticx.errors import StoreError

__all__ = ["FileIdentity", "check_integrity", "map_file_errors", "read_only_uri", "require_database_file"]

_HEADER = b"SQLite format 3\0"
"""https://sqlite.org/fileformat2.html#the_database_header"""


def require_database_file(path: Path) -> None:
    """Raises `StoreError`; writes nothing and makes nothing, so that a wrong path is left as it was."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise StoreError(f"{str(path)!r} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}, no database")
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(f"the database {str(path)!r} cannot be used: {exc}") from exc
    if header not in (b"", _HEADER):
        raise StoreError(f"{str(path)!r}: the file is not a database; name another one in AGX_STORE_URL")


def read_only_uri(path: Path) -> str:
    """The file as SQLite takes it to only read it, whatever its name holds; nothing is made beside it then.

    A log beside it that is still to be written into it must be read too: that is not possible without a shared index.
    """
    log = path.with_name(f"{path.name}-wal")
    quiet = "" if log.exists() and log.stat().st_size else "&immutable=1"
    return f"{path.absolute().as_uri()}?mode=ro{quiet}"


@contextmanager
def map_file_errors(path: Path) -> Generator[None]:
    """Whatever fails in the block comes out as a `StoreError` that names the file."""
    try:
        yield
    except (OSError, sqlite3.Error) as exc:
        raise StoreError(f"the database {str(path)!r} cannot be used: {exc}") from exc
    except StoreError as exc:
        raise StoreError(f"{str(path)!r}: {exc}") from exc


def check_integrity(connection: sqlite3.Connection) -> None:
    """Raises `StoreError` for what SQLite finds damaged."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(
            f"it is damaged ({verdict}); it was left as it is. Move it away to begin anew, or restore a copy of it"
        )


class FileIdentity:
    """Which file it is that has this name now: somebody may move it away, or put another one in its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _identity(path)

    def is_unchanged(self) -> bool:
        """Whether the name is still that file's."""
        return _identity(self._path) == self._known


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
