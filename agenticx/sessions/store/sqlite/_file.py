"""Checks of the database file: its type, read-only access and integrity."""

from __future__ import annotations

import sqlite3
import stat
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agenticx.errors import StoreError, error_text
from agenticx.sessions.store.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, VersionMismatch

__all__ = ["check_integrity", "map_file_errors", "read_only_uri", "require_database_file"]

_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16s44xi4xi28x")  # with user_version and application_id
"""https://sqlite.org/fileformat2.html#the_database_header"""


def require_database_file(path: Path) -> None:
    """Raise `StoreError` unless the path is a session database, an empty file, or missing.

    Raises `VersionMismatch` for a database of another version. Nothing is written, so a wrong path is left unchanged.
    For that reason SQLite is not used: for a file with a write-ahead log it would write other files.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise StoreError(f"{str(path)!r} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}, no database")
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(f"the database {str(path)!r} cannot be used: {error_text(exc)}") from exc
    if not header:
        return
    magic, version, application = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
    if magic != _MAGIC:
        raise StoreError(f"{str(path)!r}: the file is not a database; name another one in the URL of the store")
    if application != APPLICATION_ID:
        raise StoreError(f"{str(path)!r} is a database of another program; name another one in the URL of the store")
    if version != SCHEMA_VERSION:
        raise VersionMismatch(path, version)


def read_only_uri(path: Path, *, has_owner: bool = False) -> str:
    """Return the SQLite URI that opens the file of any name for reading only and creates no file beside it.

    A write-ahead log that is not yet checkpointed must be read too, and this needs a shared-memory index. So does a
    file that `has_owner`, since the owner may write at any time.
    """
    log = path.with_name(f"{path.name}-wal")
    quiet = "" if has_owner or (log.exists() and log.stat().st_size) else "&immutable=1"
    return f"{path.absolute().as_uri()}?mode=ro{quiet}"


@contextmanager
def map_file_errors(path: Path) -> Generator[None]:
    """Raise any error of the block as a `StoreError` that names the file."""
    try:
        yield
    except (OSError, sqlite3.Error) as exc:
        raise StoreError(f"the database {str(path)!r} cannot be used: {error_text(exc)}") from exc
    except StoreError as exc:
        raise StoreError(f"{str(path)!r}: {exc}") from exc


def check_integrity(connection: sqlite3.Connection) -> None:
    """Raise `StoreError` if SQLite's quick check finds damage."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(
            f"it is damaged ({verdict}); it was left unchanged. Move it away to start with an empty database,"
            " or restore a copy of it"
        )
