"""What files held before and after the agent changed them, kept outside every workspace.

A session has a folder of its own, named after the digest of its id, with one file for each content (compressed, named
after the digest of what it holds), `edits.jsonl`, a line for each edit, and `rewinds.jsonl`, a line for each file that
a rewind changed, each synced before the file is touched. Contents are kept up to an amount for each session and for
all; beyond it an edit is noted all the same, and the contents of the sessions that were not written to for longest go
first.

A line ends in a checksum of the rest of it. One that a crash left unfinished is no edit: its file was not touched, and
the next line begins where it broke off. Any other that is not as it was written is damage, and then both lists are
refused as a whole (`Damaged`): who does not know what was changed cannot say what is as it was. So a rewind that would
concern files changes nothing at all then, neither files nor the conversation, and says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agenticx.errors import ToolError
from agenticx.exhaustion import raise_if_exhausted
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.damage import Damaged

__all__ = ["LARGEST_FILE", "TOO_LARGE", "Edit", "Moved", "SessionSnapshots", "SnapshotFolder", "digest_of"]

T = TypeVar("T")

LARGEST_FILE = 16 * 1024 * 1024
"""Contents of more bytes are not kept."""

_SESSION_BYTES = 256 * 1024 * 1024
_ALL_BYTES = 2 * 1024 * 1024 * 1024
_EDITS = "edits.jsonl"
_REWINDS = "rewinds.jsonl"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Edit:
    """One call's change of one file: the digests of what was there (None: no file) and of what came there."""

    call_id: str
    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A rewind's change of one file: whose edits it took back and whose it made again (ids of calls).

    `mode` are the permissions of a file that it took away.
    """

    path: str
    back: Collection[str]
    forth: Collection[str]
    mode: int | None = None


TOO_LARGE = "too large"
"""Stands for the digest of a content that is too large to be kept, and with which nothing can be compared."""


def digest_of(content: bytes) -> str:
    """The name of a content."""
    return hashlib.sha256(content).hexdigest() if len(content) <= LARGEST_FILE else TOO_LARGE


class SnapshotFolder:
    """The snapshots of all sessions, below `root`, which is made when there is something to keep."""

    def __init__(self, root: Path, *, session_bytes: int = _SESSION_BYTES, all_bytes: int = _ALL_BYTES) -> None:
        self._root = root
        self._session_bytes = session_bytes
        self._all_bytes = all_bytes
        self._total: int | None = None

    def of(self, session_id: str) -> SessionSnapshots:
        """Those of one session."""
        name = hashlib.sha256(session_id.encode()).hexdigest()[:40]  # an id from outside is never part of a path
        return SessionSnapshots(self, self._root / name, self._session_bytes)

    def delete(self, session_id: str) -> None:
        """Forget all of a session."""
        folder = self.of(session_id).folder
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
            self._total = None
        else:  # what somebody put in its place
            folder.unlink(missing_ok=True)

    def copy(self, session_id: str, new_id: str, calls: Collection[str]) -> None:
        """Give a session that was made of another one what these calls changed.

        Where that cannot be read the new one's list is damaged as well: nobody knows what was in it.
        """
        old, new = self.of(session_id), self.of(new_id)
        try:
            edits = [edit for edit in old.edits() if edit.call_id in calls]
        except Damaged as exc:
            _log.error("what a conversation changed cannot be taken over into a new one", error=str(exc))
            return new.take_over_damage()
        if edits:
            new.take_over(old, edits)
            self._total = None

    def make_room(self, size: int, keeping: Path) -> None:
        """Let contents of other sessions go until `size` more bytes fit, those of the oldest first."""
        if self._total is None:
            self._total = sum(_size(folder) for folder in self._folders())
        if self._total + size > self._all_bytes:
            for folder in sorted((folder for folder in self._folders() if folder != keeping), key=_last_used):
                self._total -= _drop_contents(folder)
                if self._total + size <= self._all_bytes:
                    break
        self._total += size

    def _folders(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [entry for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        return []


class SessionSnapshots:
    """`Snapshots` of one session."""

    def __init__(self, whole: SnapshotFolder, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self._whole = whole
        self._most_bytes = most_bytes
        self._used: int | None = None  # read from the folder when it is first needed

    def record_edit(self, call_id: str, path: Path, before: bytes | None, after: bytes) -> None:
        """Keep both contents, as far as there is room, and the edit."""
        edit = Edit(call_id, str(path), None if before is None else digest_of(before), digest_of(after))
        try:
            with _Opened(self.folder) as folder:
                if before is not None:
                    self._keep(folder, before, synced=True)
                self._keep(folder, after, synced=False)  # until it is on disk it is in the file itself
                folder.append(_EDITS, _line(_row_of(edit)))
        except OSError as exc:
            raise ToolError(
                f"nothing was changed, because what is there now could not be kept: {exc.strerror}"
            ) from exc

    def edits(self) -> list[Edit]:
        """All edits, in the order they were made; a line that a crash left unfinished is none. Raises `Damaged`."""
        return self._read(_EDITS, _edit)

    def moving(self, move: Moved) -> None:
        """Note what a rewind is about to do to a file; raises `ToolError`."""
        row = [move.path, sorted(move.back), sorted(move.forth), move.mode]
        try:
            with _Opened(self.folder) as folder:
                folder.append(_REWINDS, _line(row))
        except OSError as exc:
            raise ToolError(f"what is done to it could not be noted: {exc.strerror}") from exc

    def moved(self) -> list[Moved]:
        """All that rewinds did to files, in order. Raises `Damaged`."""
        return self._read(_REWINDS, _moved)

    def _read(self, name: str, parse: Callable[[Any], T | None]) -> list[T]:
        try:
            with _Opened(self.folder, create=False) as folder:
                text = folder.read(name)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise_if_exhausted(exc)
            raise _damaged(name, exc.strerror or type(exc).__name__) from exc
        found: list[T] = []
        for line in _whole_lines(text):
            row = parse(_row(line))
            if row is None:
                raise _damaged(name, "a line is not what was written")
            found.append(row)
        return found

    def content(self, digest: str) -> bytes | None:
        """The content of that name, None if it was not kept."""
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            with _Opened(self.folder, create=False) as folder:
                content = zlib.decompressobj().decompress(folder.read(digest), LARGEST_FILE + 1)
        except (OSError, zlib.error):
            return None
        return content if digest_of(content) == digest else None

    def take_over(self, other: SessionSnapshots, edits: Sequence[Edit]) -> None:
        """Begin with edits of another session and the contents that they name, which take no room of their own."""
        contents = {digest for edit in edits for digest in (edit.before, edit.after) if digest is not None}
        with _Opened(self.folder) as folder, _Opened(other.folder) as theirs:
            for digest in filter(_DIGEST.fullmatch, contents):
                folder.link(digest, theirs)
            folder.append(_EDITS, b"".join(_line(_row_of(edit)) for edit in edits))

    def take_over_damage(self) -> None:
        """Begin with a list of edits that nobody can read."""
        with _Opened(self.folder) as folder:
            folder.append(_EDITS, b"\nnull\n")

    def _keep(self, folder: _Opened, content: bytes, *, synced: bool) -> None:
        name = digest_of(content)
        if name == TOO_LARGE or folder.has(name):
            return
        body = zlib.compress(content, 1)
        self._used = _size(self.folder) if self._used is None else self._used
        if self._used + len(body) > self._most_bytes:
            return _log.warning("a file is changed without a snapshot: its session has no room", size=len(content))
        self._whole.make_room(len(body), self.folder)
        folder.create(name, body, synced=synced)
        self._used += len(body)


class _Opened:
    """A folder held open, so that nobody can put another one in its place; new files are the owner's alone."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._create = create

    def __enter__(self) -> _Opened:
        if self._create:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.mkdir(mode=0o700, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def has(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        with open(self._regular(name, _READ), "rb") as file:
            return file.read()

    def create(self, name: str, body: bytes, *, synced: bool) -> None:
        temporary = new_id("tmp")
        with open(os.open(temporary, _NEW, 0o600, dir_fd=self._descriptor), "wb") as file:
            file.write(body)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def link(self, name: str, other: _Opened) -> None:
        with suppress(FileNotFoundError, FileExistsError):
            os.link(name, name, src_dir_fd=other._descriptor, dst_dir_fd=self._descriptor, follow_symlinks=False)

    def append(self, name: str, line: bytes) -> None:
        with open(self._regular(name, _APPEND), "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        os.fsync(self._descriptor)

    def _regular(self, name: str, flags: int) -> int:
        """A descriptor of that file; a pipe in its place keeps nobody waiting."""
        descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, f"{name} is no regular file")
        return descriptor


def _row_of(edit: Edit) -> list[Any]:
    return [edit.call_id, edit.path, edit.before, edit.after]


def _line(row: list[Any]) -> bytes:
    """A blank line first, so that what a crash left unfinished spoils no more than itself."""
    return f"\n{json.dumps([*row, _checksum(row)])}\n".encode()


def _checksum(row: list[Any]) -> str:
    return f"{zlib.crc32(json.dumps(row).encode()):08x}"


def _whole_lines(text: bytes) -> Iterator[bytes]:
    """All but blank lines and those that were broken off: such a one has no end of its own, and is the start of one."""
    lines = text.split(b"\n")
    for line, following in zip(lines, [*lines[1:], b"?"], strict=True):
        if line and not (following and _is_unfinished(line)):
            yield line


def _is_unfinished(line: bytes) -> bool:
    if not line.strip(b"\0"):  # a file that a power cut left longer than what was written
        return True
    try:
        json.JSONDecoder().raw_decode(line.decode("latin-1"))
    except (ValueError, RecursionError):
        return line.startswith(b"[")
    return False


def _edit(row: Any) -> Edit | None:
    match row:
        case [str() as call_id, str() as path, None | str() as before, str() as after] if _is_path(path):
            return Edit(call_id, path, before, after)
        case _:
            return None


def _moved(row: Any) -> Moved | None:
    match row:
        case [str() as path, [*back], [*forth], None | int() as mode] if _is_path(path):
            mode = None if mode is None else mode & 0o777
            return Moved(path, _names(back), _names(forth), mode)
        case _:
            return None


def _names(found: list[Any]) -> frozenset[str]:
    return frozenset(name for name in found if isinstance(name, str))


def _row(line: bytes) -> Any:
    """What a line holds without its checksum, which those of the first releases do not have.

    None where it is not what was written.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match row:
        case [_, _, _, _]:
            return row
        case [*rest, str() as checksum] if _checksum(rest) == checksum:
            return rest
        case _:
            return None


def _damaged(name: str, why: str) -> Damaged:
    what = "what it changed" if name == _EDITS else "what rewinds changed"
    _log.error("a session's list of changed files is damaged", list=name, why=why)
    return Damaged(
        f"the session's list of {what} is damaged ({name}: {why}), so nothing was taken back, neither files nor the"
        " conversation; a fork of the session leaves the files as they are"
    )


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _size(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def _last_used(folder: Path) -> float:
    try:
        return (folder / _EDITS).stat().st_mtime
    except OSError:
        return 0.0


def _drop_contents(folder: Path) -> int:
    """Delete the contents, not the lists; returns how many bytes that freed."""
    freed = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in (_EDITS, _REWINDS) and not entry.is_dir(follow_symlinks=False):
                freed += entry.stat(follow_symlinks=False).st_size
                os.unlink(entry.path)
    return freed
