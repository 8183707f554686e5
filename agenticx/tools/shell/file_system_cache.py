"""Cached and bounded file system look-ups of one assessment of a call."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from agenticx.tools.shell.globs import ShellGlob, is_glob
from agenticx.tools.visible import visible_line

__all__ = ["DirectoryEntry", "FileSystemCache", "UncheckableError"]

_MAX_LOOKUPS = 10_000
_MAX_LISTED_FOLDERS = 1_000
_MAX_LISTED_ENTRIES = 20_000
_MAX_STEPS = 250_000
_MAX_LINKS = 40
_MAX_NAME_BYTES = 255
_SHOWN_CHARS = 200

_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR})


class UncheckableError(Exception):
    """Raised for a path or pattern that cannot be examined, or not in bounded time; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a folder; its kind is determined without following links."""

    name: str
    kind: Literal["folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class _Status:
    mode: int
    links: int
    link_target: str


class FileSystemCache:
    """Cached look-ups of one assessment; the next one needs a new instance, because results are never refreshed.

    Each name is looked up once and each folder is listed once. Every method raises `UncheckableError` for a path that
    cannot be examined, and as soon as the limits of an assessment are exceeded.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, _Status | None] = {}
        self._listings: dict[str, tuple[DirectoryEntry, ...]] = {}
        self._globs: dict[str, ShellGlob] = {}
        self._links: dict[str, set[str]] = {}
        self._entries_left = _MAX_LISTED_ENTRIES
        self._steps_left = _MAX_STEPS

    def spend(self, steps: int) -> None:
        """Count steps of work; raise `UncheckableError` if their total exceeds the limit."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise UncheckableError("It names more files and patterns than can be checked.")

    def resolve(self, start: str, path: str) -> str:
        """Resolve `path` from the resolved folder `start` as `os.path.realpath` does; it need not exist."""
        current = "/" if path.startswith("/") else start
        parts = path.split("/")[::-1]
        links = list[str]()
        exists = True
        while parts:
            self.spend(1)
            part = parts.pop()
            if part == "..":
                current, exists = os.path.dirname(current), True
            elif part not in {"", "."}:
                child = f"/{part}" if current == "/" else f"{current}/{part}"
                status = self._status(child) if exists else None  # nothing exists in a missing folder
                exists = status is not None
                if status is None or not stat.S_ISLNK(status.mode):
                    current = child
                    continue
                links.append("/".join([child, *reversed(parts)]))
                if len(links) > _MAX_LINKS:
                    raise _access_error(child, os.strerror(errno.ELOOP))
                current = "/" if status.link_target.startswith("/") else current
                parts += status.link_target.split("/")[::-1]
        if links:
            self._links.setdefault(current, set()).update(links)
        return current

    def links_to(self, path: str) -> Iterator[str]:
        """Yield the paths with links that have led to a resolved path so far."""
        for parent in (path, *map(str, PurePosixPath(path).parents)) if self._links else ():
            for link in self._links.get(parent, ()):
                yield link + path[len(parent) :]

    def check_exists(self, start: str, path: str) -> bool:
        """Look up whether anything exists at `path`, including a dangling link."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in {"", ".", ".."}:
            return self._status(self.resolve(start, path)) is not None
        parent = self.resolve(start, f"{folder}/" if path.startswith("/") else folder)
        return self._status(f"{parent.rstrip('/')}/{name}") is not None

    def count_names(self, path: str) -> int:
        """Look up the number of names (hard links) of the regular file at the resolved `path`; 0 if it is none."""
        status = self._status(path)
        return status.links if status is not None and stat.S_ISREG(status.mode) else 0

    def match(self, name: str, glob: str) -> bool:
        """Match `name` with `glob`, a path component with or without bash's special characters."""
        if not is_glob(glob):
            return name == glob
        return self.glob(glob).match(name, self.spend)

    def glob(self, text: str) -> ShellGlob:
        """Return the parsed glob; each text is parsed once."""
        if text not in self._globs:
            self.spend(len(text))
            self._globs[text] = ShellGlob.parse(text)
        return self._globs[text]

    def expand(self, start: str, path: str) -> Iterator[str]:
        """Yield the existing paths that match the globs of `path`, from the resolved folder `start`, links resolved."""
        paths = ["/" if path.startswith("/") else start]
        for part in path.split("/"):
            if is_glob(part):
                paths = [found for base in paths for found in self._matching_entries(base, part)]
            elif part not in {"", "."}:
                paths = [self.resolve(base, part) for base in paths if self.check_exists(base, part)]
            paths = list(dict.fromkeys(paths))
        yield from paths

    def entries(self, folder: str) -> tuple[DirectoryEntry, ...]:
        """Return the entries of a resolved folder; none if it is not a folder."""
        if folder not in self._listings:
            if len(self._listings) >= _MAX_LISTED_FOLDERS:
                raise UncheckableError(
                    f"Its patterns reach more than the {_MAX_LISTED_FOLDERS:,} folders that can be checked."
                )
            try:
                self._listings[folder] = tuple(self._scan(folder))
            except OSError as exc:
                if exc.errno not in _NOT_FOUND:
                    raise _access_error(folder, exc.strerror) from exc
                self._listings[folder] = ()
            except ValueError:  # a lone surrogate: no folder can have this name
                self._listings[folder] = ()
        return self._listings[folder]

    # --- uncached look-ups --------------------------------------------------------------------------------------------

    def _matching_entries(self, folder: str, part: str) -> Iterator[str]:
        glob = self.glob(part)
        for entry in self.entries(folder):
            if not glob.match(entry.name, self.spend):
                continue
            elif entry.kind == "link":
                yield self.resolve(folder, entry.name)
            else:
                yield f"{folder.rstrip('/')}/{entry.name}"

    def _scan(self, folder: str) -> Iterator[DirectoryEntry]:
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    raise UncheckableError(
                        f"Its patterns reach more than the {_MAX_LISTED_ENTRIES:,} files that can be checked."
                    )
                is_folder = entry.is_dir(follow_symlinks=False)
                yield DirectoryEntry(entry.name, "folder" if is_folder else "link" if entry.is_symlink() else "other")

    def _status(self, path: str) -> _Status | None:
        if path not in self._statuses:
            if len(self._statuses) >= _MAX_LOOKUPS:
                raise UncheckableError(f"It names more than the {_MAX_LOOKUPS:,} files that can be checked.")
            self._statuses[path] = _stat_path(path)
        return self._statuses[path]


def _stat_path(path: str) -> _Status | None:
    """Return the status of `path`, or None if it does not exist.

    A name of more than 255 bytes, or one that no file can have, does not exist.
    """
    try:
        status = os.lstat(path)
        return _Status(status.st_mode, status.st_nlink, os.readlink(path) if stat.S_ISLNK(status.st_mode) else "")
    except OSError as exc:
        too_long = exc.errno == errno.ENAMETOOLONG and len(os.fsencode(path.rpartition("/")[2])) > _MAX_NAME_BYTES
        if exc.errno in _NOT_FOUND or too_long:
            return None
        raise _access_error(path, exc.strerror) from exc
    except ValueError:  # a NUL, or a lone surrogate
        return None


def _access_error(path: str, reason: str | None) -> UncheckableError:
    return UncheckableError(
        f"It names {visible_line(path, _SHOWN_CHARS)}, which cannot be looked at: {reason or 'unknown error'}."
    )
