"""The files of a workspace, without ignored, private and linked ones: walked, and found by name."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agenticx.errors import ToolError
from agenticx.tools.ignore import IgnoreRules
from agenticx.tools.paths import WorkspacePath, read_file, resolve_in_workspace, scan_folder
from agenticx.tools.secret_files import has_secret_name, is_private
from agenticx.tools.shown_names import name_forms

__all__ = ["FileMatches", "FoundFile", "VisibleFolder", "find_files", "inherited_rules"]

_MAX_IGNORE_BYTES = 256 * 1024
_MAX_FILES = 100_000
_MAX_SECONDS = 2.0
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class VisibleFolder:
    """A folder with the ignore rules in force in it: its parents' and those in its own .gitignore."""

    target: WorkspacePath
    rules: IgnoreRules
    entries: Sequence[tuple[WorkspacePath, bool]]
    """What is in it, in order of names, without ignored and private files and links; each with True for a folder."""

    @classmethod
    def open(cls, target: WorkspacePath, rules: IgnoreRules, private: Sequence[Path]) -> VisibleFolder:
        """List a folder, with the rules of the one above it; `private` are paths of AgenticX's own data.

        Raises `ToolError` if it is no folder, or cannot be read.
        """
        entries = scan_folder(target)
        if any(entry.name == ".gitignore" for entry in entries):
            rules = _with_folder_rules(rules, target)
        near = [folder for folder in map(Path.resolve, private) if _is_near(folder, target.path)]
        visible: list[tuple[WorkspacePath, bool]] = []
        for entry in entries:
            child = _child(target, entry.name)
            if entry.link_target is not None or entry.name == ".git" or is_private(child, near):
                continue
            if rules.ignores(name_forms(child.relative)[0], is_folder=entry.is_folder):
                continue
            if not entry.is_folder or len(child.parts) < _MAX_DEPTH:
                visible.append((child, entry.is_folder))
        return cls(target, rules, visible)


def _is_near(private: Path, folder: Path) -> bool:
    """Return whether what is in `folder` may be private; most folders hold no private one, nor are in one."""
    return private.is_relative_to(folder) or folder.is_relative_to(private)


def inherited_rules(target: WorkspacePath) -> IgnoreRules:
    """Return the rules of the folders above `target`."""
    rules = IgnoreRules()
    for depth in range(len(target.parts)):
        rules = _with_folder_rules(rules, WorkspacePath(target.root, target.parts[:depth]))
    return rules


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, by its path relative to the workspace as tools show and take it.

    Reading one that `is_secret`, as its name is that of a file that holds keys or passwords, asks the user.
    """

    path: str
    is_secret: bool


@dataclass(frozen=True, slots=True)
class FileMatches:
    """The files that match, the best match first; others may exist if the search is not `complete`."""

    files: Sequence[FoundFile]
    complete: bool


def find_files(
    workspace: Path, query: str, *, limit: int, private: Sequence[Path] = (), seconds: float = _MAX_SECONDS
) -> FileMatches:
    """Return up to `limit` files of the workspace whose path has all words of `query`, in upper or lower case.

    A file whose name begins with the query comes first, then one whose name has it, then any other; among equals the
    shorter path. Without words, the files of the workspace itself come first. Folders are searched level by level, for
    about so many seconds and 100,000 files. Raises `ToolError` if the workspace is no folder that can be read. Blocks;
    not for an event loop.
    """
    words = query.casefold().split()
    root = resolve_in_workspace(".", workspace)
    found, complete = list[tuple[int, int, str, WorkspacePath]](), True
    seen, deadline = 0, time.monotonic() + seconds
    for folder in _folders_by_level(root, private):
        files = [child for child, is_folder in folder.entries if not is_folder]
        for file in files[: _MAX_FILES - seen]:
            path = file.shown
            if (rank := _rank(path.casefold(), words)) is not None:
                found.append((rank, path.count("/") if not words else len(path), path, file))
        seen += len(files)
        if seen > _MAX_FILES or time.monotonic() > deadline:
            complete = False
            break
    best = heapq.nsmallest(limit, found, key=lambda match: match[:3])
    files = [FoundFile(path, has_secret_name(file)) for _, _, path, file in best]
    return FileMatches(files, complete and len(found) <= limit)


def _folders_by_level(root: WorkspacePath, private: Sequence[Path]) -> Iterator[VisibleFolder]:
    """Yield a folder before those in it, level by level, without those that cannot be read."""
    yield (top := VisibleFolder.open(root, IgnoreRules(), private))
    left = deque(_folders_in(top))
    while left:
        try:
            folder = VisibleFolder.open(*left.popleft(), private)
        except ToolError:
            continue
        left += _folders_in(folder)
        yield folder


def _folders_in(folder: VisibleFolder) -> list[tuple[WorkspacePath, IgnoreRules]]:
    return [(child, folder.rules) for child, is_folder in folder.entries if is_folder]


def _rank(path: str, words: Sequence[str]) -> int | None:
    """Return the rank of a path among the matches, 0 for the best; None if it lacks one of the words."""
    if not all(word in path for word in words):
        return None
    name, query = path.rpartition("/")[2], " ".join(words)
    return 0 if name.startswith(query) else 1 if all(word in name for word in words) else 2


def _with_folder_rules(rules: IgnoreRules, folder: WorkspacePath) -> IgnoreRules:
    """Return `rules` with the rules of the folder's own .gitignore, if it has one."""
    with suppress(ToolError):
        content, _ = read_file(_child(folder, ".gitignore"), _MAX_IGNORE_BYTES)
        return rules.with_rules(content.decode("utf-8", "replace"), "/".join(folder.parts))
    return rules


def _child(target: WorkspacePath, name: str) -> WorkspacePath:
    return WorkspacePath(target.root, (*target.parts, name), tuple((*parts, name) for parts in target.link_parts))
