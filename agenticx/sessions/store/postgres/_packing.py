"""Packing of a session's commits into compressed segments; the last one stays a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.segments import CommitRow, Segment, at_position, merge_commits
from agenticx.threads import run_in_thread

__all__ = ["MAX_SPAN", "PACKED_COMMITS", "Packer"]

PACKED_COMMITS = 4096
"""The number of commits (some minutes of tokens) after which a running turn is packed; a shorter one at its end."""

MAX_SPAN = 1 << 32
"""The largest span of positions of a segment: 65,536 transactions."""

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1024, 4 * 1024 * 1024

_READ = """SELECT rev, commit_id, last_seq, position, body FROM (
               SELECT *, sum(length(body)) OVER (ORDER BY rev) - length(body) AS size_before FROM (
                   SELECT rev, commit_id, last_seq, position, body FROM commits
                   WHERE session = $1 AND rev > $2 AND rev < $3 ORDER BY rev LIMIT $4
               ) AS first_ones
           ) AS measured WHERE size_before < $5 ORDER BY rev"""
_REPLACE = "SELECT pack_commits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


class _UnpackedCommit(NamedTuple):
    """A row of `commits`, without its session."""

    rev: int
    commit_id: str
    last_seq: int
    position: int
    body: bytes


class Packer:
    """The packing of the session of one lease; it reads a limited number of rows at a time."""

    def __init__(self, server: Server, session_id: str, number: int, epoch: int) -> None:
        self._server = server
        self._session_id = session_id
        self._number = number
        self._epoch = epoch
        self._packed = 0  # the last commit that is known to be in a segment

    async def pack(self, until: int) -> None:
        """Replace the session's commits before number `until` by segments, if it still has that epoch.

        Raises `DamagedData`, `StoreError`.
        """
        while self._packed < until - 1:
            found = await self._server.fetch(_READ, self._number, self._packed, until, _ROWS_AT_ONCE, _BYTES_AT_ONCE)
            rows = [_UnpackedCommit(*row) for row in found]
            if not any(row.body for row in rows):  # no events: of a copied session the last segment has that place
                return
            segments = await run_in_thread(self._segments, rows, name="agx packing")
            columns = [list(column) for column in zip(*segments, strict=True)]
            await self._server.fetch(_REPLACE, self._number, self._epoch, rows[0].rev, rows[-1].rev, *columns)
            self._packed = rows[-1].rev

    def _segments(self, rows: Sequence[_UnpackedCommit]) -> list[Segment]:
        commits = list[CommitRow]()
        with map_decode_errors(f"the log of session {self._session_id!r}"):
            for rev, commit_id, last_seq, position, body in rows:
                base = position - (body.count(b"\n") + 1)
                placed = at_position(body, base) if body else b""
                commits.append(CommitRow(position, self._number, rev, commit_id, last_seq, placed))
        return list(merge_commits(commits, max_span=MAX_SPAN))
