"""Detection of damage in the write-ahead log, which SQLite drops without an error.

The format: https://sqlite.org/fileformat2.html#the_write_ahead_log and https://sqlite.org/walformat.html. SQLite reads
a log up to the first frame whose salts or checksum are wrong, takes that for its end, and does not read one at all if
its header is wrong; then it overwrites the rest, or deletes the file. Of the frames that it does not read, these are
lost:

1. After the end that it found: each transaction whose last frame has the salts of the header and the checksum that
   follows from the frame before. Frames with other salts are left from an earlier generation of the log and were in the
   database when this one began; without a last frame the transaction was never completed. A power cut that tore
   unsynced frames can look the same: it did lose something, so it is reported too.
2. After a header that is wrong: all transactions of the newest generation, which begins at the first frame (or at the
   second, if the first is damaged too), unless all their pages are in the database. They are if writing the header
   itself was cut off: it is synced before any frame of its generation, over a generation that is in the database.

Damage of the last frame of all cannot be distinguished from a write that was cut off.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sqlite3
import stat
import struct
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from agenticx.errors import StoreError

__all__ = ["LeftoverLog", "open_leftover_log"]

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_BIG_ENDIAN, _LITTLE_ENDIAN = 0x377F0683, 0x377F0682
_MAX_GENERATION_LAG = 1 << 16
"""The first salt rises by one with each generation: one with a larger difference is damaged, not older."""

_Salts = tuple[int, int]
_Sums = tuple[int, int]


@contextmanager
def open_leftover_log(path: Path) -> Generator[LeftoverLog | None]:
    """Yield the log beside the database `path`, if a process left one; open it before SQLite can delete the file.

    SQLite must write nothing to it before `LeftoverLog.lost_commits` and `LeftoverLog.keep_copy` are done.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # SQLite raises its own error for it
        yield None
        return
    try:
        status = os.fstat(file)
        yield LeftoverLog(log, file) if stat.S_ISREG(status.st_mode) and status.st_size > _HEADER_BYTES else None
    finally:
        os.close(file)


class LeftoverLog:
    """A log with more than a header, as a process left it."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def lost_commits(self, database: Path) -> int:
        """Return the number of transactions in the log that SQLite does not read.

        Another connection that cannot write must be open meanwhile: otherwise SQLite deletes the log when the last one
        closes.
        """
        header = _Header.parse(os.pread(self._file, _HEADER_BYTES, 0))
        if header is None:
            return self._lost_after_bad_header(database)
        known = _frames_known_to_sqlite(database)
        frames = self._frames(header.page_bytes, header.order, header.sums, header.salts, begin=known)
        return sum(1 for frame in frames if frame.commit and frame.valid)

    def keep_copy(self, now: datetime) -> Path:
        """Copy the log as it is beside itself, for manual recovery; raise `StoreError`.

        If there is a copy with the same content already, return that one.
        """
        stem = f"{self._path.name}.damaged-"
        copy_path = self._path.with_name(f"{stem}{now:%Y%m%dT%H%M%S.%fZ}")
        try:
            with open(os.open(copy_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
                os.lseek(self._file, 0, os.SEEK_SET)
                with open(self._file, "rb", closefd=False) as log:
                    shutil.copyfileobj(log, copy)
                copy.flush()
                os.fsync(copy.fileno())
        except OSError as exc:
            with suppress(OSError):
                copy_path.unlink()
            raise StoreError(
                f"its write-ahead log is damaged and could not be copied, so it was left unchanged: {exc}"
            ) from exc
        for other in sorted(self._path.parent.glob(f"{stem}*")):
            if other != copy_path and filecmp.cmp(other, copy_path, shallow=False):
                copy_path.unlink()
                return other
        return copy_path

    def _lost_after_bad_header(self, database: Path) -> int:
        page_bytes = _read_page_size(database)
        salts = self._newest_salts(page_bytes)
        lost, newest, waiting = 0, dict[int, bytes](), dict[int, bytes]()
        for order in ("<", ">") if sys.byteorder == "little" else (">", "<"):  # this machine's byte order first
            for frame in self._frames(page_bytes, order, None, salts, begin=0):
                waiting[frame.page] = frame.content
                if frame.commit and (frame.valid or frame.number == 0):
                    lost += 1
                    newest |= waiting
                    newest = {page: content for page, content in newest.items() if page <= frame.commit}
                    waiting.clear()
            if lost:
                break
        return 0 if _database_contains(database, newest, page_bytes) else lost

    def _newest_salts(self, page_bytes: int) -> _Salts:
        """Return the salts of the generation that the log begins with."""
        first, second = (
            struct.unpack(">8x2I", header) if len(header) == 16 else None
            for header in (
                os.pread(self._file, 16, _HEADER_BYTES + n * (_FRAME_HEADER_BYTES + page_bytes)) for n in (0, 1)
            )
        )
        if first is None or second is None:
            return first or (0, 0)
        return first if first == second or 0 < (first[0] - second[0]) & 0xFFFFFFFF < _MAX_GENERATION_LAG else second

    def _frames(
        self, page_bytes: int, order: str, sums: _Sums | None, salts: _Salts, *, begin: int
    ) -> Iterator[_Frame]:
        """Yield the complete frames of a generation from `begin` on; `sums` are the checksum before the first frame."""
        frame_bytes = _FRAME_HEADER_BYTES + page_bytes
        before = [sums] if sums is not None else []
        if begin:
            header = os.pread(self._file, _FRAME_HEADER_BYTES, _HEADER_BYTES + (begin - 1) * frame_bytes)
            before = [struct.unpack(">16x2I", header)]
        number = begin
        while len(frame := os.pread(self._file, frame_bytes, _HEADER_BYTES + number * frame_bytes)) == frame_bytes:
            page, commit, salt_1, salt_2, *sums_read = struct.unpack(">6I", frame[:_FRAME_HEADER_BYTES])
            content = frame[_FRAME_HEADER_BYTES:]
            stored = (sums_read[0], sums_read[1])
            if (salt_1, salt_2) == salts:
                computed = [_checksum(frame[:8] + content, start, order) for start in before]
                yield _Frame(number, page, commit, stored in computed, content)
                # where they differ either the frame or its checksum is damaged: the next frame may follow from both
                before = [stored] if stored in computed else [stored, *computed[:1]]
            else:
                before = [stored]
            number += 1


class _Header(NamedTuple):
    page_bytes: int
    order: str
    salts: _Salts
    sums: _Sums

    @classmethod
    def parse(cls, header: bytes) -> _Header | None:
        """Return the header, None if SQLite would take the log for an empty one."""
        magic, _, page_bytes, _, *rest = struct.unpack(">8I", header)
        order = ">" if magic == _BIG_ENDIAN else "<"
        salts, sums = (rest[0], rest[1]), (rest[2], rest[3])
        sound = (
            magic in (_BIG_ENDIAN, _LITTLE_ENDIAN)
            and 512 <= page_bytes <= 65536
            and page_bytes & (page_bytes - 1) == 0
            and _checksum(header[:24], (0, 0), order) == sums
        )
        return cls(page_bytes, order, salts, sums) if sound else None


class _Frame(NamedTuple):
    """A page as a transaction left it; `commit` is the size of the database in pages after it, 0 unless it is the last.

    It is `valid` if its checksum follows from the frame before.
    """

    number: int
    page: int
    commit: int
    valid: bool
    content: bytes


def _frames_known_to_sqlite(database: Path) -> int:
    if not _has_content(database):  # SQLite does not read the log then
        return 0
    with closing(sqlite3.connect(database)) as connection:
        _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return max(frames, 0)


def _read_page_size(database: Path) -> int:
    """Return the page size of the database, see https://sqlite.org/fileformat2.html#page_size."""
    if _has_content(database):
        with database.open("rb") as file:
            page_size = int.from_bytes(file.read(18)[16:], "big")
        return 65536 if page_size == 1 else page_size
    return 4096  # SQLite's default, which AgenticX uses


def _has_content(database: Path) -> bool:
    return database.exists() and database.stat().st_size > 0


def _database_contains(database: Path, pages: dict[int, bytes], page_bytes: int) -> bool:
    if not _has_content(database):
        return not pages
    with database.open("rb") as file:
        for page, content in pages.items():
            file.seek((page - 1) * page_bytes)
            if file.read(page_bytes) != content:
                return False
    return True


def _checksum(data: bytes, start: _Sums, order: str) -> _Sums:
    sum_1, sum_2 = start
    for first, second in struct.iter_unpack(f"{order}2I", data[: len(data) // 8 * 8]):
        sum_1 = (sum_1 + first + sum_2) & 0xFFFFFFFF
        sum_2 = (sum_2 + second + sum_1) & 0xFFFFFFFF
    return sum_1, sum_2
