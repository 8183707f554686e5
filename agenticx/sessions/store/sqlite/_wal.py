"""Detection of damage in the write-ahead log, which SQLite drops without an error.

SQLite reads a log up to the first invalid frame and takes it for the end of the log; with an invalid header it reads no
frame. Then it overwrites the rest, or deletes the file. That is right if the last write was cut off. It is wrong if the
log is damaged. A damaged log has one of these:

1. Transactions of the log's generation after the end that SQLite found: two or more, or one with a valid last frame. A
   single one with an invalid last frame is the write that was cut off. Frames of an earlier generation have other
   salts; they were in the database when the present generation began.
2. No valid frame, and a header whose salts are neither the salts of the first frame nor of the next generation. This is
   reported even if the database has all transactions. A power cut cannot cause it on a disk that writes a sector whole
   or not at all.

The format: https://sqlite.org/fileformat2.html#the_write_ahead_log and https://sqlite.org/walformat.html
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sqlite3
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agenticx.errors import StoreError, error_text
from agenticx.sessions.store.sqlite._file import read_only_uri

__all__ = ["keep_damaged_log"]

_HEADER = struct.Struct(">I12x2I8x")  # the magic number and the salts
_BYTE_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}  # of the words that checksums sum up, by the magic number
_FRAME_HEADER = struct.Struct(">4xI2I8x")  # the size of the database after a transaction's last frame, and the salts
_CHECKSUM = struct.Struct(">2I")  # the last of a header, and of a frame's header


def keep_damaged_log(path: Path, now: datetime) -> Path | None:
    """Copy the log of the database `path` for manual recovery if the log is damaged; return the copy, or None.

    Call it before SQLite can overwrite or delete the log. Raises `StoreError` if the copy cannot be made; the log is
    left unchanged then.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # SQLite raises its own error for it
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size <= _HEADER.size:
            return None
        if not path.exists() or not path.stat().st_size:  # SQLite reads no log of these
            return _copy(file, log, now)
        # while another connection is open that cannot write, SQLite does not delete the log
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as reading:
            reading.execute("PRAGMA schema_version").fetchone()  # opens the log
            (page_bytes,) = reading.execute("PRAGMA page_size").fetchone()
            with closing(sqlite3.connect(path)) as connection:
                _, frames_read, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return _copy(file, log, now) if _is_damaged(file, page_bytes, frames_read) else None


class _Frame(NamedTuple):
    """The header of a page, at the byte `start`; `database_pages` is 0 unless it is the last one of its transaction."""

    start: int
    database_pages: int
    salts: list[int]


def _is_damaged(file: BinaryIO, page_bytes: int, frames_read: int) -> bool:
    magic, *salts = _HEADER.unpack(file.read(_HEADER.size))
    if frames_read <= 0:
        first = next(_frames(file, page_bytes, 0), None)
        if first is None:
            return False
        if magic not in _BYTE_ORDERS or (first.salts != salts and first.salts[0] + 1 & 0xFFFFFFFF != salts[0]):
            return True
    unread = [
        frame
        for frame in _frames(file, page_bytes, max(frames_read, 0))
        if frame.salts == salts and frame.database_pages > 0
    ]
    return len(unread) > 1 or any(_is_intact(file, page_bytes, frame, _BYTE_ORDERS[magic]) for frame in unread)


def _is_intact(file: BinaryIO, page_bytes: int, frame: _Frame, order: str) -> bool:
    """Return whether the frame's checksum follows from the one before it."""
    file.seek(frame.start - page_bytes - _CHECKSUM.size if frame.start > _HEADER.size else frame.start - _CHECKSUM.size)
    sum_1, sum_2 = _CHECKSUM.unpack(file.read(_CHECKSUM.size))
    file.seek(frame.start)
    header, content = file.read(_FRAME_HEADER.size), file.read(page_bytes)
    for first, second in struct.iter_unpack(f"{order}2I", header[:8] + content):
        sum_1 = (sum_1 + first + sum_2) & 0xFFFFFFFF
        sum_2 = (sum_2 + second + sum_1) & 0xFFFFFFFF
    return (sum_1, sum_2) == _CHECKSUM.unpack(header[-_CHECKSUM.size :])


def _frames(file: BinaryIO, page_bytes: int, begin: int) -> Iterator[_Frame]:
    """Yield the complete frames from number `begin` on, whatever their generation."""
    size = os.fstat(file.fileno()).st_size
    for number in count(begin):
        start = _HEADER.size + number * (_FRAME_HEADER.size + page_bytes)
        if start + _FRAME_HEADER.size + page_bytes > size:
            return
        file.seek(start)
        database_pages, *salts = _FRAME_HEADER.unpack(file.read(_FRAME_HEADER.size))
        yield _Frame(start, database_pages, salts)


def _copy(file: BinaryIO, log: Path, now: datetime) -> Path:
    """Copy the log into its own folder; if a copy with the same content exists, return that one."""
    stem = f"{log.name}.damaged-"
    copy_path = log.with_name(f"{stem}{now:%Y%m%dT%H%M%S.%fZ}")
    file.seek(0)
    try:
        with open(os.open(copy_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
    except OSError as exc:
        with suppress(OSError):
            copy_path.unlink()
        raise StoreError(
            f"its write-ahead log is damaged and could not be copied, so it was left unchanged: {error_text(exc)}"
        ) from exc
    for other in sorted(log.parent.glob(f"{stem}*")):
        if other != copy_path and filecmp.cmp(other, copy_path, shallow=False):
            copy_path.unlink()
            return other
    return copy_path
