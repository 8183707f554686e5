"""The check that nobody but the user can change AGX_HOME and the configuration in it.

Whoever can write them can take keys, allow calls, or have a program answer as the server. Of a symbolic link the
link's owner counts, and the owner and the mode of what it leads to; a folder's sticky bit does not help, as it does not
keep others from adding files. In a folder above AGX_HOME it does: it keeps them from replacing what is not theirs.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from agenticx.errors import SettingsError

__all__ = ["check_home", "check_mode", "check_owner", "check_private"]

_FILES = (
    *("settings.toml", "models.toml", "permissions.toml", "mcp.json", "token", "keys.json", "studio.json"),
    *("sessions.db", "memory.jsonl"),
)
_FOLDERS = ("agents", "prompts", "teams", "vaults")


def check_home(home: Path) -> list[str]:
    """Return a sentence for each of the files and folders that the group of the user may write.

    Raise `SettingsError`, which names the command that repairs it, for one that everybody may write, or that belongs to
    another user than this one and root, and for a folder above the home in which everybody may replace it. What does
    not exist is left out, and so is a home that is no folder.
    """
    if os.path.lexists(home) and not os.path.isdir(home):
        return []
    _check_parents(home)
    return [sentence for path in _paths(home) if (sentence := check_mode(path)) is not None]


def check_owner(path: Path) -> None:
    """Raise `SettingsError` if the file, or a link that leads to it, belongs to another user than this one and root."""
    for status in _statuses(path):
        if status.st_uid not in (os.geteuid(), 0):
            raise SettingsError(
                f"{str(path)!r} belongs to {_user_name(status.st_uid)}; it must belong to you"
                f" ({_user_name(os.geteuid())}) or to root: chown {_user_name(os.geteuid())} {quote(str(path))}"
            )


def check_private(path: Path, status: os.stat_result, subject: str) -> None:
    """Raise `SettingsError` for a file of another user, or one that others can read; `subject` begins the sentence."""
    check_owner(path)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 and sys.platform != "win32":
        raise SettingsError(f"{subject} with mode {mode:04o}; only its owner may read it: chmod 600")


def _paths(home: Path) -> Iterator[Path]:
    """Yield the folder, and the files and folders in it by which AgenticX decides, if they exist."""
    yield home
    yield from (home / name for name in _FILES)
    for folder in (home / name for name in _FOLDERS):
        yield folder
        if os.path.isdir(folder):
            yield from (Path(entry.path) for entry in _entries(folder))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # whoever reads a file in it reports that
        return []


def _check_parents(home: Path) -> None:
    """Raise `SettingsError` for a folder above the home, or above what a link to it leads to, that is open to all."""
    for path in dict.fromkeys((*Path(os.path.abspath(home)).parents, *Path(os.path.realpath(home)).parents)):
        mode = stat.S_IMODE(statuses[-1].st_mode) if (statuses := _statuses(path)) else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise SettingsError(
                f"{str(path)!r} has mode {mode:04o}, so every user may replace {str(home)!r}, which lies in it; only"
                f" you may: chmod o-w {quote(str(path))}"
            )


def check_mode(path: Path) -> str | None:
    """Return a sentence if the group of the user may write a file or folder; raise `SettingsError` as `check_home`."""
    check_owner(path)
    statuses = _statuses(path)
    if not statuses:
        return None
    mode = stat.S_IMODE(statuses[-1].st_mode)
    repair = f"chmod {700 if stat.S_ISDIR(statuses[-1].st_mode) else 600} {quote(str(path))}"
    if mode & stat.S_IWOTH:
        raise SettingsError(f"{str(path)!r} has mode {mode:04o}, so every user may change it; only you may: {repair}")
    return f"{str(path)!r} has mode {mode:04o}, so its group may change it: {repair}" if mode & stat.S_IWGRP else None


def _statuses(path: Path) -> list[os.stat_result]:
    """Return the status of a symbolic link and of what it leads to, or of the file; none of what cannot be found."""
    try:
        status = os.lstat(path)
        return [status, os.stat(path)] if stat.S_ISLNK(status.st_mode) else [status]
    except OSError:  # whoever reads the file reports any other error than that it is missing
        return []


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
