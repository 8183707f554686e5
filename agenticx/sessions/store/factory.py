"""The store that the settings name, and its file."""

from __future__ import annotations

from pathlib import Path

from agenticx.clocks import Clock
from agenticx.errors import SettingsError
from agenticx.home_permissions import check_home
from agenticx.logs import get_logger
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.base import Store, StoreReader
from agenticx.sessions.store.blobs import BlobFolder
from agenticx.sessions.store.owner import probe_owner_pid
from agenticx.sessions.store.sqlite import SqliteStore
from agenticx.sessions.store.sqlite.check import FileState, check_database
from agenticx.sessions.store.sqlite.projections import check_projections
from agenticx.sessions.store.sqlite.reader import SqliteReader
from agenticx.settings import Settings

__all__ = [
    "MEMORY_URL",
    "absolute_url",
    "check_file",
    "check_logs",
    "database_path",
    "open_store",
    "open_store_reader",
    "probe_store_owner",
]

_log = get_logger(__name__)

_FILE_NAME = "sessions.db"
_SNAPSHOTS = "snapshots"
_SQLITE = "sqlite:///"
MEMORY_URL = "memory://"
"""The URL of a store in memory, which the settings cannot name."""


def open_store(settings: Settings, clock: Clock | None = None) -> Store:
    """Open the store of `AGX_STORE_URL`, by default the database in AGX_HOME, which this process owns from now on.

    What the user's group may change in AGX_HOME is logged. Raises `OwnedElsewhere` while another process owns it,
    `StoreError` for a file that cannot be used and `SettingsError` for a path that cannot be resolved, and as
    `check_home` does.
    """
    for sentence in check_home(settings.home):
        _log.warning("AGX_HOME is not private", reason=sentence)
    return SqliteStore(database_path(settings), clock=clock, blobs=_blobs(settings))


def open_store_reader(settings: Settings) -> StoreReader:
    """Open the store for reading beside the process that owns it; raises `StoreError` if it cannot be read."""
    return SqliteReader(database_path(settings), blobs=_blobs(settings))


def probe_store_owner(settings: Settings) -> int | None:
    """Return the id of the process that owns the store, None if none does; 0 if it has not written its id yet."""
    return probe_owner_pid(database_path(settings))


def check_file(settings: Settings) -> FileState:
    """Return the state of the store's file, which no process owns and which is left unchanged; raises `StoreError`."""
    return check_database(database_path(settings))


def check_logs(settings: Settings) -> list[str]:
    """Return a sentence for each table of a session that differs from its log; raises `StoreError`."""
    return check_projections(database_path(settings), has_owner=probe_store_owner(settings) is not None)


def database_path(settings: Settings) -> Path:
    """Return the resolved path of the embedded store's file, the same one for all paths and links that lead to it."""
    url = settings.store_url
    if url is None:
        return _resolve(settings.home / _FILE_NAME, "AGX_HOME")
    return _resolve(Path(url.removeprefix(_SQLITE)), "AGX_STORE_URL")


def _blobs(settings: Settings) -> BlobFolder:
    return BlobFolder(settings.home / _SNAPSHOTS)


def absolute_url(url: str) -> str:
    """Return the URL of a database with its resolved path; raise `SettingsError` for any other URL."""
    path = url.removeprefix(_SQLITE)
    if path in ("", url):
        scheme, separator, _ = url.partition("://")  # the rest may hold a password
        given = f"one of {scheme!r}" if separator else "a path alone"
        raise SettingsError(f"the URL of a store is sqlite:///PATH or {MEMORY_URL}, not {given}")
    if "?" in path:
        raise SettingsError(
            f"the URL of a store takes no options, such as the one after '?'; it is {_SQLITE}PATH alone"
        )
    return f"{_SQLITE}{_resolve(Path(path), 'the URL of the store')}"


def _resolve(path: Path, source: str) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as exc:  # an unknown user's home, a symlink loop, a NUL
        raise_if_exhausted(exc)
        raise SettingsError(f"{source} is not a valid path: {exc}") from exc
