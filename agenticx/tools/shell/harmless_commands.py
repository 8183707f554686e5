"""Recognition of plainly harmless shell commands: read-only, and inside the workspace.

This is an accept-list, not a search for dangerous constructs: a command of the strict `grammar`; programs found in the
system's folders, with the arguments that `read_only_programs` knows; every operand the path of a file or folder inside
the workspace (reading a pipe or device may block, or have an effect) that does not usually hold secrets. A `cd` to a
folder of the workspace may come first. The user is asked about every other command. A `git` that only reads is one of
these programs (`git_reads`) where the configuration of the repository runs none (`git_repositories`).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.secret_names import is_secret_file, is_secret_folder
from agenticx.tools.base import CommandPart
from agenticx.tools.paths import resolve_in_workspace
from agenticx.tools.protected import is_within
from agenticx.tools.secret_files import SecretFiles, has_secret_name, workspace_path
from agenticx.tools.shell.file_system_cache import DirectoryEntry, FileSystemCache, UncheckableError
from agenticx.tools.shell.git_reads import read_git_arguments
from agenticx.tools.shell.git_repositories import GitRepositories
from agenticx.tools.shell.grammar import SimpleCommand, Word, parse_command
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, EXAMINED_WORD_BYTES
from agenticx.tools.shell.read_only_programs import BUILTINS, read_arguments

__all__ = ["is_plainly_harmless", "read_parts"]

_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/usr/bin")))
_MAX_CHECKED_PATHS = 256
_MAX_NAME_BYTES = 255
_MAX_SEARCHED_NAMES = 10_000


def is_plainly_harmless(
    command: str,
    workspace: Path,
    search_path: str,
    private: tuple[Path, ...],
    file_system: FileSystemCache | None = None,
    *,
    git_environment: Mapping[str, str] | None = None,
) -> bool:
    """Return whether `command` can only read the workspace. `private` are folders that no tool may read.

    Calls of git are judged by what git itself says of the repository, in calls with the environment `git_environment`,
    that of the command; without one, none of them is harmless.
    """
    if len(command) > EXAMINED_COMMAND_BYTES:
        return False
    if any(is_within(root, workspace) for root in private):
        return False  # a recursive program would read the files in it
    commands = parse_command(command)
    if not commands:
        return False
    check = _Check(workspace.resolve(), search_path, file_system or FileSystemCache(), git_environment)
    try:
        return check.is_harmless(commands)
    except UncheckableError:
        return False


def read_parts(
    command: str,
    workspace: Path,
    search_path: str,
    private: tuple[Path, ...],
    file_system: FileSystemCache,
    *,
    git_environment: Mapping[str, str] | None = None,
) -> tuple[CommandPart, ...] | None:
    """Return the simple commands of a command line, each with whether it alone is harmless; None if it has others.

    The arguments are those of `is_plainly_harmless`.
    """
    commands = parse_command(command) if len(command) <= EXAMINED_COMMAND_BYTES else None
    if not commands:
        return None
    is_private = any(is_within(root, workspace) for root in private)
    check = _Check(workspace.resolve(), search_path, file_system, git_environment)
    return tuple(
        CommandPart(
            tuple(word.text for word in one.words),
            sum(1 for _ in takewhile(lambda word: word.is_bare and not word.is_glob, one.words)),
            not is_private and _is_harmless_alone(one, check),
        )
        for one in commands
    )


def _is_harmless_alone(command: SimpleCommand, check: _Check) -> bool:
    try:
        return check.is_harmless([command])
    except UncheckableError:
        return False


@dataclass(slots=True)
class _Check:
    """The check of one command line; `folder` is where its commands run, relative to the workspace."""

    workspace: Path
    search_path: str
    file_system: FileSystemCache
    git_environment: Mapping[str, str] | None
    folder: str = ""
    path_count: int = 0
    repositories: GitRepositories | None = None

    def is_harmless(self, commands: Sequence[SimpleCommand]) -> bool:
        if commands[0].words[0].text == "cd":
            if not self._change_folder(commands):
                return False
            commands = commands[1:]
        return all(self._is_read(command.words) for command in commands)

    def _change_folder(self, commands: Sequence[SimpleCommand]) -> bool:
        """Follow a `cd` that cannot fail, and on which the other commands depend."""
        match commands[0].words:
            case [_, Word(text=folder, is_glob=False)] if folder and not folder.startswith("-"):
                pass
            case _:
                return False
        path = self._find_folder(folder)
        if len(commands) == 1 or commands[1].after != "&&" or path is None:
            return False
        self.folder = os.path.relpath(path, self.workspace)
        return True

    def _find_folder(self, folder: str) -> Path | None:
        """Return a folder of the workspace that a program can change into, None if there is none without a link."""
        path = os.path.normpath(self.workspace / folder)
        if not self._is_readable(folder) or os.path.realpath(path) != path:
            return None  # behind a link `..` is another folder
        return Path(path) if os.path.isdir(path) and os.access(path, os.X_OK) else None

    def _is_read(self, command: Sequence[Word]) -> bool:
        words = list[str]()
        for word in command:
            found = self._expand(word)
            if found is None:
                return False
            words += found
        if words[0] == "git":
            return self._is_git_read(words[1:])
        reading = read_arguments(words)
        if reading is None or not (words[0] in BUILTINS or _find_system_program(words[0], self.search_path)):
            return False
        self.path_count += len(reading.paths)
        if self.path_count > _MAX_CHECKED_PATHS:
            return False
        paths = [self._place(path) for path in reading.paths]
        if not all(self._is_readable(path, takes_folders=reading.takes_folders) for path in paths):
            return False
        if not reading.is_recursive:
            return True
        return self._may_be_searched([self.workspace / path for path in paths or [self._place(".")]])

    def _is_git_read(self, words: Sequence[str]) -> bool:
        read = read_git_arguments(words)
        program = _find_system_program("git", self.search_path)
        if read is None or program is None or self.git_environment is None:
            return False
        start = self._find_folder(self._place(read.folder or "."))
        self.path_count += len(read.names)
        if start is None or self.path_count > _MAX_CHECKED_PATHS:
            return False
        here = os.path.relpath(start, self.workspace)
        if not all(self._is_readable(_place(here, name)) for name in read.names):
            return False
        if self.repositories is None:
            self.repositories = GitRepositories(self.workspace, program, self.git_environment)
        return self.repositories.is_harmless(read, start)

    def _expand(self, word: Word) -> list[str] | None:
        """Return the words that bash makes of one, None for a glob that could become an option as well."""
        if not word.is_glob:
            return [word.text]
        folder, slash, name = word.text.rpartition("/")
        if word.text[0] in "*?" or "*" in folder or "?" in folder:
            return None
        glob = self.file_system.glob(name)
        place = os.path.realpath(self.workspace / self._place(f"{folder}{slash}" or "."))
        entries = self.file_system.entries(place)
        found = [entry.name for entry in entries if glob.match(entry.name, self.file_system.spend)]
        if found and word.text.startswith("-"):
            return None
        return [f"{folder}{slash}{name}" for name in sorted(found)] or [word.text]

    def _place(self, path: str) -> str:
        """Return a path of a command relative to the workspace, or as it is if it is absolute."""
        return _place(self.folder, path)

    def _is_readable(self, path: str, *, takes_folders: bool = True) -> bool:
        """Return whether a path is one of the workspace that may be read."""
        if len(path) > EXAMINED_WORD_BYTES or any(len(part) > _MAX_NAME_BYTES for part in path.split("/")):
            return False
        try:
            target = resolve_in_workspace(path, self.workspace)
        except ToolError:
            return False
        if has_secret_name(target):
            return False
        try:
            kind = stat.S_IFMT(target.path.stat().st_mode)
        except OSError as exc:  # a missing file cannot be read; if it is created later, the call's binding changes
            return exc.errno in (errno.ENOENT, errno.ENOTDIR)
        return kind == stat.S_IFREG or (takes_folders and kind == stat.S_IFDIR)

    def _may_be_searched(self, folders: Sequence[Path]) -> bool:
        """Return whether no file in the folders usually holds secrets; False if they are too large."""
        entry_count, secrets = 0, SecretFiles(self.workspace)
        pending = [os.path.realpath(folder) for folder in folders]
        while pending:
            folder = pending.pop()
            entries = self.file_system.entries(folder)
            entry_count += len(entries)
            if entry_count > _MAX_SEARCHED_NAMES:
                return False
            prefix = folder.rstrip("/")
            if any(_is_secret(entry, f"{prefix}/{entry.name}", self.workspace, secrets) for entry in entries):
                return False
            pending += [f"{prefix}/{entry.name}" for entry in entries if entry.kind == "folder"]
        return True


def _place(folder: str, path: str) -> str:
    """Return a path in a folder of the workspace relative to the workspace, or as it is if it is absolute."""
    if path.startswith("/") or folder in ("", "."):
        return path
    parts = folder.split("/")
    while parts and (path == ".." or path.startswith("../")):  # none of these folders is a link
        parts.pop()
        path = path[3:] or "."
    return "/".join([*parts, path])


def _find_system_program(name: str, search_path: str) -> str | None:
    """Return the program of the system's folders if bash runs that, and no other that comes earlier on the PATH."""
    if not all(folder.startswith("/") for folder in search_path.split(os.pathsep)):
        return None
    path = shutil.which(name, path=search_path)
    return path if path is not None and Path(os.path.abspath(path)).parent in _SYSTEM_FOLDERS else None


def _is_secret(entry: DirectoryEntry, path: str, workspace: Path, secrets: SecretFiles) -> bool:
    """Return whether an entry usually holds secrets; a link is treated as both a file and a folder."""
    target = workspace_path(path, workspace)
    match entry.kind:
        case "folder":
            return is_secret_folder(*target.parts)
        case "link":
            return is_secret_folder(entry.name) or is_secret_file(*target.parts)
        case "other":
            return secrets.hold(target)
