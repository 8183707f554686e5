"""The files of a workspace that the configuration of git names: folders of hooks, programs, and included settings.

Git runs or reads them whatever their names are: `core.hooksPath = tools/hooks`, `textconv = python tools/show.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

__all__ = ["configured_paths", "is_named_by_git", "paths_of_repository"]

_MAX_BYTES = 64 * 1024
_MAX_PATHS = 100
_MAX_LEVELS = 32
_SETTING = re.compile(r"^[ \t]*([A-Za-z][A-Za-z0-9-]{0,60})[ \t]*=[ \t]*([^\r\n]{1,1000})", re.MULTILINE)
# Settings whose value is a path, and those whose value is a command line.
_PATH_KEYS = frozenset({"attributesfile", "hookspath", "path"})
_COMMAND_KEY_NAMES = """
    askpass clean cmd command driver editor external fsmonitor gitproxy helper packobjectshook pager process program
    smudge sshcommand textconv
"""
_COMMAND_KEYS = frozenset(_COMMAND_KEY_NAMES.split())
_WORD = re.compile(r"[^\s\"';|&()<>!]+")
_USER_FILES = (".gitconfig", ".config/git/config")


def configured_paths(workspace: Path) -> tuple[Path, ...]:
    """Return the paths in a workspace that the configuration of the repository around it names.

    It blocks. The paths are absolute and need not exist; `workspace` is a path with its links resolved.
    """
    for folder in islice((workspace, *workspace.parents), _MAX_LEVELS):
        if os.path.lexists(folder / ".git"):
            return paths_of_repository(folder / ".git", folder, workspace)
    return ()


def paths_of_repository(repository: Path, working_tree: Path, workspace: Path) -> tuple[Path, ...]:
    """Return the paths in `workspace` that the configuration of a repository, and the user's own, name."""
    files = [(file, repository) for file in (repository / "config", repository / "config.worktree")]
    files += [(home, home.parent) for home in (Path.home() / name for name in _USER_FILES)]
    found: dict[Path, None] = {}
    for file, folder in files:
        for name in _named_paths(_read(file)):
            for base in (working_tree, folder):
                path = Path(os.path.normpath(base / name))
                if path != workspace and path.is_relative_to(workspace):
                    found[path] = None
    return tuple(islice(found, _MAX_PATHS))


def is_named_by_git(root: Path, parts: tuple[str, ...]) -> bool:
    """Return whether the configuration of git names the file `parts` of a workspace, or a folder in which it is."""
    path = root.joinpath(*parts)
    return any(path.is_relative_to(named) for named in configured_paths(root))


def _named_paths(text: str) -> Iterator[str]:
    """Yield the paths that the settings in a configuration file name, relative or absolute."""
    for match in _SETTING.finditer(text):
        key, value = match[1].lower(), match[2].strip().strip('"')
        if key in _PATH_KEYS:
            yield os.path.expanduser(value)
        elif key in _COMMAND_KEYS or value.startswith("!"):  # also an alias that is a command
            yield from (os.path.expanduser(word) for word in _WORD.findall(value) if "/" in word)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:  # there is none, or `.git` is the file of a linked working tree
        return ""
