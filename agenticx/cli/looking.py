"""What `agx doctor` can say of the store and of the server's token without opening, making or changing either."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agenticx.cli.finding import server_with_pid
from agenticx.cli.loopback import Loopback, Refused
from agenticx.sessions.opening import database_path
from agenticx.sessions.sqlite._file import check_integrity, map_file_errors, read_only_uri, require_database_file
from agenticx.sessions.sqlite.migrations import applied_migrations
from agenticx.sessions.sqlite.owner import owner_pid
from agenticx.settings import Settings
from agenticx.token_file import read_token, token_path

__all__ = ["Seen", "look_at_store", "look_at_token"]

Seen = tuple[str, Literal["ok", "note"]]
"""A sentence, and whether what it tells of is there yet."""

_ANSWER_SECONDS = 5.0


# --- the store --------------------------------------------------------------------------------------------------------


async def look_at_store(settings: Settings) -> Seen:
    """Who has the store, or what it is.

    Raises `StoreError` or `SettingsError` for one that no process could open, `Unreachable` where a server has it that
    does not answer.
    """
    path = database_path(settings)
    pid = owner_pid(path)
    if pid is None:
        return _look_at_file(path)
    server = server_with_pid(settings, pid)
    if server is None:
        return f"{path} belongs to {f'process {pid}' if pid else 'another process'}", "ok"
    await _health(server)
    return f"{path} belongs to the server at {server.url} (process {pid}), which answers", "ok"


async def _health(server: Loopback) -> None:
    try:
        await replace(server, answer_seconds=_ANSWER_SECONDS).json("GET", "/api/health")
    except Refused:  # it is there all the same
        return


def _look_at_file(path: Path) -> Seen:
    require_database_file(path)
    with map_file_errors(path):
        if not path.exists() or not path.stat().st_size:
            return f"{path} is made when it is first used", "note"
        if _log_without_index(path):
            return f"{path} has a log beside it that the next start writes into it", "note"
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
            applied_migrations(connection)
            check_integrity(connection)
    return f"{path} is whole", "ok"


def _log_without_index(path: Path) -> bool:
    """Whether SQLite would have to make a file to read what it is."""
    log, index = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    return log.exists() and log.stat().st_size > 0 and not index.exists()


# --- the token --------------------------------------------------------------------------------------------------------


def look_at_token(settings: Settings) -> Seen:
    """Where the token is; raises `SettingsError` for one that `agx serve` refuses."""
    path = token_path(settings)
    try:
        read_token(settings)
    except FileNotFoundError:
        return f"{path} is made by `agx serve`", "note"
    return f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o})", "ok"
