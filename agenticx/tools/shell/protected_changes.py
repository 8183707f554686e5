"""A search for commands that delete, move or add protected files, for use without a sandbox that prevents this.

It finds a folder with protected files, such as `.github`, whose name is not protected itself, and such files that get
into one, as by `mv workflows .github`. It reads commands as `deletions` does.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from agenticx.tools.critical_folders import CriticalFolders
from agenticx.tools.protected import PROTECTED_PAIRS, protected_settings_part
from agenticx.tools.shell.deletion_commands import (
    CURRENT_FOLDER,
    LISTERS,
    UNKNOWN,
    ExaminedCommand,
    deleting_actions,
    split_find,
)
from agenticx.tools.shell.deletions import DeletionSearch, find_deletion
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.git_repositories import GitRepositories
from agenticx.tools.shell.globs import is_glob
from agenticx.tools.shell.protected_files import protected_names_in, protected_paths_in
from agenticx.tools.shell.quoting import QUOTED

__all__ = ["find_protected_change"]

_LISTING_STEPS = 100
_SECONDS = 2.0  # for the search of all folders that a command deletes
# Programs that put files in the folder that is their last operand.
_PLACERS = frozenset({"cp", "install", "ln", "mv", "rsync"})


def find_protected_change(
    command: str,
    workspace: Path,
    environment: Mapping[str, str],
    file_system: FileSystemCache,
    find_launcher: Callable[[], Sequence[str]] = tuple[str, ...],
) -> str | None:
    """Return the word of `command`, run in `workspace`, by which it deletes, moves or adds protected files, or None.

    `find_critical_deletion` has found nothing in the command. `find_launcher` returns the words that start a read-only
    sandbox, in which git is asked what `git clean` would remove. Raises `UncheckableError` as `file_system` does, and
    for folders that are too large to be searched.
    """
    search = _ProtectedSearch(str(workspace), CriticalFolders(workspace), environment, file_system)
    search.find_launcher = find_launcher
    return find_deletion(command, search)


@dataclass(slots=True)
class _ProtectedSearch(DeletionSearch):
    """A search for changes of folders with protected files; only words whose paths are known count."""

    deadline: float = field(default_factory=lambda: time.monotonic() + _SECONDS, init=False)
    find_launcher: Callable[[], Sequence[str]] = field(default=tuple[str, ...], init=False)
    _holds: dict[str, bool] = field(default_factory=dict[str, bool], init=False)

    def _deleted_by(self, pipeline: Sequence[ExaminedCommand]) -> str | None:
        command = pipeline[-1]
        if command.program == "git":
            return self._deleted_by_git(command)
        placed = self._placed_by(command, self._folders_of(command)) if command.program in _PLACERS else None
        return placed or DeletionSearch._deleted_by(self, pipeline)

    def _placed_by(self, command: ExaminedCommand, folders: Sequence[str]) -> str | None:
        """Return the word by which files get into the folder of a protected pair, such as `.github/workflows`."""
        if len(command.arguments) < 2:
            return None
        *sources, target = command.arguments
        if any(re.match(r"-[A-Za-z]*t|--t", word) for word in command.operands):
            target, *sources = command.arguments
        places = {path.rpartition("/")[2].casefold() for folder in folders for path in self._resolved(target, folder)}
        names = [name for parent, name in PROTECTED_PAIRS if parent in places]
        if not names:
            return None
        return next((word for word in sources if self._may_be_of_pair(word, names, folders)), None)

    def _may_be_of_pair(self, word: str, names: Sequence[str], folders: Sequence[str]) -> bool:
        """Return whether a word names a file or folder with one of these names, or a folder that contains one."""
        paths = (path for folder in folders for value in self._expanded(word) for path in self._paths(value, folder))
        return any(
            path.rpartition("/")[2].casefold() in names
            or not self.file_system.check_exists("/", path)
            or any(self.file_system.check_exists(path, name) for name in names)
            for path in paths
        )

    def _deleted_by_git(self, command: ExaminedCommand) -> str | None:
        words, folders, is_known = list(command.operands), self._folders_of(command), True
        while words and words[0].startswith("-"):  # options of git itself
            option, *words = words
            if option == "-C" and words:
                folders = [path for folder in folders for path in self._resolved(words[0], folder)]
            is_known = is_known and option == "-C"
            words = words[1:] if option in {"-C", "-c"} else words
        if words[:1] != ["clean"]:
            return None
        is_harmless = is_known and all(self._is_harmless_clean(words[1:], folder) for folder in folders)
        return None if is_harmless else "git clean"

    def _is_harmless_clean(self, options: Sequence[str], folder: str) -> bool:
        """Return whether `git clean` removes no protected files, as git itself says; False if that is not known."""
        git = shutil.which("git", path=self.environment.get("PATH", ""))
        repositories = GitRepositories(Path(self.workspace), git or "", self.environment, self.find_launcher)
        removed = repositories.removed_by_clean(options, Path(folder))
        return removed is not None and not any(self._is_protected(os.path.join(folder, path)) for path in removed)

    def _is_protected(self, path: str) -> bool:
        """Return whether a path that git shows (with a slash for a folder) is a protected path or contains one."""
        inside = path.removeprefix(f"{self.workspace}/").strip("/").split("/")
        return protected_settings_part(inside) is not None or (path.endswith("/") and self._holds_protected_files(path))

    def _deleted_by_find(self, command: ExaminedCommand, folders: Sequence[str]) -> str | None:
        starts, tests = split_find(command.operands)
        found = DeletionSearch._deleted_by_find(self, command, folders)
        if found is not None or next(deleting_actions(tests), None) is None:
            return found
        words = [value for test, value in pairwise(tests) if test in {"-name", "-iname"}]
        globs = [word.replace(QUOTED, "*").casefold() for word in words]
        self.file_system.spend(len(starts) * _LISTING_STEPS)
        for path in {path for word in starts if globs for folder in folders for path in self._resolved(word, folder)}:
            for name in protected_names_in(Path(path), Path(self.workspace), self.deadline):
                if any(self.file_system.match(name.casefold(), glob) for glob in globs):
                    return name
        return None

    def _moved_by(
        self, command: ExaminedCommand, folders: Sequence[str], earlier: Sequence[ExaminedCommand]
    ) -> str | None:
        if command.is_of_xargs and earlier and earlier[0].program in {*LISTERS, "find"}:
            return self._listed_by(earlier)
        has_target_first = any(re.match(r"-[A-Za-z]*t|--t", word) for word in command.operands)
        return self._first_critical(command.arguments if has_target_first else command.arguments[:-1], folders)

    def _may_be_critical(self, word: str, folders: Sequence[str], *, if_unknown: bool = True) -> bool:
        return any(
            self._holds_protected_files(path)
            for value in self._expanded(word)
            if UNKNOWN not in value
            for folder in folders
            for path in self._paths(value, folder)
        )

    def _paths(self, value: str, folder: str) -> Iterator[str]:
        """Yield the paths that a word names; `QUOTED` in it stands for any character."""
        value = value.replace(CURRENT_FOLDER, folder) if value.startswith(CURRENT_FOLDER) else value
        value = value.replace(QUOTED, "?")
        if is_glob(value):
            yield from self.file_system.expand(folder, value)
        else:
            yield self.file_system.resolve(folder, value)

    def _holds_protected_files(self, path: str) -> bool:
        if path not in self._holds:
            self.file_system.spend(_LISTING_STEPS)
            found = protected_paths_in(Path(path), Path(self.workspace), self.deadline)
            self._holds[path] = next(found, None) is not None
        return self._holds[path]
