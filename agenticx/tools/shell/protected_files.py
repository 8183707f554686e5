"""Protected files of a workspace in which a command runs in the sandbox: found before the command, compared after it.

Existing files are mounted read-only for the command; files that it creates under a protected name are moved away
(`quarantine`). A command may also rename the folder of a protected file and make another one in its place: files are
compared by identity. Instructions for agents, such as `AGENTS.md`, stay writable for `git checkout` and formatters, and
are only compared.

In a repository the configuration, hooks and attributes are protected, since they decide what git runs. The rest of
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

from agenticx.tools.git_configuration import configured_paths, paths_of_repository
from agenticx.tools.protected import PROTECTED_PAIRS, is_instruction, protected_settings_part
from agenticx.tools.shell.file_system_cache import UncheckableError
from agenticx.tools.unfollowed_paths import open_folder, read_small_file

__all__ = [
    "ProtectedFiles",
    "ProtectedIdentity",
    "changed_instructions",
    "find_protected_files",
    "is_named_in",
    "linked_repository",
    "protected_names_in",
    "protected_paths_in",
    "submodule_repository",
]

_UNSEARCHED_FOLDERS = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", "site-packages"})
_MAX_SECONDS = 2.0
_CHARS_PER_MOUNT = 200  # on average, of its path
_CTIME_STEP = 100_000_000  # ns; the clock of file systems goes in steps of some milliseconds
_REPOSITORY_PARTS = ("config", "config.worktree", "hooks", "info/attributes", "commondir")
_PAIR_ENDS = frozenset(child for _, child in PROTECTED_PAIRS)
_MAX_CONFIG_BYTES = 64 * 1024
_MAX_LINK_BYTES = 10_000
_WORKTREE = re.compile(r'^[ \t]*worktree[ \t]*=[ \t]*"?([^\n"]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProtectedIdentity:
    """A file or folder: device, inode, size, the time of the last change of its content, and a link's target.

    The inode alone could be that of a new file in the place of a removed one. `parent` is device and inode of the
    folder that it is in.
    """

    device: int
    inode: int
    size: int
    modified: int
    target: str
    parent: tuple[int, int] = field(compare=False)


@dataclass(frozen=True, slots=True)
class ProtectedFiles:
    """The protected paths of a workspace, with their identities.

    - `repositories` are the `.git` folders among them.
    - `instructions` are files that agents read.
    - `unsearched` are the folders for which there was no time or no room; folders near the top are searched first.
    """

    workspace: Path
    identities: Mapping[Path, ProtectedIdentity] = field(default_factory=dict[Path, ProtectedIdentity])
    repositories: tuple[Path, ...] = ()
    instructions: Mapping[Path, ProtectedIdentity] = field(default_factory=dict[Path, ProtectedIdentity])
    unsearched: frozenset[Path] = frozenset()

    def is_searched(self, path: Path) -> bool:
        """Return whether a protected path would have been found."""
        return self.unsearched.isdisjoint(path.parents)

    @property
    def pinned(self) -> tuple[Path, ...]:
        """The folders that must not be renamed: repositories, and the parents of a pair such as `.github/workflows`."""
        above = (path.parent for path in self.identities if not _has_protected_name(path.name))
        return (*self.repositories, *dict.fromkeys(folder for folder in above if folder != self.workspace))

    def mountable(self, command: str) -> list[Path]:
        """Return the paths that can be mounted read-only: no links, and no path that `command` names."""
        return [
            path for path, identity in self.identities.items() if not (identity.target or is_named_in(command, path))
        ]


def is_named_in(command: str, path: Path) -> bool:
    """Return whether a protected path is named in a command: the text from its protected part on occurs there."""
    return _protected_end(path.parts) in command


def _protected_end(parts: Sequence[str]) -> str:
    for index, part in enumerate(parts):
        if protected_settings_part((part,)) is not None:
            return "/".join(parts[index:])
    return "/".join(parts[-2:])  # a pair, such as .github/workflows


def find_protected_files(
    workspace: Path, seconds: float = _MAX_SECONDS, *, max_mounts: int | None = None
) -> ProtectedFiles:
    """Return the protected paths of a workspace; search its folders from the top, for at most so many seconds.

    With `max_mounts` the search ends before there are more paths than can be mounted.
    """
    identities: dict[Path, ProtectedIdentity] = {}
    instructions: dict[Path, ProtectedIdentity] = {}
    repositories: list[Path] = []
    known, seen = _listings(workspace), dict[Path, _Listing]()
    deadline = time.monotonic() + seconds
    pending = deque([workspace])
    mounts = chars = 0
    while pending and time.monotonic() < deadline:
        folder = pending[0]
        seen[folder] = listing = _list(folder, known.get(folder))
        found, protected = _protected_in(folder, listing, workspace)
        mounts += len(found) + len(protected) + listing.has_pair
        chars += sum(len(str(path)) for path in (*found, *protected))
        if max_mounts is not None and (mounts > max_mounts or chars > max_mounts * _CHARS_PER_MOUNT):
            break
        pending.popleft()
        repositories += found
        _add(identities, protected)
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
    return ProtectedFiles(workspace, identities, tuple(repositories), instructions, frozenset(pending))


def _protected_in(folder: Path, listing: _Listing, workspace: Path) -> tuple[list[Path], list[Path]]:
    """Return the repositories that begin in a folder, and the protected paths in it."""
    found = list(_repositories(folder / ".git")) if listing.has_git else []
    configured = paths_of_repository(folder / ".git", folder, workspace) if found else ()
    found = [folder, *found] if listing.is_repository else found
    parts = (path for repository in found for path in _existing_parts(repository))
    return found, [*parts, *configured, *(folder / name for name in listing.protected)]


def protected_paths_in(folder: Path, workspace: Path, deadline: float) -> Iterator[Path]:
    """Yield the protected paths in a folder, starting near its top, and the protected parts of its repositories.

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
    """Yield the names of the protected paths in a folder and of their contents, as `protected_paths_in` does."""
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
    """The relevant names in a folder: protected names, instructions for agents, and folders to search.

    `version` is device, inode and ctime of the folder. They change with any entry that is added, removed or renamed,
    and no program can set them; they may miss a change shortly before `listed`, in nanoseconds of the clock.
    """

    version: tuple[int, int, int]
    listed: int
    folders: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    has_git: bool = False
    is_repository: bool = False
    has_pair: bool = False
    """True if an entry is protected for its folder's name too, as `.github/workflows` is."""


@lru_cache(16)
def _listings(_workspace: Path) -> dict[Path, _Listing]:
    """Return the listings of a workspace, kept for the searches before and after the next command."""
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
        not all(map(_has_protected_name, protected)),
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

    The file `.git` of the workspace names a folder in the repository, which must name that file in turn: a command that
    can write only in the workspace cannot choose another folder.
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
    """Return a submodule's repository, which the file `.git` of `workspace` names, if it names `workspace` in turn."""
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
    """Yield a `.git` folder, and the folders of its linked working trees and submodules."""
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


def _add(identities: dict[Path, ProtectedIdentity], paths: Iterator[Path] | Sequence[Path]) -> None:
    for path in paths:
        try:
            status = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
            parent = os.lstat(path.parent)
        except OSError:  # removed since
            continue
        identities[path] = ProtectedIdentity(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, target, (parent.st_dev, parent.st_ino)
        )


def changed_instructions(before: ProtectedFiles, after: ProtectedFiles) -> list[Path]:
    """Return the files of instructions that are new or changed between two searches of a workspace."""
    changed = (path for path, identity in after.instructions.items() if before.instructions.get(path) != identity)
    return [path for path in changed if before.is_searched(path)]
