"""The vectors of a vault's passages, in an SQLite file, and the nearest to another vector."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agenticx.knowledge.cache_file import CacheFile, transaction

__all__ = ["PassageVectors"]

_BLOCK_ROWS = 4_096
"""So many vectors are compared at once: half precision takes less room, but is computed with in single precision."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vectors(model TEXT, sha256 BLOB, vector BLOB, PRIMARY KEY(model, sha256)) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The vectors of one length, as they were when the file had this version."""

    version: tuple[int, int, int]
    dimensions: int
    hashes: list[bytes]
    matrix: Any


class PassageVectors:
    """The vectors that one embedding model gave for passages, by the SHA-256 of their text.

    They are of length 1, in half precision. A passage that the model refused has an entry without a vector. It is a
    cache: a damaged file is made anew. All methods block and may be called from any thread; several processes may use
    one file. They raise `VaultUnreadable`, or `UnknownVault` once the folder of the file is removed.
    """

    def __init__(self, file: Path, model: str) -> None:
        self._model = model
        self._writes = 0
        self._rows: _Rows | None = None
        pragmas = ("secure_delete = ON",)  # so that nothing of a deleted note stays
        self._file = CacheFile(file, "vectors", _prepare, pragmas)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def lacking(self, hashes: Iterable[bytes]) -> list[bytes]:
        """Return the passages without an entry."""
        statement = "SELECT sha256 FROM vectors WHERE model = ?"
        known = self._file.use(lambda connection: connection.execute(statement, (self._model,)).fetchall())
        there = {sha256 for (sha256,) in known}
        return [sha256 for sha256 in dict.fromkeys(hashes) if sha256 not in there]

    def store(self, vectors: Mapping[bytes, Sequence[float] | None]) -> None:
        """Store the vectors of passages, None for one that the model refused."""
        rows = [(self._model, sha256, _packed(vector)) for sha256, vector in vectors.items()]

        def store_rows(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._writes += 1

        self._file.use(store_rows)

    def keep_length(self, dimensions: int) -> bool:
        """Delete the vectors of other lengths, of an earlier form of the model; return whether there were any."""

        def delete_others(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                found = connection.execute(
                    "DELETE FROM vectors WHERE model = ? AND length(vector) <> ?", (self._model, dimensions * 2)
                )
            return found.rowcount > 0

        is_changed = self._file.use(delete_others)
        self._writes += is_changed
        return is_changed

    def keep_only(self, hashes: Collection[bytes]) -> None:
        """Delete all entries of other passages, for this and other models."""

        def delete_others(connection: sqlite3.Connection) -> None:
            known = connection.execute("SELECT DISTINCT sha256 FROM vectors").fetchall()
            gone = [(sha256,) for (sha256,) in known if sha256 not in hashes]
            if gone:
                with transaction(connection):
                    connection.executemany("DELETE FROM vectors WHERE sha256 = ?", gone)
                self._writes += 1

        self._file.use(delete_others)

    def nearest(self, vector: Sequence[float], limit: int, among: Collection[bytes] | None = None) -> list[bytes]:
        """Return the passages, of those `among`, whose vectors are nearest to `vector`, the nearest first."""
        wanted = np.asarray(vector, dtype=np.float32)
        length = float(np.linalg.norm(wanted))
        if not length:
            return []
        rows = self._file.use(lambda connection: self._current_rows(connection, len(vector)))
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

    def _current_rows(self, connection: sqlite3.Connection, dimensions: int) -> _Rows:
        """Return the vectors of that length, read again if the file has changed."""
        ((others,),) = connection.execute("PRAGMA data_version")
        version = (self._file.generation, self._writes, others)
        if self._rows is None or self._rows.version != version or self._rows.dimensions != dimensions:
            found = connection.execute(
                "SELECT sha256, vector FROM vectors WHERE model = ? AND length(vector) = ?",
                (self._model, dimensions * 2),
            ).fetchall()
            matrix = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f2").reshape(-1, dimensions)
            self._rows = _Rows(version, dimensions, [sha256 for sha256, _ in found], matrix)
        return self._rows


def _prepare(connection: sqlite3.Connection) -> bool:
    """Create the table in an empty file; return False if the file is damaged."""
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
        connection.execute(_SCHEMA)
    connection.execute("SELECT model, sha256, vector FROM vectors LIMIT 1").fetchall()
    return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)


def _packed(vector: Sequence[float] | None) -> bytes | None:
    """Return a vector of length 1 in half precision; None for none, and for one without a direction."""
    if vector is None:
        return None
    values = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(values))
    return (values / length).astype("<f2").tobytes() if length and np.isfinite(length) else None
