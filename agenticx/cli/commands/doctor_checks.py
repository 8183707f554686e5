"""The checks of `agx doctor` on the store and the server's token, which change neither."""

from __future__ import annotations

import asyncio
import stat
from typing import Literal

from agenticx.cli.client.discovery import server_with_pid
from agenticx.sessions.store.factory import check_file, database_path, probe_store_owner
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
    path, pid = database_path(settings), probe_store_owner(settings)
    if pid is None:
        match check_file(settings):
            case "missing":
                return f"{path} is created on first use", "note"
            case "has unapplied log":
                return f"{path} has a write-ahead log that is applied at the next start", "note"
            case "intact":
                return f"{path} is intact", "ok"
    server = asyncio.run(server_with_pid(settings, pid, response_timeout=_RESPONSE_TIMEOUT))
    if server is None:
        return f"{path} belongs to {f'process {pid}' if pid else 'another process'}", "ok"
    return f"{path} belongs to the server at {server.url} (process {pid}), which answers", "ok"


# --- the token --------------------------------------------------------------------------------------------------------


def check_token(settings: Settings) -> CheckResult:
    """Report the token file; raise `SettingsError` for one that `agx serve` refuses."""
    path = token_path(settings)
    try:
        read_token(settings)
    except FileNotFoundError:
        return f"{path} is created by `agx serve`", "note"
    return f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o})", "ok"
