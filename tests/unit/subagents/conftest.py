"""Fixtures for sub-agents in a hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agenticx.sessions import SqliteStore, Store
from agenticx.sessions.store.blobs import BlobFolder


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[[], Store]:
    """Return a function that opens the same sessions for one process after another."""
    return lambda: SqliteStore(tmp_path / "sessions.db", blobs=BlobFolder(tmp_path / "snapshots"))
