"""Ids of processes in files that a killed process leaves behind."""

from __future__ import annotations

import os

__all__ = ["is_running"]


def is_running(pid: int) -> bool:
    """Return True if this user has a process with that id."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):  # PermissionError: the id was reused by another user's process
        return False
    return pid > 0
