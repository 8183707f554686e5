"""Ids of processes in files that a killed process leaves behind."""

from __future__ import annotations

import os
import sys

__all__ = ["is_running"]


def is_running(pid: int, *, of_this_user: bool = False) -> bool:
    """Return True if there is such a process, as far as can be determined; there is none with the id 0.

    With `of_this_user` a process of another user, which has reused the id, does not count.
    """
    if pid <= 0 or sys.platform == "win32":  # a signal, even 0, would end the process there
        return pid > 0
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return not of_this_user
    return True
