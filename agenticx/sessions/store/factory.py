"""The store that the settings name, and its file."""

from __future__ import annotations

from pathlib import Path

from agenticx.clocks import Clock
from agenticx.errors import SettingsError
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.blobs import BlobFolder
from agenticx.sessions.store.sqlite import SqliteStore
from agenticx.settings import Settings

__all__ = ["database_path", "open_store"]

_FILE_NAME = "sessions.db"
_SNAPSHOTS = "snapshots"
_SQLITE = "sqlite:///"


def open_store(settings: Settings, clock: Clock | None = None) -> Store:
    """Open the store of `AGX_STORE_URL`, by default the database in AGX_HOME, which this process owns from now on.

    Raises `OwnedElsewhere` while another process owns it, `StoreError` for a file that cannot be used and
    `SettingsError` for a path that cannot be resolved.
    """
    blobs = BlobFolder(settings.home / _SNAPSHOTS)
    return SqliteStore(database_path(settings), clock=clock, blobs=blobs)


def database_path(settings: Settings) -> Path:
    """Return the resolved path of the embedded store's file, the same one for all paths and links that lead to it."""
    url = settings.store_url
    try:
        path = settings.home / _FILE_NAME if url is None else Path(url.removeprefix(_SQLITE)).expanduser()
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as exc:  # an unknown user's home, a symlink loop, a NUL
        raise_if_exhausted(exc)
        raise SettingsError(f"{'AGX_HOME' if url is None else 'AGX_STORE_URL'} is not a valid path: {exc}") from exc
