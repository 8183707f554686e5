"""The checks of `agx doctor` on the store and the server's token, which change neither."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Literal

from agenticx.cli.client.discovery import server_with_pid
from agenticx.sessions.store.factory import database_path
from agenticx.sessions.store.sqlite._file import check_integrity, map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.store.sqlite.migrations import applied_migrations
from agenticx.sessions.store.sqlite.owner import probe_owner_pid
from agenticx.settings import Settings
from agenticx.token_file import read_token, token_path

__all__ = ["CheckResult", "check_store", "check_token"]

CheckResult = tuple[str, Literal["ok", "note"]]
"""A sentence and its status: `note` for what does not exist yet or needs attention, else `ok`."""

_RESPONSE_TIMEOUT = 5.0  # seconds


# --- the store --------------------------------------------------------------------------------------------------------


def check_store(settings: Settings) -> CheckResult:
    """Report the owner of the store, or the state of its database if it has no owner.

    Raise `StoreError` or `SettingsError` for a store that no process could open, `ServerUnresponsive` if its owner is a
    server that does not answer.
    """
    path = database_path(settings)
    pid = probe_owner_pid(path)
    if pid is None:
        return _check_file(path)
    server = asyncio.run(server_with_pid(settings, pid, response_timeout=_RESPONSE_TIMEOUT))
    if server is None:
        return f"{path} belongs to {f'process {pid}' if pid else 'another process'}", "ok"
    return f"{path} belongs to the server at {server.url} (process {pid}), which answers", "ok"


def _check_file(path: Path) -> CheckResult:
    require_database_file(path)
    with map_file_errors(path):
        if not path.exists() or not path.stat().st_size:
            return f"{path} is created on first use", "note"
        if _has_log_without_index(path):
            return f"{path} has a write-ahead log that is applied at the next start", "note"
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
            applied_migrations(connection)
            check_integrity(connection)
    return f"{path} is intact", "ok"


def _has_log_without_index(path: Path) -> bool:
    """Return whether SQLite would have to create the -shm file in order to read the database."""
    log, index = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    return log.exists() and log.stat().st_size > 0 and not index.exists()


# --- the token --------------------------------------------------------------------------------------------------------


def check_token(settings: Settings) -> CheckResult:
    """Report the token file; raise `SettingsError` for one that `agx serve` refuses."""
    path = token_path(settings)
    try:
        read_token(settings)
    except FileNotFoundError:
        return f"{path} is created by `agx serve`", "note"
    return f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o})", "ok"
