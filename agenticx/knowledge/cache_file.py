"""SQLite files that are caches of a vault, shared by processes and removed with its folder.

1. A damaged file is made anew. One that another process has removed or replaced is noticed before each use, and the new
   one opened; SQLite itself would go on with the removed one, or mix it with the new one's log.
2. Opening and removing take turns, by the lock of the folder.
3. Where nothing can be written, because the file system is read-only or full, the file is read as it is.
4. What SQLite reports is raised as `VaultUnreadable`, with the file and what would help.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import quote

from agenticx.knowledge.registry import UnknownVault, VaultUnreadable, unusable_file
from agenticx.private_files import locked_folder
from agenticx.tools.visible import visible

__all__ = ["CacheFile", "DamagedFile", "transaction"]

T = TypeVar("T")

_BUSY_SECONDS = 10.0
_TURN_SECONDS = 15.0
_FULL_BYTES = 64 * 1024
"""With less than this left SQLite cannot make the files that it needs beside the database."""
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ERRNOS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.ETIMEDOUT,
    sqlite3.SQLITE_LOCKED: errno.ETIMEDOUT,
    sqlite3.SQLITE_PROTOCOL: errno.ETIMEDOUT,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EIO,
}


class DamagedFile(VaultUnreadable):
    """A file that turned out to be damaged; the next use makes it anew."""


class CacheFile:
    """An SQLite file with one connection for reading, used by one thread at a time, and others for changes.

    `prepare` makes the tables of an empty file, and returns whether the file can be used; if not, it is made anew and
    `was_rebuilt` is True. `generation` grows whenever another file is opened. All methods block and raise
    `VaultUnreadable`, or `UnknownVault` if the folder has been removed or `close` was called.
    """

    def __init__(
        self, path: Path, kind: str, prepare: Callable[[sqlite3.Connection], bool], pragmas: tuple[str, ...]
    ) -> None:
        self.was_rebuilt = False
        self.generation = 0
        self._path = path
        self._kind = kind
        self._prepare = prepare
        self._pragmas = pragmas
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._status: os.stat_result | None = None
        self._is_closed = self._is_read_only = False
        with self._lock:
            self._current()

    def close(self) -> None:
        """Close the file; it cannot be used afterwards."""
        with self._lock:
            self._is_closed = True
            self._close_connection()

    def use(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return `function(connection)`; if the file is damaged, call it again with a new, empty file."""
        with self._lock:
            with suppress(DamagedFile), self._translating():
                return function(self._current())
            with self._translating():
                return function(self._current())

    @contextmanager
    def changing(self) -> Generator[sqlite3.Connection]:
        """Open a connection for changes; meanwhile `use` reads the committed state."""
        with self._lock:
            if self._is_read_only:
                self._try_to_write()
            connection = None
            while connection is None:
                self._current()
                with self._translating(), locked_folder(self._path.parent, _TURN_SECONDS):
                    connection = self._connected() if self._is_current() else None
        with closing(connection), self._translating():
            yield connection

    def _try_to_write(self) -> None:
        """Open the file again, as it may be possible to write now."""
        generation, before = self.generation, self._status
        self._close_connection()
        self._current()
        if self._is_read_only and before and self._status and os.path.samestat(before, self._status):
            self.generation = generation  # it is the same file

    @contextmanager
    def _translating(self) -> Generator[None]:
        """Translate errors of the file into errors for the user, and remove the file if it is damaged."""
        try:
            yield
        except sqlite3.Error as exc:
            if _is_damage(exc):
                self._discard()
                raise DamagedFile(f"the {self._kind} {_shown(self._path)} was damaged: {exc}") from exc
            self._raise(exc)
        except OSError as exc:
            self._raise(exc)

    def _discard(self) -> None:
        with self._lock:
            self._close_connection()
            try:
                with locked_folder(self._path.parent, _TURN_SECONDS):
                    self._unlink()
            except OSError as exc:
                self._raise(exc)

    def _is_current(self) -> bool:
        """Return whether the open file is the one at the path."""
        try:
            return self._status is not None and os.path.samestat(os.stat(self._path), self._status)
        except FileNotFoundError:
            return False

    def _current(self) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now."""
        if self._is_closed:
            raise _removed()
        with self._translating():
            if self._connection is not None and not self._is_current():
                self._close_connection()
            if self._connection is None:
                self._connection = self._opened()
                self._status = os.stat(self._path)
                self.generation += 1
            return self._connection

    # --- opening ------------------------------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        self._is_read_only = False
        try:
            with locked_folder(self._path.parent, _TURN_SECONDS):
                return self._opened_to_write()
        except (OSError, sqlite3.Error) as exc:
            error = exc
        with suppress(OSError, sqlite3.Error):
            connection = self._opened_to_read()
            if connection is not None:
                self._is_read_only = True
                return connection
        raise error

    def _opened_to_write(self) -> sqlite3.Connection:
        for _ in range(2):
            with suppress(FileExistsError):  # not opened here: its closing would drop the locks that SQLite has on it
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self.was_rebuilt = self.was_rebuilt or self.generation > 0
            connection = None
            try:
                connection = self._connected()
                if self._prepare(connection):
                    return connection
            except BaseException as exc:
                if connection is not None:
                    connection.close()
                if not (isinstance(exc, sqlite3.Error) and _is_damage(exc)):
                    raise
            else:
                connection.close()
            self._unlink()
        raise AssertionError("a new file is usable")

    def _opened_to_read(self) -> sqlite3.Connection | None:
        """Return a connection that needs no file beside the database, if its tables can be read; else None."""
        log = self._path.with_name(f"{self._path.name}-wal")
        has_log = log.exists() and log.stat().st_size > 0
        for option in ("", *(() if has_log else ("&immutable=1",))):
            uri = f"file:{quote(os.fsencode(self._path))}?mode=ro{option}"
            connection = sqlite3.connect(
                uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                if self._prepare(connection):
                    return connection
            except sqlite3.Error:
                pass
            connection.close()
        return None

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            for pragma in self._pragmas:
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # opens the log too, in this turn
        except BaseException:
            connection.close()
            raise
        return connection

    def _unlink(self) -> None:
        self.was_rebuilt = True
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(OSError), locked_folder(self._path.parent, _BUSY_SECONDS):
            connection.close()  # SQLite removes the log, by its name, if the database is still at its path
        connection.close()

    def _raise(self, error: OSError | sqlite3.Error) -> NoReturn:
        """Raise the error for the user; an error that is not about the file is raised unchanged."""
        if isinstance(error, FileNotFoundError) and not self._path.parent.is_dir():
            raise _removed() from error
        if isinstance(error, sqlite3.Error):
            code = error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else sqlite3.SQLITE_ERROR
            if code not in _ERRNOS:
                raise error
            number = self._cause(code)
            known = number != errno.EIO
            raise unusable_file(self._path, self._kind, OSError(number, os.strerror(number) if known else str(error)))
        raise unusable_file(self._path, self._kind, error) from error

    def _cause(self, code: int) -> int:
        """Return the error number of an error of SQLite, whose message is general."""
        if code not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
            return _ERRNOS[code]
        if self._path.is_dir():
            return errno.EISDIR
        with suppress(OSError):
            room = os.statvfs(self._path.parent)
            if room.f_flag & os.ST_RDONLY:
                return errno.EROFS
            if room.f_bavail * room.f_frsize < _FULL_BYTES:
                return errno.ENOSPC
        if not (_may(self._path.parent, os.W_OK) and _may(self._path, os.R_OK | os.W_OK)):
            return errno.EACCES
        return _ERRNOS[code]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Commit what the body changes, or undo it if it or the commit fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has undone it if the disk is full
            connection.execute("ROLLBACK")
        raise


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in _DAMAGED or str(error).startswith("no such table")


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _shown(path: Path) -> str:
    return repr(visible(str(path)))


def _removed() -> UnknownVault:
    return UnknownVault("the vault has been removed; `agx vault list` shows those that there are")
