"""The write-ahead log as a file: what a damaged byte in it takes away, of which SQLite says nothing.

SQLite reads a log up to the first frame whose checksum is wrong and takes that for its end, as after a power cut. The
format: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path

__all__ = ["lost_commits"]

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_BIG_ENDIAN = 0x377F0683


def lost_commits(connection: sqlite3.Connection, path: Path) -> int:
    """How many transactions stand behind the end that SQLite found of the log; to be asked before anything is written.

    One whose writing was broken off is none.
    """
    try:
        file = os.open(path.with_name(f"{path.name}-wal"), os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        _, known, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return _commits_behind(file, max(known, 0))
    finally:
        os.close(file)


def _commits_behind(file: int, known: int) -> int:
    header = os.pread(file, _HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES:
        return 0
    magic, _, page, _, *salts = struct.unpack(">6I", header[:24])
    frame_bytes, order = _FRAME_HEADER_BYTES + page, ">" if magic == _BIG_ENDIAN else "<"
    sums, commits = struct.unpack(">2I", header[24:]), 0
    number = 0
    while True:
        frame = os.pread(file, _FRAME_HEADER_BYTES, _HEADER_BYTES + number * frame_bytes)
        if len(frame) < _FRAME_HEADER_BYTES:
            break
        _, commit, *found, one, two = struct.unpack(">6I", frame)
        if found != salts:  # left from before the log was begun anew
            break
        if number >= known and commit:
            body = os.pread(file, frame_bytes, _HEADER_BYTES + number * frame_bytes)
            commits += _checksum(body[:8] + body[_FRAME_HEADER_BYTES:], sums, order) == (one, two)
        sums = (one, two)
        number += 1
    return commits


def _checksum(data: bytes, start: tuple[int, ...], order: str) -> tuple[int, int]:
    one, two = start
    for first, second in struct.iter_unpack(f"{order}2I", data[: len(data) // 8 * 8]):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
