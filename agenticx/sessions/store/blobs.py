"""Contents that are too large for a commit, stored by their digest for one session each.

`BlobFolder` has a folder for each session, named after the digest of the session's id, with one compressed file for
each content, named after the content's digest. There is a limit for each session and one for all sessions; beyond the
limit for all, the contents of the least recently written sessions are deleted first. Kept contents are in the session's
subfolder `kept`, removable ones in its subfolder `removable`; neither has a limit.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import threading
import zlib
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.threads import run_in_thread

__all__ = [
    "LARGEST_CONTENT",
    "TOO_LARGE",
    "BlobFolder",
    "Blobs",
    "MemoryBlobs",
    "Retention",
    "ShardBlobs",
    "content_digest",
]

LARGEST_CONTENT = 16 * 1024 * 1024
"""The size in bytes above which a content is not stored."""

TOO_LARGE = "too large"
"""The digest of any content that is too large to be stored; two such contents may differ, so never compare it."""

Retention = Literal["limited", "kept", "removable"]
"""How long a content stays: as long as there is room for it, until its session is forgotten, or until it is removed."""

_KEPT, _REMOVABLE = "kept", "removable"
_SAMPLE_BYTES = 64 * 1024
_MAX_SESSION_BYTES = 256 * 1024 * 1024
_MAX_TOTAL_BYTES = 2 * 1024 * 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_log = get_logger(__name__)


def content_digest(content: bytes) -> str:
    """Return the digest of a content, or TOO_LARGE."""
    return hashlib.sha256(content).hexdigest() if len(content) <= LARGEST_CONTENT else TOO_LARGE


class Blobs(Protocol):
    """Contents by session and digest. A content may be missing: it was too large, or there was no room for it."""

    async def put(
        self, session_id: str, content: bytes, *, synced: bool = True, retention: Retention = "limited"
    ) -> str:
        """Store a content, before the commit that names it; return its `content_digest`.

        A content that is not `synced` survives the death of the process only. The same content can be stored with
        each retention. Raises `StoreError`.
        """
        ...

    async def remove(self, session_id: str, digests: Collection[str]) -> None:
        """Delete the removable contents with these digests, no others; raises `StoreError`."""
        ...

    async def get(self, session_id: str, digest: str) -> bytes | None:
        """Return the content with this digest, None if it is not stored."""
        ...

    def read(self, session_id: str, digest: str) -> bytes | None:
        """Return what `get` does; may block, so it is called in a thread."""
        ...

    async def share(self, session_id: str, other_id: str, digests: Collection[str]) -> None:
        """Give the session `other_id` the contents with these digests as well; raises `StoreError`."""
        ...

    async def forget(self, session_id: str) -> None:
        """Delete all contents of a session; raises `StoreError`."""
        ...

    async def contents(self, session_id: str) -> Sequence[tuple[str, Retention]]:
        """Return the digests of the session's contents, once with each retention; raises `StoreError`."""
        ...


class ShardBlobs(Blobs, Protocol):
    """Contents of one database that can be copied to another database."""

    async def retentions(self, session_id: str, digest: str) -> Collection[Retention]:
        """Return each retention with which the content is stored; empty if it is not stored. Raises `StoreError`."""
        ...


class MemoryBlobs:
    """The `Blobs` of all sessions in memory, without a limit."""

    def __init__(self) -> None:
        self._contents: dict[str, dict[str, bytes]] = {}
        self._removable: dict[str, dict[str, bytes]] = {}

    async def put(
        self, session_id: str, content: bytes, *, synced: bool = True, retention: Retention = "limited"
    ) -> str:
        digest, place = content_digest(content), self._removable if retention == "removable" else self._contents
        if digest != TOO_LARGE:
            place.setdefault(session_id, {})[digest] = content
        return digest

    async def remove(self, session_id: str, digests: Collection[str]) -> None:
        for digest in digests:
            self._removable.get(session_id, {}).pop(digest, None)

    async def get(self, session_id: str, digest: str) -> bytes | None:
        return self.read(session_id, digest)

    def read(self, session_id: str, digest: str) -> bytes | None:
        places = (self._contents, self._removable)
        found = (place[session_id][digest] for place in places if digest in place.get(session_id, {}))
        return next(found, None)

    async def retentions(self, session_id: str, digest: str) -> Collection[Retention]:
        places: dict[Retention, dict[str, dict[str, bytes]]] = {"kept": self._contents, "removable": self._removable}
        return [retention for retention, place in places.items() if digest in place.get(session_id, {})]

    async def share(self, session_id: str, other_id: str, digests: Collection[str]) -> None:
        for place in (self._contents, self._removable):
            contents = place.get(session_id, {})
            shared = {digest: contents[digest] for digest in digests if digest in contents}
            place.setdefault(other_id, {}).update(shared)

    async def contents(self, session_id: str) -> Sequence[tuple[str, Retention]]:
        places: dict[Retention, dict[str, dict[str, bytes]]] = {"kept": self._contents, "removable": self._removable}
        return [(digest, retention) for retention, place in places.items() for digest in place.get(session_id, {})]

    async def forget(self, session_id: str) -> None:
        self._contents.pop(session_id, None)
        self._removable.pop(session_id, None)


class BlobFolder:
    """The `Blobs` of all sessions in files below `root`, which is created when there is something to store."""

    def __init__(
        self, root: Path, *, session_bytes: int = _MAX_SESSION_BYTES, all_bytes: int = _MAX_TOTAL_BYTES
    ) -> None:
        self._root = root
        self._session_bytes = session_bytes
        self._all_bytes = all_bytes
        self._lock = threading.Lock()  # of the sizes
        self._used_bytes: dict[Path, int] = {}  # by folder, read when it is first needed
        self._total_bytes: int | None = None

    def folder(self, session_id: str) -> Path:
        """Return the folder of a session."""
        name = hashlib.sha256(session_id.encode()).hexdigest()[:40]  # an id from outside is never part of a path
        return self._root / name

    async def put(
        self, session_id: str, content: bytes, *, synced: bool = True, retention: Retention = "limited"
    ) -> str:
        folder, name = self.folder(session_id), "agx storing a content"
        if retention == "limited":
            return await run_in_thread(self._put, folder, content, synced, name=name)
        place = _KEPT if retention == "kept" else _REMOVABLE
        return await run_in_thread(_put_kept, folder, content, place, synced, name=name)

    async def remove(self, session_id: str, digests: Collection[str]) -> None:
        await run_in_thread(_remove, self.folder(session_id), digests, name="agx removing contents")

    async def get(self, session_id: str, digest: str) -> bytes | None:
        return await run_in_thread(self.read, session_id, digest, name="agx reading a content")

    def read(self, session_id: str, digest: str) -> bytes | None:
        return _read_content(self.folder(session_id), digest)

    async def retentions(self, session_id: str, digest: str) -> Collection[Retention]:
        return await run_in_thread(_retentions, self.folder(session_id), digest)

    async def share(self, session_id: str, other_id: str, digests: Collection[str]) -> None:
        await run_in_thread(self._share, self.folder(session_id), self.folder(other_id), digests)

    async def forget(self, session_id: str) -> None:
        await run_in_thread(self._forget, self.folder(session_id))

    async def contents(self, session_id: str) -> Sequence[tuple[str, Retention]]:
        return await run_in_thread(_contents, self.folder(session_id), name="agx listing contents")

    def _put(self, path: Path, content: bytes, synced: bool) -> str:
        name = content_digest(content)
        with _mapped_errors(), _OpenFolder(path, create=True) as folder:
            folder.touch()
            if name == TOO_LARGE or folder.has(name):
                return name
            body = _compress(content)
            if self._make_room(path, len(body)):
                folder.create(name, body, synced=synced)
            else:
                _log.warning("no snapshot of a changed file: the session's limit is reached", size=len(content))
        return name

    def _share(self, source: Path, target: Path, digests: Collection[str]) -> None:
        names = list(filter(_DIGEST.fullmatch, digests))
        with _mapped_errors(), suppress(FileNotFoundError), _OpenFolder(source) as source_folder:
            with _OpenFolder(target, create=True) as folder:
                for name in names:
                    folder.link(name, source_folder)
                for place in (_KEPT, _REMOVABLE):
                    with (
                        suppress(FileNotFoundError),
                        _OpenFolder(Path(place), parent=source_folder) as source_kept,
                        _OpenFolder(Path(place), create=True, parent=folder) as kept,
                    ):
                        for name in names:
                            kept.link(name, source_kept)
            with self._lock:
                self._total_bytes = None

    def _forget(self, folder: Path) -> None:
        with _mapped_errors():
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
            else:  # a link or file that was put in its place from outside
                folder.unlink(missing_ok=True)
        with self._lock:
            self._used_bytes.pop(folder, None)
            self._total_bytes = None

    def _make_room(self, folder: Path, size: int) -> bool:
        """Reserve `size` bytes for a session, False if it has used its own; delete the oldest contents of others."""
        with self._lock:
            used = self._used_bytes.get(folder)
            used = _folder_bytes(folder) if used is None else used
            if used + size > self._session_bytes:
                self._used_bytes[folder] = used
                return False
            if self._total_bytes is None:
                self._total_bytes = sum(_folder_bytes(other) for other in self._folders())
            if self._total_bytes + size > self._all_bytes:
                for other in sorted((other for other in self._folders() if other != folder), key=_last_used):
                    self._total_bytes -= _drop_contents(other)
                    self._used_bytes.pop(other, None)
                    if self._total_bytes + size <= self._all_bytes:
                        break
            self._total_bytes += size
            self._used_bytes[folder] = used + size
            return True

    def _folders(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [entry for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        return []


class _OpenFolder:
    """A folder held open, so that it cannot be replaced by another one; new files are readable by the owner only.

    With `parent`, a folder held open too, the path is a name in it.
    """

    def __init__(self, path: Path, *, create: bool = False, parent: _OpenFolder | None = None) -> None:
        self._path = path
        self._create = create
        self._parent = None if parent is None else parent._descriptor

    def __enter__(self) -> _OpenFolder:
        if self._create:
            if self._parent is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self._path, 0o700, dir_fd=self._parent)
                self._sync_parent()
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, dir_fd=self._parent)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _sync_parent(self) -> None:
        """Make the new folder durable: a content in it cannot be durable before."""
        if self._parent is not None:
            os.fsync(self._parent)
            return
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def touch(self) -> None:
        """Make this the least recent folder to lose its contents."""
        os.utime(self._descriptor)

    def has(self, name: str) -> bool:
        """Return whether there is a regular file of that name."""
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """Return the names in the folder."""
        return sorted(os.listdir(self._descriptor))

    def read(self, name: str) -> bytes:
        """Return the content of a regular file; opening does not block if it is a pipe."""
        with open(name, "rb", opener=lambda name, _flags: os.open(name, _READ, dir_fd=self._descriptor)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, f"{name} is no regular file")
            return file.read()

    def create(self, name: str, body: bytes, *, synced: bool) -> None:
        """Create a file, whole or not at all."""
        temporary = new_id("tmp")
        with open(os.open(temporary, _NEW, 0o600, dir_fd=self._descriptor), "wb") as file:
            file.write(body)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        if synced:
            os.fsync(self._descriptor)

    def link(self, name: str, other: _OpenFolder) -> None:
        """Link a file of another folder, if it is there."""
        with suppress(FileNotFoundError, FileExistsError):
            os.link(name, name, src_dir_fd=other._descriptor, dst_dir_fd=self._descriptor, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)


@contextmanager
def _mapped_errors() -> Generator[None]:
    """Raise `StoreError` for an `OSError`."""
    try:
        yield
    except OSError as exc:
        raise StoreError(exc.strerror or type(exc).__name__) from exc


def _compress(content: bytes) -> bytes:
    """Return the content in the zlib format; it is stored uncompressed if a sample of it gets no smaller."""
    middle = max(0, (len(content) - _SAMPLE_BYTES) // 2)
    sample = content[middle : middle + _SAMPLE_BYTES]
    return zlib.compress(content, 1 if len(zlib.compress(sample, 1)) < len(sample) * 0.95 else 0)


def _put_kept(path: Path, content: bytes, place: str, synced: bool) -> str:
    name = content_digest(content)
    with (
        _mapped_errors(),
        _OpenFolder(path, create=True) as folder,
        _OpenFolder(Path(place), create=True, parent=folder) as kept,
    ):
        if name != TOO_LARGE and not kept.has(name):
            kept.create(name, _compress(content), synced=synced)
    return name


def _remove(path: Path, digests: Collection[str]) -> None:
    with (
        _mapped_errors(),
        suppress(FileNotFoundError),
        _OpenFolder(path) as folder,
        _OpenFolder(Path(_REMOVABLE), parent=folder) as removable,
    ):
        for name in filter(_DIGEST.fullmatch, digests):
            removable.remove(name)


def _read_content(path: Path, digest: str) -> bytes | None:
    if not _DIGEST.fullmatch(digest):
        return None
    with suppress(OSError), _OpenFolder(path) as folder:
        if (content := _read_file(folder, digest)) is not None:
            return content
        for place in (_KEPT, _REMOVABLE):
            with suppress(FileNotFoundError), _OpenFolder(Path(place), parent=folder) as kept:
                if (content := _read_file(kept, digest)) is not None:
                    return content
    return None


def _contents(path: Path) -> list[tuple[str, Retention]]:
    found: list[tuple[str, Retention]] = []
    places: dict[str, Retention] = {_KEPT: "kept", _REMOVABLE: "removable"}
    with _mapped_errors(), suppress(FileNotFoundError), _OpenFolder(path) as folder:
        found.extend((name, "limited") for name in folder.names() if _DIGEST.fullmatch(name))
        for place, retention in places.items():
            with suppress(FileNotFoundError), _OpenFolder(Path(place), parent=folder) as kept:
                found.extend((name, retention) for name in kept.names() if _DIGEST.fullmatch(name))
    return found


def _retentions(path: Path, digest: str) -> list[Retention]:
    found: list[Retention] = []
    if _DIGEST.fullmatch(digest):
        with suppress(OSError), _OpenFolder(path) as folder:
            if folder.has(digest):
                found.append("limited")
            places: dict[str, Retention] = {_KEPT: "kept", _REMOVABLE: "removable"}
            for place, retention in places.items():
                with suppress(FileNotFoundError), _OpenFolder(Path(place), parent=folder) as kept:
                    if kept.has(digest):
                        found.append(retention)
    return found


def _read_file(folder: _OpenFolder, digest: str) -> bytes | None:
    """Return the content with this digest, None if the file is missing or damaged."""
    try:
        content = zlib.decompressobj().decompress(folder.read(digest), LARGEST_CONTENT + 1)
    except (OSError, zlib.error):
        return None
    return content if content_digest(content) == digest else None


def _folder_bytes(folder: Path) -> int:
    with os.scandir(folder) as entries:
        files = (entry for entry in entries if not entry.is_dir(follow_symlinks=False))
        return sum(file.stat(follow_symlinks=False).st_size for file in files)


def _last_used(folder: Path) -> float:
    """Return the time of the folder's last edit."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _drop_contents(folder: Path) -> int:
    """Delete the contents; return the number of bytes freed."""
    freed = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                freed += entry.stat(follow_symlinks=False).st_size
                os.unlink(entry.path)
    return freed
