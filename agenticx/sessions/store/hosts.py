"""Names of hosts in records and facts: the computer that has a workspace, a changed file or a process."""

from __future__ import annotations

import platform
from pathlib import Path

from agenticx.errors import SettingsError
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import Log

__all__ = ["WorkspaceElsewhere", "check_workspace", "is_this_host", "is_workspace_here", "this_host", "workspace_host"]


class WorkspaceElsewhere(SettingsError):
    """Raised for a turn or rewind of a session whose workspace is on another host; the message names both hosts."""


def this_host() -> str:
    """Return the name of this computer."""
    return platform.node()


def workspace_host(folder: str, shared: Path | None) -> str | None:
    """Return the host of a workspace, given by its resolved path; None if all hosts have it, in `shared`.

    `shared` is AGX_SHARED_WORKSPACES. Blocks.
    """
    return None if shared is not None and Path(folder).is_relative_to(shared.resolve()) else this_host()


def is_this_host(host: str | None, log: Log) -> bool:
    """Return whether a record or fact of this log is about this host; `host` is None if it names no host.

    All records of a log that is not shared are about this host, whatever name they have: a container has a new name
    after each start.
    """
    return host is None or host == this_host() or not log.is_shared


def is_workspace_here(record: SessionRecord, log: Log) -> bool:
    """Return whether the session's workspace is on this host; its turns and rewinds run only there."""
    return is_this_host(record.workspace_host, log)


def check_workspace(record: SessionRecord, log: Log) -> None:
    """Raise `WorkspaceElsewhere` unless the session's workspace is on this host."""
    if not is_workspace_here(record, log):
        raise WorkspaceElsewhere(
            f"session {record.id!r} works in {record.workspace!r} on the host {record.workspace_host!r}, and this is"
            f" {this_host()!r}; run its turns there, or change its workspace to a folder of this host (one in"
            " AGX_SHARED_WORKSPACES is on all of them)"
        )
