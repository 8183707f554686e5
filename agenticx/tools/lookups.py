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

__all__ = ["Entry", "Lookups", "Unclear"]

_LOOKUPS = 10_000
_LISTED_FOLDERS = 1_000
_LISTED_ENTRIES = 20_000
_STEPS = 250_000
_FOLLOWED_LINKS = 40
_NAME_BYTES = 255
_SHOWN_CHARS = 200

_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})


class Unclear(Exception):
    """Something that a call names cannot be looked at, or not in bounded time; the message is a sentence about it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; links are not followed to say its kind."""

    name: str
    kind: Literal["folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class _Status:
    mode: int
    link_target: str


class Lookups:
    """Look-ups of one assessment; made anew for the next, because nothing that it remembers is looked at again.

    Every method raises `Unclear` for what cannot be looked at, and once the assessment has looked at too much.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, _Status | None] = {}
        self._listed: dict[str, tuple[Entry, ...]] = {}
        self._globs: dict[str, ShellGlob] = {}
        self._entries_left = _LISTED_ENTRIES
        self._steps_left = _STEPS

    @property
    def looked_up(self) -> int:
        """The number of names that were looked up."""
        return len(self._statuses)

    @property
    def listed(self) -> tuple[str, ...]:
        """The folders that were listed."""
        return tuple(self._listed)

    def spend(self, steps: int) -> None:
        """Count steps of work; raises `Unclear` once there were too many."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise Unclear("It names more files and patterns than can be checked.")

    def resolve(self, start: str, path: str) -> str:
        """Return where `path` leads from the resolved folder `start`, as `os.path.realpath` does, there or not."""
        place = "/" if path.startswith("/") else start
        parts = path.split("/")[::-1]
        links = 0
        is_there = True
        while parts:
            self.spend(1)
            part = parts.pop()
            if part == "..":
                place, is_there = os.path.dirname(place), True
            elif part not in {"", "."}:
                below = f"/{part}" if place == "/" else f"{place}/{part}"
                status = self._status(below) if is_there else None  # below what is not there is nothing
                is_there = status is not None
                if status is None or not stat.S_ISLNK(status.mode):
                    place = below
                    continue
                links += 1
                if links > _FOLLOWED_LINKS:
                    raise _unseen(below, os.strerror(errno.ELOOP))
                place = "/" if status.link_target.startswith("/") else place
                parts += status.link_target.split("/")[::-1]
        return place

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
        places = ["/" if path.startswith("/") else start]
        for part in path.split("/"):
            if is_glob(part):
                places = [found for place in places for found in self._matching(place, part)]
            elif part not in {"", "."}:
                places = [self.resolve(place, part) for place in places if self.exists(place, part)]
            places = list(dict.fromkeys(places))
        yield from places

    def entries(self, folder: str) -> tuple[Entry, ...]:
        """Return what is in a resolved folder; nothing if it is none."""
        if folder not in self._listed:
            if len(self._listed) >= _LISTED_FOLDERS:
                raise Unclear(f"Its patterns reach more than the {_LISTED_FOLDERS:,} folders that can be checked.")
            try:
                self._listed[folder] = tuple(self._scan(folder))
            except OSError as exc:
                if exc.errno not in _NOTHING_THERE:
                    raise _unseen(folder, exc.strerror) from exc
                self._listed[folder] = ()
            except ValueError:  # half a surrogate pair: no folder is called so
                self._listed[folder] = ()
        return self._listed[folder]

    # --- one look each ------------------------------------------------------------------------------------------------

    def _matching(self, folder: str, part: str) -> Iterator[str]:
        glob = self.glob(part)
        for entry in self.entries(folder):
            if not glob.matches(entry.name, self.spend):
                continue
            elif entry.kind == "link":
                yield self.resolve(folder, entry.name)
            else:
                yield f"{folder.rstrip('/')}/{entry.name}"

    def _scan(self, folder: str) -> Iterator[Entry]:
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    raise Unclear(f"Its patterns reach more than the {_LISTED_ENTRIES:,} files that can be checked.")
                is_folder = entry.is_dir(follow_symlinks=False)
                yield Entry(entry.name, "folder" if is_folder else "link" if entry.is_symlink() else "other")

    def _status(self, path: str) -> _Status | None:
        if path not in self._statuses:
            if len(self._statuses) >= _LOOKUPS:
                raise Unclear(f"It names more than the {_LOOKUPS:,} files that can be checked.")
            self._statuses[path] = _look(path)
        return self._statuses[path]


def _look(path: str) -> _Status | None:
    """Return what is at `path`, None if nothing is or can be.

    A name of more than 255 bytes, and one that no file can have, stand for nothing.
    """
    try:
        mode = os.lstat(path).st_mode
        return _Status(mode, os.readlink(path) if stat.S_ISLNK(mode) else "")
    except OSError as exc:
        too_long = exc.errno == errno.ENAMETOOLONG and len(os.fsencode(path.rpartition("/")[2])) > _NAME_BYTES
        if exc.errno in _NOTHING_THERE or too_long:
            return None
        raise _unseen(path, exc.strerror) from exc
    except ValueError:  # a NUL, or half a surrogate pair
        return None


def _unseen(path: str, why: str | None) -> Unclear:
    return Unclear(f"It names {visible_line(path, _SHOWN_CHARS)}, which cannot be looked at: {why or 'unknown error'}.")
