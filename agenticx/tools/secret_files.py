"""Detection of files that hold keys or passwords: by name, by content, and by their other names.

1. Most are detected by name alone (`secret_detection`), whether or not they exist. Each link on the way to one counts.
2. A file that only sometimes has a credential in it, for example `.git/config`, is judged by its content. So is a file
   of settings, for example `config.json`; there only keys in known formats count.
3. A file with several names (hard links) is secret if another of its names in the workspace is a secret file's, and,
   because its names outside are unknown, also if there are keys in it.
4. A file is secret, too, if a symbolic link with a secret file's name leads to it, from its own folder or from the top
   of the workspace.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.secret_detection import (
    holds_credentials,
    holds_keys,
    is_secret_file,
    may_hold_credentials,
    may_hold_keys,
)
from agenticx.tools.paths import WorkspacePath, read_file
from agenticx.tools.protected import is_within
from agenticx.untrusted_text import decode_text

__all__ = ["SecretFiles", "has_secret_name", "is_private", "workspace_path"]

_MAX_EXAMINED_BYTES = 1024 * 1024
_MAX_SEARCHED_ENTRIES = 20_000
_UNSEARCHED_FOLDERS = frozenset({".git", "node_modules"})  # large, and without secrets of the user


def has_secret_name(target: WorkspacePath) -> bool:
    """Return whether `target`, or one of the links that lead to it, has the name of a file that holds secrets."""
    return any(is_secret_file(*parts) for parts in (target.parts, *target.link_parts))


def workspace_path(path: str, workspace: Path) -> WorkspacePath:
    """Return an absolute, resolved path relative to the resolved workspace, or else to the root `/`."""
    resolved = Path(path)
    root = workspace if resolved.is_relative_to(workspace) else Path(resolved.anchor)
    return WorkspacePath(root, resolved.relative_to(root).parts)


def is_private(target: WorkspacePath, roots: Iterable[Path]) -> bool:
    """Return whether `target` lies in `roots`, the private folders of AgenticX.

    A workspace inside one of these folders is not private.
    """
    return any(
        is_within(target.path, root) and (target.root == root or not is_within(target.root, root))
        for root in map(Path.resolve, roots)
    )


class SecretFiles:
    """The secret files of a workspace, for one call; other names of files are searched once."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._names: dict[tuple[int, int], list[tuple[str, ...]]] | None = None
        self._link_targets: dict[Path, frozenset[str]] = {}

    def hold(self, target: WorkspacePath) -> bool:
        """Return whether `target` is one of them; its content is read if its name does not decide."""
        if has_secret_name(target) or self._has_secret_link(target):
            return True
        try:
            status = os.lstat(target.path)
        except (OSError, ValueError):
            return False
        if not stat.S_ISREG(status.st_mode) or (status.st_nlink == 1 and _content_check(target) is None):
            return False
        try:
            content, status = read_file(target, _MAX_EXAMINED_BYTES)
        except ToolError:  # nobody else can read it either
            return False
        return self.hold_opened(target, content, status)

    def hold_opened(self, target: WorkspacePath, content: bytes, status: os.stat_result) -> bool:
        """Return whether a file without a secret name is one of them, by its beginning and status as it was read."""
        if self._has_secret_link(target):
            return True
        check = _content_check(target)
        if status.st_nlink > 1 and any(is_secret_file(*parts) for parts in self._names_of(status)):
            return True
        if status.st_nlink == 1 and check is None:
            return False
        examined = content[:_MAX_EXAMINED_BYTES]
        text = decode_text(examined, is_cut=True) or examined.decode("utf-8", "replace")
        if status.st_nlink > 1 and holds_credentials(text, is_settings=False):
            return True
        return check is not None and (check(text) or (check is _has_credentials and status.st_size > len(content)))

    def has_unknown_names(self, status: os.stat_result) -> bool:
        """Return whether a file has another name outside of the workspace, or one that was not found there."""
        return status.st_nlink > 1 and status.st_nlink > len(self._names_of(status))

    def _has_secret_link(self, target: WorkspacePath) -> bool:
        """Return whether a link of a secret name in the folder of `target`, or in the workspace, leads to it."""
        for folder in (target.path.parent, self._workspace):
            if folder not in self._link_targets:
                self._link_targets[folder] = _secret_link_targets(folder)
            if str(target.path) in self._link_targets[folder]:
                return True
        return False

    def _names_of(self, status: os.stat_result) -> list[tuple[str, ...]]:
        if self._names is None:
            self._names = _linked_files(self._workspace)
        return self._names.get((status.st_dev, status.st_ino), [])


def _content_check(target: WorkspacePath) -> Callable[[str], bool] | None:
    """Return the function that decides by the text of a file of this name, None if the text does not matter."""
    paths = (target.parts, *target.link_parts)
    if any(may_hold_credentials(*parts) for parts in paths):
        return _has_credentials
    return holds_keys if any(may_hold_keys(*parts) for parts in paths) else None


def _has_credentials(text: str) -> bool:
    return holds_credentials(text, is_settings=True)


def _secret_link_targets(folder: Path) -> frozenset[str]:
    """Return the targets of links with secret names among a folder's first entries."""
    try:
        with os.scandir(folder) as entries:
            links = [entry for entry in islice(entries, _MAX_SEARCHED_ENTRIES) if entry.is_symlink()]
    except OSError:
        return frozenset()
    return frozenset(os.path.realpath(link.path) for link in links if is_secret_file(link.name))


def _linked_files(workspace: Path) -> dict[tuple[int, int], list[tuple[str, ...]]]:
    """Return the names of files with several hard links among a workspace's first entries, by device and inode."""
    names: dict[tuple[int, int], list[tuple[str, ...]]] = {}
    pending = deque[tuple[str, ...]]([()])
    entries_left = _MAX_SEARCHED_ENTRIES
    while pending and entries_left > 0:
        folder = pending.popleft()
        try:
            with os.scandir(workspace.joinpath(*folder)) as entries:
                for entry in entries:
                    entries_left -= 1
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                        names.setdefault((status.st_dev, status.st_ino), []).append((*folder, entry.name))
                    elif stat.S_ISDIR(status.st_mode) and entry.name not in _UNSEARCHED_FOLDERS:
                        pending.append((*folder, entry.name))
                    if entries_left <= 0:
                        break
        except OSError:  # removed meanwhile, or not accessible
            continue
    return names
