"""Protected files of a workspace in which a command runs in the sandbox: found before it, compared after it.

What exists is mounted read-only for the command. What does not exist yet cannot be mounted, and a placeholder would
stay behind as an empty file; so what a command creates under a protected name is moved away after it. A command may
also rename the folder above a protected file and make another one in its place: files are compared by identity.

Instructions for agents, such as `AGENTS.md`, stay writable, for `git checkout` and formatters: they are compared only.

A repository is protected in those parts that decide what git runs: its configuration, hooks and attributes. The rest of
`.git` stays writable, for commits. A new repository stays, unless its configuration or its hooks could run something.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from agenticx.private_files import make_folders
from agenticx.tools.git_configuration import configured_paths, paths_of_repository
from agenticx.tools.protected import PROTECTED_PAIRS, is_instruction, protected_settings_part
from agenticx.tools.shell.file_system_cache import UncheckableError
from agenticx.tools.shell.unfollowed_paths import list_folder, move_entry, open_folder, read_small_file

__all__ = [
    "ProtectedFiles",
    "Quarantined",
    "changed_instructions",
    "find_protected_files",
    "linked_repository",
    "move_new_ones",
    "newest_change",
    "protected_names_in",
    "protected_paths_in",
    "submodule_repository",
]

_UNSEARCHED_FOLDERS = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", "site-packages"})
MAX_SECONDS = 2.0
_CTIME_STEP = 100_000_000  # ns; the clock of file systems goes in steps of some milliseconds
_REPOSITORY_PARTS = ("config", "config.worktree", "hooks", "info/attributes", "commondir")
_PAIR_ENDS = frozenset(child for _, child in PROTECTED_PAIRS)
_MAX_CONFIG_BYTES = 64 * 1024
_MAX_PATH_CHARS = 4096
_MAX_LINK_BYTES = 10_000
_WORKTREE = re.compile(r'^[ \t]*worktree[ \t]*=[ \t]*"?([^\n"]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Identity:
    """A file or folder: device, inode, size, the time of the last change of its content, and the target of a link.

    An inode alone could be that of a file which was removed and made room for another one. `parent` are device and
    inode of the folder that it is in.
    """

    device: int
    inode: int
    size: int
    modified: int
    target: str
    parent: tuple[int, int] = field(compare=False)


@dataclass(frozen=True, slots=True)
class ProtectedFiles:
    """The protected paths of a workspace, with their identities; `repositories` are the `.git` folders among them.

    `instructions` are files that agents read. `is_complete` is False if the workspace was too large to be searched in
    time; folders near its top come first.
    """

    workspace: Path
    identities: Mapping[Path, _Identity] = field(default_factory=dict[Path, _Identity])
    repositories: tuple[Path, ...] = ()
    instructions: Mapping[Path, _Identity] = field(default_factory=dict[Path, _Identity])
    is_complete: bool = True

    @property
    def pinned(self) -> tuple[Path, ...]:
        """The folders that cannot be renamed: repositories, and those above a pair such as `.github/workflows`."""
        above = (path.parent for path in self.identities if not _has_protected_name(path.name))
        return (*self.repositories, *dict.fromkeys(folder for folder in above if folder != self.workspace))

    def mountable(self, command: str) -> list[Path]:
        """Return those that can be mounted read-only: no links, and none that `command` names."""
        return [path for path, identity in self.identities.items() if not (identity.target or names(command, path))]


def names(command: str, path: Path) -> bool:
    """Return whether a command names a protected path: the text from its protected part on occurs in it."""
    return _protected_end(path.parts) in command


def _protected_end(parts: Sequence[str]) -> str:
    for index, part in enumerate(parts):
        if protected_settings_part((part,)) is not None:
            return "/".join(parts[index:])
    return "/".join(parts[-2:])  # a pair, such as .github/workflows


def find_protected_files(workspace: Path, seconds: float = MAX_SECONDS) -> ProtectedFiles:
    """Return the protected paths of a workspace; search its folders from the top, for up to so many seconds."""
    identities: dict[Path, _Identity] = {}
    instructions: dict[Path, _Identity] = {}
    repositories: list[Path] = []
    known, seen = _listings(workspace), dict[Path, _Listing]()
    deadline = time.monotonic() + seconds
    pending = deque([workspace])
    while pending and time.monotonic() < deadline:
        folder = pending.popleft()
        seen[folder] = listing = _list(folder, known.get(folder))
        found = list(_repositories(folder / ".git")) if listing.has_git else []
        for repository in [folder, *found] if listing.is_repository else found:
            repositories.append(repository)
            _add(identities, _existing_parts(repository))
        if found:
            _add(identities, paths_of_repository(folder / ".git", folder, workspace))
        _add(identities, [folder / name for name in listing.protected])
        _add(instructions, [folder / name for name in listing.instructions])
        pending.extend(folder / name for name in listing.folders)
    if (linked := linked_repository(workspace)) is not None:
        for repository in _repositories(linked):
            repositories.append(repository)
            _add(identities, _existing_parts(repository))
        _add(identities, paths_of_repository(linked, workspace, workspace))
    _add(identities, configured_paths(workspace))
    known.clear()
    known.update(seen)
    return ProtectedFiles(workspace, identities, tuple(repositories), instructions, not pending)


def protected_paths_in(folder: Path, workspace: Path, deadline: float) -> Iterator[Path]:
    """Yield the protected paths in a folder, those near its top first, and the parts of its repositories.

    Folders of installed packages are not searched. Raises `UncheckableError` at `deadline`, a monotonic time.
    """
    inside = folder.relative_to(workspace) if folder.is_relative_to(workspace) else folder
    pending = deque([folder] if _UNSEARCHED_FOLDERS.isdisjoint(inside.parts) else [])
    while pending:
        _check_time(deadline)
        here = pending.popleft()
        listing = _list(here, None)
        if listing.has_git:
            yield here / ".git"
        for repository in (*([here / ".git"] if listing.has_git else []), *([here] if listing.is_repository else [])):
            yield from _existing_parts(repository)
        yield from (here / name for name in listing.protected)
        pending.extend(here / name for name in listing.folders)


def protected_names_in(folder: Path, workspace: Path, deadline: float) -> Iterator[str]:
    """Yield the names of the protected paths in a folder and of what is in them, as `protected_paths_in` does."""
    for path in protected_paths_in(folder, workspace, deadline):
        yield path.name
        for _, folders, files in os.walk(path) if path.name != ".git" else ():
            _check_time(deadline)
            yield from (*folders, *files)


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise UncheckableError("It deletes or moves folders that are too large to be searched.")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names in a folder that matter: protected ones, instructions for agents, and folders to search.

    `version` is device, inode and ctime of the folder, which change with any entry that comes, goes or is renamed, and
    which a program cannot set; they may miss a change shortly before `listed`, in nanoseconds of the clock.
    """

    version: tuple[int, int, int]
    listed: int
    folders: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    has_git: bool = False
    is_repository: bool = False


@lru_cache(16)
def _listings(_workspace: Path) -> dict[Path, _Listing]:
    """Return what was listed in a workspace, which saves most of the search before and after the next command."""
    return {}


def _list(folder: Path, known: _Listing | None) -> _Listing:
    listed = time.time_ns()
    try:
        status = os.lstat(folder)
    except (OSError, ValueError):  # removed; a name that no file can have
        return _Listing((0, 0, 0), listed)
    version = (status.st_dev, status.st_ino, status.st_ctime_ns)
    if known is not None and known.version == version and known.listed - status.st_ctime_ns > _CTIME_STEP:
        return known
    entries = _scan(folder)
    folders = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    has_git = ".git" in folders
    protected = {entry.name for entry in entries if _is_protected(folder.name, entry.name)}
    if has_git:
        protected.discard(".git")
    return _Listing(
        version,
        listed,
        tuple(sorted(folders - protected - _UNSEARCHED_FOLDERS - {".git"})),
        tuple(sorted(protected)),
        tuple(entry.name for entry in entries if entry.name not in folders and _is_instruction(folder, entry.name)),
        has_git,
        _is_repository({entry.name for entry in entries}),
    )


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed, or not readable
        return []


def _is_repository(entry_names: set[str]) -> bool:
    """Return whether a folder is a repository for git, by what is in it."""
    return "HEAD" in entry_names and ("commondir" in entry_names or {"objects", "refs"} <= entry_names)


def linked_repository(workspace: Path) -> Path | None:
    """Return the `.git` folder of the repository of which `workspace` is a linked working tree (`git worktree add`).

    The file `.git` of the workspace names a folder in it, which must name that file in turn: a command that can write
    only in the workspace cannot choose another folder.
    """
    link = workspace / ".git"
    try:
        named = _read_text(link, _MAX_LINK_BYTES).removeprefix("gitdir:").strip()
        folder = Path(os.path.realpath(workspace / named))
        back = _read_text(folder / "gitdir", _MAX_LINK_BYTES)
    except (OSError, ValueError):
        return None
    common = folder.parent.parent
    is_linked = folder.parent.name == "worktrees" and common.name == ".git" and Path(os.path.realpath(back)) == link
    return common if is_linked and _is_repository({entry.name for entry in _scan(common)}) else None


def submodule_repository(workspace: Path) -> Path | None:
    """Return the repository that the file `.git` of `workspace` names, as of a submodule, if that names `workspace`."""
    try:
        named = _read_text(workspace / ".git", _MAX_LINK_BYTES).removeprefix("gitdir:").strip()
        folder = Path(os.path.realpath(workspace / named))
        worktree = _WORKTREE.search(_read_text(folder / "config", _MAX_CONFIG_BYTES))
        return folder if worktree and os.path.realpath(folder / worktree[1]) == str(workspace) else None
    except (OSError, ValueError):
        return None


def _read_text(path: Path, limit: int) -> str:
    """Return the text of a small file; raises `OSError` for a link or a pipe, `ValueError` for other than UTF-8."""
    with open_folder(path.parent) as folder:
        return read_small_file(path.name, folder, limit).decode("utf-8").strip()


def _repositories(git_folder: Path) -> Iterator[Path]:
    """Yield a `.git` folder, those of its linked working trees and those of its submodules."""
    yield git_folder
    yield from (git_folder / "worktrees" / entry.name for entry in _scan(git_folder / "worktrees"))
    pending = [git_folder / "modules"]
    while pending:
        folder = pending.pop()
        for entry in _scan(folder):
            if not entry.is_dir(follow_symlinks=False):
                continue
            path = folder / entry.name
            if (path / "HEAD").exists():
                yield path
                pending.append(path / "modules")
            else:
                pending.append(path)


def _existing_parts(repository: Path) -> Iterator[Path]:
    return (path for part in _REPOSITORY_PARTS if os.path.lexists(path := repository / part))


@lru_cache(65_536)
def _has_protected_name(name: str) -> bool:
    return protected_settings_part((name,)) is not None


def _is_protected(parent: str, name: str) -> bool:
    if _has_protected_name(name):
        return True
    return name.casefold() in _PAIR_ENDS and protected_settings_part((parent, name)) is not None


@lru_cache(65_536)
def _has_instruction_name(name: str) -> bool:
    return is_instruction((name,))


def _is_instruction(folder: Path, name: str) -> bool:
    """Return whether an entry of a folder is a file of instructions, or in a folder of them such as `.cursorrules`."""
    if _has_instruction_name(name) or _has_instruction_name(folder.name):
        return True
    return folder.parent.name == ".github" and is_instruction((".github", folder.name))


def _add(identities: dict[Path, _Identity], paths: Iterator[Path] | Sequence[Path]) -> None:
    for path in paths:
        try:
            status = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
            parent = os.lstat(path.parent)
        except OSError:  # removed since
            continue
        identities[path] = _Identity(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, target, (parent.st_dev, parent.st_ino)
        )


# --- after the command ------------------------------------------------------------------------------------------------


def changed_instructions(before: ProtectedFiles, after: ProtectedFiles) -> list[Path]:
    """Return the files of instructions that came or changed between two searches of a workspace."""
    return [path for path, identity in after.instructions.items() if before.instructions.get(path) != identity]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The paths that were moved away, and those that could not be moved, with the reason."""

    moved: Sequence[Path]
    kept: Mapping[Path, str]


def move_new_ones(
    before: ProtectedFiles, after: ProtectedFiles, command: str, quarantine: Path, *, home: Path, were_mounted: bool
) -> Quarantined:
    """Move what appeared under a protected name since `before` into `quarantine`, a folder in `home`.

    What `command` names stays: the user was asked about it. What others changed meanwhile stays too. If the protected
    files were not mounted read-only, that cannot be told, so each file that takes the place of one stays.

    Another command may change the workspace at the same time: nothing is followed that is a link now, and only the file
    that was found is moved, from the folder in which it was found.
    """
    known = {identity for path, identity in before.identities.items() if not names(command, path)}
    roots = (before.workspace, *before.repositories)
    moved: list[Path] = []
    kept: dict[Path, str] = {}
    for path, identity in after.identities.items():
        if identity in known or names(command, path) or _others_changed(path, before, identity, were_mounted):
            continue
        if not any(map(path.is_relative_to, roots)):
            continue
        try:
            with open_folder(path.parent) as folder:
                _require_same(path.name, folder, identity)
                if any(map(path.is_relative_to, after.repositories)) and _is_harmless_part(path.name, folder):
                    continue
                make_folders(quarantine, home)
                inside = path.relative_to(before.workspace if path.is_relative_to(before.workspace) else "/")
                move_entry(path.name, folder, Path(os.path.realpath(quarantine)), inside.parts[:-1])
                moved.append(path)
                if path in before.identities and (link := before.identities[path].target):
                    os.symlink(link, path.name, dir_fd=folder)
        except FileNotFoundError:  # removed since, or moved away after another command
            continue
        except OSError as exc:
            kept[path] = exc.strerror or str(exc)
    return Quarantined(moved, kept)


def _require_same(name: str, folder: int, judged: _Identity) -> None:
    """Raise `OSError` unless an entry of an open folder, and that folder, are those that were found."""
    above, entry = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if ((above.st_dev, above.st_ino), entry.st_dev, entry.st_ino) != (judged.parent, judged.device, judged.inode):
        raise OSError("it was changed meanwhile")


def _others_changed(path: Path, before: ProtectedFiles, now: _Identity, were_mounted: bool) -> bool:
    """Return whether a path that existed before is not the command's work, for example saved in an editor.

    The command could not change, rename or remove what was mounted; it could only rename a folder above it and make
    another one. Links are not mounted.
    """
    earlier = before.identities.get(path)
    if earlier is None or not were_mounted:
        return earlier is not None
    return not earlier.target and earlier.parent == now.parent


def newest_change(path: Path) -> int:
    """Return the time of the latest change of a file, or of anything in a folder, in nanoseconds; 0 if it is gone."""
    newest, pending = 0, [path]
    while pending:
        here = pending.pop()
        try:
            with open_folder(here.parent) as folder:
                status = os.stat(here.name, dir_fd=folder, follow_symlinks=False)
                newest = max(newest, status.st_ctime_ns)
                if stat.S_ISDIR(status.st_mode) and len(str(here)) < _MAX_PATH_CHARS:
                    pending += [here / name for name in list_folder(here.name, folder)]
        except OSError:  # removed, not readable, or a link by now
            continue
    return newest


_SECTION = re.compile(r'\[\s*(\w+)(?:\s+"[^"]*")?\s*\]')
_HARMLESS_KEYS = {
    "core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode"},
    "remote": {"url", "fetch"},
    "branch": {"remote", "merge"},
    "user": {"name", "email"},
    "init": {"defaultbranch"},
}


def _is_harmless_part(name: str, folder: int) -> bool:
    """Return whether a part of a new repository runs nothing: plain settings, and hooks that are samples.

    `folder` is the open folder of the repository.
    """
    try:
        if name == "hooks":
            return all(hook.endswith(".sample") for hook in list_folder(name, folder))
        if name != "config":
            return False
        content = read_small_file(name, folder, _MAX_CONFIG_BYTES)
    except OSError:
        return False
    keys: set[str] = set()
    for line in content.decode("utf-8", "replace").splitlines():
        if section := _SECTION.fullmatch(line.strip()):
            keys = _HARMLESS_KEYS.get(section[1].lower(), set())
            if not keys:
                return False
        elif (name := line.partition("=")[0].strip().lower()) and (name not in keys or line.rstrip().endswith("\\")):
            return False
    return True
