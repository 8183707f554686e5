"""Snapshots of files before and after the agent changed them, stored outside every workspace.

A session has a folder of its own, named after the digest of its id, with one file for each content (compressed, named
after the digest of the content), `edits.jsonl`, a line for each edit, and `rewinds.jsonl`, a line for each file that a
rewind changed, each synced before the file is touched, so that no file is changed without a line. Contents are stored
up to a limit for each session and for all; beyond it an edit is recorded all the same, and the contents of the least
recently written sessions are deleted first.

A line ends in a checksum of the rest of it. A line that a crash left unfinished is no edit: its file was not touched,
and the next line begins after it. Any other line that is not as it was written is damage, and then both lists are
refused as a whole (`DamagedData`): without the list of changes it is unknown which files are unchanged. So a rewind
that would concern files then changes neither files nor the conversation, and raises.
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
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.store.damage import DamagedData

__all__ = [
    "LARGEST_FILE",
    "TOO_LARGE",
    "FileEdit",
    "RewindEdit",
    "SessionSnapshots",
    "SnapshotFolder",
    "content_digest",
]

T = TypeVar("T")

LARGEST_FILE = 16 * 1024 * 1024
"""The size in bytes above which a content is not stored."""

_MAX_SESSION_BYTES = 256 * 1024 * 1024
_MAX_TOTAL_BYTES = 2 * 1024 * 1024 * 1024
_EDITS = "edits.jsonl"
_REWINDS = "rewinds.jsonl"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A call's change of one file: the digests of its content before (None: no file) and after."""

    call_id: str
    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class RewindEdit:
    """A rewind's change of one file: the ids of the calls whose edits it undid and of those whose edits it redid.

    `mode` are the permissions of a file that it removed.
    """

    path: str
    undone: Collection[str]
    redone: Collection[str]
    mode: int | None = None


TOO_LARGE = "too large"
"""The digest of any content that is too large to be stored; two such contents may differ, so never compare it."""


def content_digest(content: bytes) -> str:
    """Return the digest of a content, or TOO_LARGE."""
    return hashlib.sha256(content).hexdigest() if len(content) <= LARGEST_FILE else TOO_LARGE


class SnapshotFolder:
    """The snapshots of all sessions, below `root`, which is created when there is something to store."""

    def __init__(
        self, root: Path, *, session_bytes: int = _MAX_SESSION_BYTES, all_bytes: int = _MAX_TOTAL_BYTES
    ) -> None:
        self._root = root
        self._session_bytes = session_bytes
        self._all_bytes = all_bytes
        self._total_bytes: int | None = None

    def for_session(self, session_id: str) -> SessionSnapshots:
        """Return the snapshots of one session."""
        name = hashlib.sha256(session_id.encode()).hexdigest()[:40]  # an id from outside is never part of a path
        return SessionSnapshots(self, self._root / name, self._session_bytes)

    def delete(self, session_id: str) -> None:
        """Delete all snapshots of a session."""
        folder = self.for_session(session_id).folder
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
            self._total_bytes = None
        else:  # a link or file that was put in its place from outside
            folder.unlink(missing_ok=True)

    def copy(self, session_id: str, new_id: str, calls: Collection[str]) -> None:
        """Give a session that was forked from another one the edits of these calls.

        If the old list cannot be read the new one is written as damaged as well, since its content is unknown.
        """
        old, new = self.for_session(session_id), self.for_session(new_id)
        try:
            edits = [edit for edit in old.edits() if edit.call_id in calls]
        except DamagedData as exc:
            _log.error("file edits not copied to the fork", error=str(exc))
            return new.write_damaged_list()
        if edits:
            new.copy_from(old, edits)
            self._total_bytes = None

    def make_room(self, size: int, exempt: Path) -> None:
        """Delete contents of other sessions than `exempt`, oldest first, until `size` more bytes fit."""
        if self._total_bytes is None:
            self._total_bytes = sum(_folder_bytes(folder) for folder in self._folders())
        if self._total_bytes + size > self._all_bytes:
            for folder in sorted((folder for folder in self._folders() if folder != exempt), key=_last_used):
                self._total_bytes -= _drop_contents(folder)
                if self._total_bytes + size <= self._all_bytes:
                    break
        self._total_bytes += size

    def _folders(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [entry for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        return []


class SessionSnapshots:
    """The `Snapshots` of one session."""

    def __init__(self, root_folder: SnapshotFolder, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._root_folder = root_folder
        self._max_bytes = max_bytes
        self._used_bytes: int | None = None  # read from the folder when it is first needed

    def record_edit(self, call_id: str, path: Path, before: bytes | None, after: bytes) -> None:
        """Store the edit, and both contents as far as there is room; raise `ToolError` if the storage fails."""
        edit = FileEdit(call_id, str(path), None if before is None else content_digest(before), content_digest(after))
        try:
            with _OpenFolder(self.folder) as folder:
                if before is not None:
                    self._store_content(folder, before, synced=True)
                self._store_content(folder, after, synced=False)  # the same content is about to be written to the file
                folder.append(_EDITS, _encode_line(_edit_row(edit)))
        except OSError as exc:
            raise ToolError(f"nothing was changed, because a snapshot could not be stored: {exc.strerror}") from exc

    def edits(self) -> list[FileEdit]:
        """Return all edits in order, without a line that a crash left unfinished; raise `DamagedData`."""
        return self._read_list(_EDITS, _parse_edit)

    def record_rewind(self, edit: RewindEdit) -> None:
        """Store a change that a rewind is about to make to a file; raise `ToolError` if the storage fails."""
        row = [edit.path, sorted(edit.undone), sorted(edit.redone), edit.mode]
        try:
            with _OpenFolder(self.folder) as folder:
                folder.append(_REWINDS, _encode_line(row))
        except OSError as exc:
            raise ToolError(f"the change could not be recorded: {exc.strerror}") from exc

    def rewind_edits(self) -> list[RewindEdit]:
        """Return all changes of files by rewinds, in order; raise `DamagedData`."""
        return self._read_list(_REWINDS, _parse_rewind_edit)

    def _read_list(self, name: str, parse: Callable[[Any], T | None]) -> list[T]:
        try:
            with _OpenFolder(self.folder, create=False) as folder:
                text = folder.read(name)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise_if_exhausted(exc)
            raise _damaged_list_error(name, exc.strerror or type(exc).__name__) from exc
        rows: list[T] = []
        for line in _complete_lines(text):
            row = parse(_decode_line(line))
            if row is None:
                raise _damaged_list_error(name, "a line is not what was written")
            rows.append(row)
        return rows

    def read_content(self, digest: str) -> bytes | None:
        """Return the content of that digest, None if it is not stored."""
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            with _OpenFolder(self.folder, create=False) as folder:
                content = zlib.decompressobj().decompress(folder.read(digest), LARGEST_FILE + 1)
        except (OSError, zlib.error):
            return None
        return content if content_digest(content) == digest else None

    def copy_from(self, other: SessionSnapshots, edits: Sequence[FileEdit]) -> None:
        """Start with edits of another session and hard links to the contents that they name."""
        contents = {digest for edit in edits for digest in (edit.before, edit.after) if digest is not None}
        with _OpenFolder(self.folder) as folder, _OpenFolder(other.folder) as source_folder:
            for digest in filter(_DIGEST.fullmatch, contents):
                folder.link(digest, source_folder)
            folder.append(_EDITS, b"".join(_encode_line(_edit_row(edit)) for edit in edits))

    def write_damaged_list(self) -> None:
        """Start with a list of edits that cannot be read."""
        with _OpenFolder(self.folder) as folder:
            folder.append(_EDITS, b"\nnull\n")

    def _store_content(self, folder: _OpenFolder, content: bytes, *, synced: bool) -> None:
        name = content_digest(content)
        if name == TOO_LARGE or folder.has(name):
            return
        body = zlib.compress(content, 1)
        self._used_bytes = _folder_bytes(self.folder) if self._used_bytes is None else self._used_bytes
        if self._used_bytes + len(body) > self._max_bytes:
            return _log.warning("no snapshot of a changed file: the session's limit is reached", size=len(content))
        self._root_folder.make_room(len(body), self.folder)
        folder.create(name, body, synced=synced)
        self._used_bytes += len(body)


class _OpenFolder:
    """A folder held open, so that it cannot be replaced by another one; new files are readable by the owner only."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._create = create

    def __enter__(self) -> _OpenFolder:
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

    def link(self, name: str, other: _OpenFolder) -> None:
        with suppress(FileNotFoundError, FileExistsError):
            os.link(name, name, src_dir_fd=other._descriptor, dst_dir_fd=self._descriptor, follow_symlinks=False)

    def append(self, name: str, line: bytes) -> None:
        with open(self._regular(name, _APPEND), "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        os.fsync(self._descriptor)

    def _regular(self, name: str, flags: int) -> int:
        """Return a descriptor of that file; opening does not block if it is a pipe."""
        descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, f"{name} is no regular file")
        return descriptor


def _edit_row(edit: FileEdit) -> list[Any]:
    return [edit.call_id, edit.path, edit.before, edit.after]


def _encode_line(row: list[Any]) -> bytes:
    """Return the row as a line after an empty one, so that a line that a crash left unfinished damages only itself."""
    return f"\n{json.dumps([*row, _checksum(row)])}\n".encode()


def _checksum(row: list[Any]) -> str:
    return f"{zlib.crc32(json.dumps(row).encode()):08x}"


def _complete_lines(text: bytes) -> Iterator[bytes]:
    """Yield all lines except empty ones and those that a crash cut off.

    A line that was cut off has no line break after it, so the next line written follows without an empty one:

    >>> list(_complete_lines(b'\\n["a"]\\n' + b'\\n["cut o' + b'\\n["b"]\\n'))
    [b'["a"]', b'["b"]']
    """
    lines = text.split(b"\n")
    for line, following in zip(lines, [*lines[1:], b"?"], strict=True):
        if line and not (following and _is_unfinished(line)):
            yield line


def _is_unfinished(line: bytes) -> bool:
    if not line.strip(b"\0"):  # a power cut can leave the file longer than the data written to it
        return True
    try:
        json.JSONDecoder().raw_decode(line.decode("latin-1"))
    except (ValueError, RecursionError):
        return line.startswith(b"[")
    return False


def _parse_edit(row: Any) -> FileEdit | None:
    match row:
        case [str() as call_id, str() as path, None | str() as before, str() as after] if _is_path(path):
            return FileEdit(call_id, path, before, after)
        case _:
            return None


def _parse_rewind_edit(row: Any) -> RewindEdit | None:
    match row:
        case [str() as path, [*undone], [*redone], None | int() as mode] if _is_path(path):
            mode = None if mode is None else mode & 0o777
            return RewindEdit(path, _strings(undone), _strings(redone), mode)
        case _:
            return None


def _strings(items: list[Any]) -> frozenset[str]:
    return frozenset(name for name in items if isinstance(name, str))


def _decode_line(line: bytes) -> Any:
    """Return the row of a line without its checksum, which lines of the first releases do not have.

    None if the line is not as it was written.
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


def _damaged_list_error(name: str, why: str) -> DamagedData:
    what = "file edits" if name == _EDITS else "rewound files"
    _log.error("list of changed files of a session is damaged", list=name, why=why)
    return DamagedData(
        f"the session's list of {what} is damaged ({name}: {why}), so neither files nor the conversation were"
        " rewound; a fork of the session leaves the files as they are"
    )


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _folder_bytes(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def _last_used(folder: Path) -> float:
    try:
        return (folder / _EDITS).stat().st_mtime
    except OSError:
        return 0.0


def _drop_contents(folder: Path) -> int:
    """Delete the contents, not the lists; return the number of bytes freed."""
    freed = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in (_EDITS, _REWINDS) and not entry.is_dir(follow_symlinks=False):
                freed += entry.stat(follow_symlinks=False).st_size
                os.unlink(entry.path)
    return freed
