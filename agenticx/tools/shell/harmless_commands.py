"""Recognition of plainly harmless shell commands: they only read, and only in the workspace.

This is an accept-list, not a search for dangerous constructs. The command has the strict `grammar`. Its programs are in
the system's folders, with arguments that `read_only_programs` knows, or they are calls of git that only read
(`git_reads`) in a repository that runs no program (`git_repositories`). Each operand is a file or folder of the
workspace that does not usually hold secrets; reading a pipe or device may block or have an effect. A `cd` to a folder
of the workspace may come first. The user is asked about every other command.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain, islice, takewhile
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.secret_detection import is_secret_file, is_secret_folder
from agenticx.tools.base import CommandPart, Obstacle
from agenticx.tools.paths import resolve_in_workspace
from agenticx.tools.protected import is_within
from agenticx.tools.secret_files import SecretFiles, has_secret_name, workspace_path
from agenticx.tools.shell.file_system_cache import DirectoryEntry, FileSystemCache, UncheckableError
from agenticx.tools.shell.git_reads import read_git_arguments
from agenticx.tools.shell.git_repositories import GitRepositories
from agenticx.tools.shell.grammar import SimpleCommand, Word, parse_command
from agenticx.tools.shell.named_paths import EXAMINED_COMMAND_BYTES, EXAMINED_WORD_BYTES
from agenticx.tools.shell.read_only_programs import BUILTINS, can_only_read, read_arguments
from agenticx.tools.visible import visible_line

__all__ = ["ReadCheck"]

_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/usr/bin")))
_MAX_CHECKED_PATHS = 256
_MAX_NAME_BYTES = 255
_MAX_SEARCHED_NAMES = 10_000
_SHOWN_CHARS = 200
_MAX_RUNS = 100
_MAX_FOLDERS = 4


@dataclass(slots=True)
class ReadCheck:
    """The check of one command line for reads: the commands that only read the workspace, and secrets they read.

    `workspace` is resolved; `private` are folders that no tool may read. Git itself is asked about its repository, in
    the environment `git_environment` of the command; without one, no call of git is harmless. `find_launcher` returns
    the words that start these calls in a read-only sandbox.
    """

    workspace: Path
    search_path: str
    private: tuple[Path, ...] = ()
    file_system: FileSystemCache = field(default_factory=FileSystemCache)
    _: KW_ONLY
    git_environment: Mapping[str, str] | None = None
    find_launcher: Callable[[], Sequence[str]] = tuple[str, ...]
    _folder: str = field(default="", init=False)
    """The folder in which the next command runs, relative to the workspace."""
    _path_count: int = field(default=0, init=False)
    _repositories: GitRepositories | None = field(default=None, init=False)

    def read_parts(self, command: str) -> tuple[CommandPart, ...] | None:
        """Return the simple commands of the line, each with whether it is harmless; None for a line with anything else.

        The line only reads the workspace if all commands are harmless; a command after `cd` is judged in its folder. In
        a line with quoted text of any language no command is harmless: only rules can allow it.
        """
        if len(command) > EXAMINED_COMMAND_BYTES:
            return None
        commands = parse_command(command)
        if not commands:
            return tuple(map(_part_with_any_text, parse_command(command, any_text=True) or ())) or None
        self._folder, self._path_count = "", 0
        obstacles = list(self._obstacles(commands))
        if any(is_within(root, self.workspace) for root in self.private):
            obstacles = [one if one is not None and one.is_secret else Obstacle(_IN_PRIVATE) for one in obstacles]
        return tuple(_part(one, obstacle) for one, obstacle in zip(commands, obstacles, strict=True))

    def find_read_secret(self, runs: Sequence[Sequence[str | None]]) -> str | None:
        """Return a clause about a secret file that one of the commands would read, None if none is found.

        `runs` are the words of the commands as `command_reader` reads them; None is a word that only bash knows. The
        result never serves to allow a command: other programs and unknown words may read more.
        """
        self._path_count = 0
        changes = chain.from_iterable(run[1:] for run in runs if run and run[0] in ("cd", "pushd"))
        words = filter(None, islice(changes, _MAX_FOLDERS))
        named = [path for word in words if (path := self._find_folder(word)) is not None]
        for folder in ("", *(os.path.relpath(path, self.workspace) for path in named)):
            self._folder = folder
            for run in runs[:_MAX_RUNS]:
                try:
                    obstacle = self._find_obstacle([Word(text) for text in _plain_words(run)])
                except UncheckableError:
                    return None
                if obstacle is not None and obstacle.is_secret:
                    return obstacle.clause
        return None

    def _obstacles(self, commands: Sequence[SimpleCommand]) -> Iterator[Obstacle | None]:
        """Yield None for each harmless command, else the obstacle, with an empty clause for an unknown program."""
        is_followed = True
        for place, command in enumerate(commands):
            name = command.words[0].text
            if name in ("cd", "pushd", "popd"):
                is_followed = place == 0 and name == "cd" and self._change_folder(commands)
                yield None if is_followed else Obstacle(_NOT_FOLLOWED)
                continue
            try:
                yield self._find_obstacle(command.words) if is_followed else Obstacle(_AFTER_CHANGE)
            except UncheckableError as exc:
                why = f"{str(exc)[0].lower()}{str(exc)[1:].removesuffix('.')}"
                yield Obstacle(f"not all that it reads can be checked: {why}")

    def _change_folder(self, commands: Sequence[SimpleCommand]) -> bool:
        """Follow a `cd` that cannot fail and that `&&` joins to the next command; return False for any other."""
        match commands[0].words:
            case [_, Word(text=folder, is_glob=False)] if folder and not folder.startswith("-"):
                pass
            case _:
                return False
        path = self._find_folder(folder)
        if len(commands) == 1 or commands[1].after != "&&" or path is None:
            return False
        self._folder = os.path.relpath(path, self.workspace)
        return True

    def _find_folder(self, folder: str) -> Path | None:
        """Return a folder of the workspace that a program can enter, None if it is missing or behind a link."""
        path = os.path.normpath(self.workspace / folder)
        if self._unreadable(folder) is not None or os.path.realpath(path) != path:
            return None  # behind a link `..` is another folder
        return Path(path) if os.path.isdir(path) and os.access(path, os.X_OK) else None

    def _find_obstacle(self, command: Sequence[Word]) -> Obstacle | None:
        """Return None for a harmless command, else the obstacle, with an empty clause for an unknown program."""
        words = list[str]()
        for word in command:
            found = self._expand(word)
            if found is None:
                return Obstacle(f"`{_shown(word.text)}` may stand for a file whose name is taken for an option")
            words += found
        name = words[0]
        if name == "git":
            return self._find_obstacle_of_git(words[1:])
        reading = read_arguments(words)
        if reading is None:
            known = f"with these arguments `{name}` is not known to only read" if can_only_read(name) else ""
            return Obstacle(known)
        if not (name in BUILTINS or _find_system_program(name, self.search_path)):
            return Obstacle(self._describe_program(name))
        self._path_count += len(reading.paths)
        if self._path_count > _MAX_CHECKED_PATHS:
            return Obstacle(_TOO_MANY_PATHS)
        paths = [self._place(path) for path in reading.paths]
        for path in paths:
            if (obstacle := self._unreadable(path, takes_folders=reading.takes_folders)) is not None:
                return obstacle
        if not reading.is_recursive:
            return None
        return self._find_secret([self.workspace / path for path in paths or [self._place(".")]])

    def _find_obstacle_of_git(self, words: Sequence[str]) -> Obstacle | None:
        read = read_git_arguments(words)
        if read is None or self.git_environment is None:
            return Obstacle("")
        program = _find_system_program("git", self.search_path)
        if program is None:
            return Obstacle(self._describe_program("git"))
        start = self._find_folder(self._place(read.folder or "."))
        if start is None:
            return Obstacle(f"`{_shown(read.folder)}` is not a folder of the workspace")
        self._path_count += len(read.names)
        if self._path_count > _MAX_CHECKED_PATHS:
            return Obstacle(_TOO_MANY_PATHS)
        here = os.path.relpath(start, self.workspace)
        for name in read.names:
            if (obstacle := self._unreadable(_place(here, name))) is not None:
                return obstacle
        if self._repositories is None:
            self._repositories = GitRepositories(self.workspace, program, self.git_environment, self.find_launcher)
        obstacle = self._repositories.find_obstacle(read, start)
        if obstacle is None or not obstacle.is_unlisted:
            return obstacle
        secret = self._find_secret([self.workspace])  # it may be in the repository
        is_there = secret is not None and secret.is_secret
        return replace(obstacle, is_secret=is_there) if is_there else obstacle

    def _describe_program(self, name: str) -> str:
        """Return a clause about a program that is not in the system's folders."""
        if shutil.which(name, path=self.search_path) is None:
            return f"`{name}` is not installed"
        return f"the `{name}` that would run is not one in /bin or /usr/bin"

    def _expand(self, word: Word) -> list[str] | None:
        """Return the words that bash makes of a word; None for a glob that may expand to an option."""
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
        return _place(self._folder, path)

    def _unreadable(self, path: str, *, takes_folders: bool = True) -> Obstacle | None:
        """Return None for a path of the workspace that may be read, else why it may not."""
        if len(path) > EXAMINED_WORD_BYTES or any(len(part) > _MAX_NAME_BYTES for part in path.split("/")):
            return Obstacle("one of its paths is too long")
        shown = f"`{_shown(path)}`"
        try:
            target = resolve_in_workspace(path, self.workspace)
        except ToolError:
            return Obstacle(f"{shown} is not plainly a path of the workspace")
        if has_secret_name(target):
            return Obstacle(f"{shown} usually holds keys or passwords", is_secret=os.path.lexists(target.path))
        try:
            kind = stat.S_IFMT(target.path.stat().st_mode)
        except OSError as exc:  # a missing file cannot be read; if it is created later, the call's binding changes
            is_missing = exc.errno in (errno.ENOENT, errno.ENOTDIR)
            return None if is_missing else Obstacle(f"{shown} cannot be looked at")
        if kind == stat.S_IFREG or (takes_folders and kind == stat.S_IFDIR):
            return None
        return Obstacle(f"{shown} is no ordinary file")

    def _find_secret(self, folders: Sequence[Path]) -> Obstacle | None:
        """Return an obstacle for a secret file in the folders, or for folders that are too large; None without any."""
        entry_count, secrets = 0, SecretFiles(self.workspace)
        pending = [os.path.realpath(folder) for folder in folders]
        while pending:
            folder = pending.pop()
            entries = self.file_system.entries(folder)
            entry_count += len(entries)
            if entry_count > _MAX_SEARCHED_NAMES:
                many = f"it reads folders of more than {_MAX_SEARCHED_NAMES:,} files, too many to look for keys in them"
                return Obstacle(many)
            prefix = folder.rstrip("/")
            for entry in entries:
                path = f"{prefix}/{entry.name}"
                if Path(path) in self.private:
                    shown = _shown(os.path.relpath(path, self.workspace))
                    return Obstacle(f"it would also read `{shown}`, the files of AgenticX", is_secret=True)
                if _is_secret(entry, path, self.workspace, secrets):
                    shown = _shown(os.path.relpath(path, self.workspace))
                    return Obstacle(f"it would also read `{shown}`, {_SECRET}", is_secret=True)
            pending += [f"{prefix}/{entry.name}" for entry in entries if entry.kind == "folder"]
        return None


_ANY_TEXT = "its line has a quoted text or a here document with line breaks or characters other than plain ones"
_IN_PRIVATE = "the workspace has AgenticX's own files in it"
_NOT_FOLLOWED = "only a `cd` to a folder of the workspace is followed, at the beginning and before `&&`"
_AFTER_CHANGE = "the folder in which it runs is not known"
_TOO_MANY_PATHS = f"it names more than {_MAX_CHECKED_PATHS} paths"
_SECRET = "which usually holds keys or passwords"


def _plain_words(run: Sequence[str | None]) -> list[str]:
    """Return the words with the bare name of a program of the system, and with placeholders for unknown words."""
    name = run[0] or ""
    if Path(name).parent in _SYSTEM_FOLDERS:
        name = os.path.basename(name)
    if name != "git":
        return [name, *("." if word is None else word for word in run[1:])]
    words = ["HEAD" if word is None else word for word in run[1:]]
    while words[:1] == ["-c"]:
        del words[:2]
    return [name, *words]


def _part(command: SimpleCommand, obstacle: Obstacle | None) -> CommandPart:
    return CommandPart(
        tuple(word.text for word in command.words),
        sum(1 for _ in takewhile(lambda word: word.is_bare and not word.is_glob, command.words)),
        obstacle is None,
        (obstacle.clause or None) if obstacle else None,
        obstacle is not None and obstacle.is_secret,
    )


def _part_with_any_text(command: SimpleCommand) -> CommandPart:
    """Return a command of a line that only rules can allow."""
    return _part(command, Obstacle(_ANY_TEXT if can_only_read(command.words[0].text) else ""))


def _shown(path: str) -> str:
    return visible_line(path, _SHOWN_CHARS)


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
    """Return the path of a program in the system's folders, None if the PATH has another one in front of it."""
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
