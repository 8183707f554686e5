"""The vectors of a vault's passages, in an SQLite file, and the nearest to another vector."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PassageVectors"]

_BLOCK_ROWS = 4_096
"""So many vectors are compared at once: half precision takes less room, but is computed with in single precision."""
_BUSY_SECONDS = 10.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vectors(model TEXT, sha256 BLOB, vector BLOB, PRIMARY KEY(model, sha256)) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The vectors of one length, as they were when the file had this version."""

    version: tuple[int, int]
    dimensions: int
    hashes: list[bytes]
    matrix: Any


class PassageVectors:
    """The vectors that one embedding model gave for passages, by the SHA-256 of their text.

    They are of length 1, in half precision. A passage that the model refused has an entry without a vector. It is a
    cache: a damaged file is made anew. All methods block and may be called from any thread; several processes may use
    one file.
    """

    def __init__(self, file: Path, model: str) -> None:
        self._file = file
        self._model = model
        self._lock = threading.Lock()
        self._writes = 0
        self._rows: _Rows | None = None
        self._connection = self._open()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def lacking(self, hashes: Iterable[bytes]) -> list[bytes]:
        """Return those of the passages that have no entry."""
        with self._lock:
            known = self._connection.execute("SELECT sha256 FROM vectors WHERE model = ?", (self._model,))
            there = {sha256 for (sha256,) in known}
        return [sha256 for sha256 in dict.fromkeys(hashes) if sha256 not in there]

    def store(self, vectors: Mapping[bytes, Sequence[float] | None]) -> None:
        """Store the vectors of passages, None for one that the model refused."""
        rows = [(self._model, sha256, _packed(vector)) for sha256, vector in vectors.items()]
        with self._lock, self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._writes += 1

    def keep_only(self, hashes: Collection[bytes]) -> None:
        """Delete all entries but those of these passages, of this and other models."""
        with self._lock, self._connection:
            known = self._connection.execute("SELECT DISTINCT sha256 FROM vectors").fetchall()
            gone = [(sha256,) for (sha256,) in known if sha256 not in hashes]
            if gone:
                self._connection.executemany("DELETE FROM vectors WHERE sha256 = ?", gone)
                self._writes += 1

    def nearest(self, vector: Sequence[float], limit: int, among: Collection[bytes] | None = None) -> list[bytes]:
        """Return the passages, of those `among`, whose vectors are nearest to `vector`, the nearest first."""
        wanted = np.asarray(vector, dtype=np.float32)
        length = float(np.linalg.norm(wanted))
        if not length:
            return []
        with self._lock:
            rows = self._current_rows(len(vector))
        if not rows.hashes:
            return []
        blocks = range(0, len(rows.hashes), _BLOCK_ROWS)
        scores = np.concatenate(
            [rows.matrix[at : at + _BLOCK_ROWS].astype(np.float32) @ (wanted / length) for at in blocks]
        )
        if among is not None:
            scores[[sha256 not in among for sha256 in rows.hashes]] = -np.inf
        order = np.argsort(-scores, kind="stable")[:limit]
        return [rows.hashes[at] for at in order if np.isfinite(scores[at])]

    def _current_rows(self, dimensions: int) -> _Rows:
        """Return the vectors of that length, read again if the file has changed."""
        ((others,),) = self._connection.execute("PRAGMA data_version")
        version = (self._writes, others)
        if self._rows is None or self._rows.version != version or self._rows.dimensions != dimensions:
            found = self._connection.execute(
                "SELECT sha256, vector FROM vectors WHERE model = ? AND length(vector) = ?",
                (self._model, dimensions * 2),
            ).fetchall()
            matrix = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f2").reshape(-1, dimensions)
            self._rows = _Rows(version, dimensions, [sha256 for sha256, _ in found], matrix)
        return self._rows

    def _open(self) -> sqlite3.Connection:
        for _ in range(2):
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, check_same_thread=False)
            try:
                with connection:
                    connection.execute("PRAGMA secure_delete = ON")  # so that nothing of a deleted note stays
                    connection.execute(_SCHEMA)
                    if connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                        return connection
            except sqlite3.OperationalError:  # locked or full: not damaged
                connection.close()
                raise
            except sqlite3.DatabaseError:
                pass
            connection.close()
            with suppress(FileNotFoundError):
                self._file.unlink()
        raise AssertionError("a new file is usable")


def _packed(vector: Sequence[float] | None) -> bytes | None:
    """Return a vector of length 1 in half precision; None for none, and for one without a direction."""
    if vector is None:
        return None
    values = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(values))
    return (values / length).astype("<f2").tobytes() if length and np.isfinite(length) else None
