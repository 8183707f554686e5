"""The file system as one assessment looks at it: each name once, each folder listed once, and all of it bounded."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agenticx.tools.shell_globs import ShellGlob, is_glob
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
    """Something that a call names cannot be looked at, or not in bounded time; the message is a sentence about it."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a folder; links are not followed to say its kind."""

    name: str
    kind: Literal["folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class _Status:
    mode: int
    link_target: str


class FileSystemCache:
    """Look-ups of one assessment; made anew for the next, because nothing that it remembers is looked at again.

    Every method raises `Unclear` for what cannot be looked at, and once the assessment has looked at too much.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, _Status | None] = {}
        self._listings: dict[str, tuple[DirectoryEntry, ...]] = {}
        self._globs: dict[str, ShellGlob] = {}
        self._entries_left = _MAX_LISTED_ENTRIES
        self._steps_left = _MAX_STEPS

    @property
    def lookup_count(self) -> int:
        """The number of names that were looked up."""
        return len(self._statuses)

    @property
    def listed_folders(self) -> tuple[str, ...]:
        """The folders that were listed."""
        return tuple(self._listings)

    def spend(self, steps: int) -> None:
        """Count steps of work; raises `Unclear` once there were too many."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise UncheckableError("It names more files and patterns than can be checked.")

    def resolve(self, start: str, path: str) -> str:
        """Return where `path` leads from the resolved folder `start`, as `os.path.realpath` does, there or not."""
        current = "/" if path.startswith("/") else start
        parts = path.split("/")[::-1]
        links = 0
        exists = True
        while parts:
            self.spend(1)
            part = parts.pop()
            if part == "..":
                current, exists = os.path.dirname(current), True
            elif part not in {"", "."}:
                child = f"/{part}" if current == "/" else f"{current}/{part}"
                status = self._status(child) if exists else None  # below what is not there is nothing
                exists = status is not None
                if status is None or not stat.S_ISLNK(status.mode):
                    current = child
                    continue
                links += 1
                if links > _MAX_LINKS:
                    raise _access_error(child, os.strerror(errno.ELOOP))
                current = "/" if status.link_target.startswith("/") else current
                parts += status.link_target.split("/")[::-1]
        return current

    def exists(self, start: str, path: str) -> bool:
        """Return whether there is anything at `path`, if only a link that leads nowhere."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in {"", ".", ".."}:
            return self._status(self.resolve(start, path)) is not None
        above = self.resolve(start, f"{folder}/" if path.startswith("/") else folder)
        return self._status(f"{above.rstrip('/')}/{name}") is not None

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at the resolved `path`."""
        status = self._status(path)
        return status is not None and stat.S_ISREG(status.mode)

    def matches(self, name: str, glob: str) -> bool:
        """Return whether bash's `glob`, a path component with or without special characters, matches `name`."""
        if not is_glob(glob):
            return name == glob
        return self.glob(glob).matches(name, self.spend)

    def glob(self, text: str) -> ShellGlob:
        """Return a glob, each parsed once."""
        if text not in self._globs:
            self.spend(len(text))
            self._globs[text] = ShellGlob.parse(text)
        return self._globs[text]

    def expand(self, start: str, path: str) -> Iterator[str]:
        """Yield what the globs of `path` stand for now, from the resolved folder `start`, with all links resolved."""
        paths = ["/" if path.startswith("/") else start]
        for part in path.split("/"):
            if is_glob(part):
                paths = [found for place in paths for found in self._matching_entries(place, part)]
            elif part not in {"", "."}:
                paths = [self.resolve(place, part) for place in paths if self.exists(place, part)]
            paths = list(dict.fromkeys(paths))
        yield from paths

    def entries(self, folder: str) -> tuple[DirectoryEntry, ...]:
        """Return what is in a resolved folder; nothing if it is none."""
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
            except ValueError:  # half a surrogate pair: no folder is called so
                self._listings[folder] = ()
        return self._listings[folder]

    # --- one look each ------------------------------------------------------------------------------------------------

    def _matching_entries(self, folder: str, part: str) -> Iterator[str]:
        glob = self.glob(part)
        for entry in self.entries(folder):
            if not glob.matches(entry.name, self.spend):
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
    """Return what is at `path`, None if nothing is or can be.

    A name of more than 255 bytes, and one that no file can have, stand for nothing.
    """
    try:
        mode = os.lstat(path).st_mode
        return _Status(mode, os.readlink(path) if stat.S_ISLNK(mode) else "")
    except OSError as exc:
        too_long = exc.errno == errno.ENAMETOOLONG and len(os.fsencode(path.rpartition("/")[2])) > _MAX_NAME_BYTES
        if exc.errno in _NOT_FOUND or too_long:
            return None
        raise _access_error(path, exc.strerror) from exc
    except ValueError:  # a NUL, or half a surrogate pair
        return None


def _access_error(path: str, reason: str | None) -> UncheckableError:
    return UncheckableError(
        f"It names {visible_line(path, _SHOWN_CHARS)}, which cannot be looked at: {reason or 'unknown error'}."
    )
