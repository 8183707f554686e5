"""Packing of a session's commits into compressed segments; the last one stays a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.segments import CommitRow, Segment, at_position, merge_commits
from agenticx.threads import run_in_thread

__all__ = ["MAX_SPAN", "PACKED_COMMITS", "Packer", "UnpackedCommit"]

PACKED_COMMITS = 512
"""The commits of a running turn that are packed at once."""

MAX_SPAN = 1 << 32
"""The largest span of positions of a segment: 65,536 transactions."""

_MAX_ROWS = 1024
_MAX_KEPT, _MAX_KEPT_BYTES = 1024, 256 * 1024

_READ = """SELECT rev, commit_id, last_seq, position, body FROM commits WHERE session = $1 AND rev < $2
           ORDER BY rev LIMIT $3"""
_REPLACE = "SELECT pack_commits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


class UnpackedCommit(NamedTuple):
    """A row of `commits`, without its session."""

    rev: int
    commit_id: str
    last_seq: int
    position: int
    body: bytes


class Packer:
    """The packing of the session of one lease.

    It keeps the newest commits of the lease until they are packed, unless they are large, and reads only those before.
    """

    def __init__(self, server: Server, session_id: str, number: int, epoch: int) -> None:
        self._server = server
        self._session_id = session_id
        self._number = number
        self._epoch = epoch
        self._kept = list[UnpackedCommit]()
        self._kept_bytes = 0
        self._last = 0  # the newest commit
        self._packed: int | None = None  # the last commit in a segment, None if that is not known
        self.count = 0
        """The commits since the last call of `pack`."""

    def add(self, commit: UnpackedCommit) -> None:
        """Take a commit into account that was stored by the lease."""
        self.count += 1
        self._last = commit.rev
        self._kept.append(commit)
        self._kept_bytes += len(commit.body)
        if len(self._kept) > _MAX_KEPT or self._kept_bytes > _MAX_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = 0

    async def pack(self) -> None:
        """Replace the session's commits but the last by segments, if it still has that epoch; raises `DamagedData`."""
        self.count = 0
        while True:
            rows, are_all = self._kept[:-1], True
            before = self._kept[0].rev if self._kept else self._last
            if self._packed is None or before > self._packed + 1:
                found = await self._server.fetch(_READ, self._number, before, _MAX_ROWS)
                are_all = len(found) < _MAX_ROWS
                rows = [*(UnpackedCommit(*row) for row in found), *(rows if are_all else ())]
            if not any(row.body for row in rows):  # no events: of a copied session the last segment has that place
                return
            segments = await run_in_thread(self._segments, rows, name="agx packing")
            columns = [list(column) for column in zip(*segments, strict=True)]
            self._packed = None  # until the server has answered
            await self._server.fetch(_REPLACE, self._number, self._epoch, rows[0].rev, rows[-1].rev, *columns)
            self._packed = rows[-1].rev
            self._kept = [row for row in self._kept if row.rev > rows[-1].rev]
            self._kept_bytes = sum(len(row.body) for row in self._kept)
            if are_all:
                return

    def _segments(self, rows: Sequence[UnpackedCommit]) -> list[Segment]:
        commits = list[CommitRow]()
        with map_decode_errors(f"the log of session {self._session_id!r}"):
            for rev, commit_id, last_seq, position, body in rows:
                base = position - (body.count(b"\n") + 1)
                placed = at_position(body, base) if body else b""
                commits.append(CommitRow(position, self._number, rev, commit_id, last_seq, placed))
        return list(merge_commits(commits, max_span=MAX_SPAN))
