"""Snapshots of sessions without a hub, and the lists of file changes that earlier releases wrote."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agenticx.sessions import Commit, Fact, Lease, MemoryStore, SessionRecord, Store
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.store.blobs import BlobFolder, content_digest
from tests.support.two_hubs import UnreliableStore

__all__ = ["SnapshotSessions", "session_snapshots", "write_old_snapshots"]


def session_snapshots(lease: Lease, blobs: BlobFolder, workspace: Path) -> SessionSnapshots:
    """Return the snapshots of the session that the lease is for."""
    return SessionSnapshots(
        lease.session_id,
        blobs,
        lambda: workspace,
        read=lease.file_facts,
        commit=lambda facts: lease.commit(Commit(facts=facts)),
    )


class SnapshotSessions:
    """Sessions whose contents are below `root`, and each of which is created when it is first used.

    Their store is in memory; with `rng` it is as unreliable as a network. The workspace of all is `workspace`.
    """

    def __init__(
        self, root: Path, rng: random.Random | None = None, *, workspace: Path = Path("/"), **limits: int
    ) -> None:
        self.workspace = workspace
        self.blobs = BlobFolder(root, **limits)
        memory = MemoryStore(blobs=self.blobs)
        self.store: Store = memory if rng is None else UnreliableStore(memory, rng, settles=True)
        self._opened: dict[str, SessionSnapshots] = {}
        self._leases: dict[str, Lease] = {}

    async def session(self, session_id: str = "ses_1") -> SessionSnapshots:
        """Return the snapshots of a session."""
        if session_id not in self._opened:
            record = SessionRecord(id=session_id, workspace=str(self.workspace), created_at="2026-01-01T00:00:00.000Z")
            await self.store.create(record)
            self._opened[session_id] = await self.reopen(session_id)
        return self._opened[session_id]

    async def reopen(self, session_id: str = "ses_1") -> SessionSnapshots:
        """Return the snapshots of a session for a new owner."""
        lease = self._leases[session_id] = await self.store.ownership.claim(session_id)
        self._opened[session_id] = session_snapshots(lease, self.blobs, self.workspace)
        return self._opened[session_id]

    async def commit(self, session_id: str, facts: Sequence[Fact]) -> None:
        """Store facts of a session."""
        await self._leases[session_id].commit(Commit(facts=facts))

    def folder(self, session_id: str = "ses_1") -> Path:
        """Return the folder of a session's contents."""
        return self.blobs.folder(session_id)


def write_old_snapshots(
    folder: Path,
    edits: Sequence[tuple[str, Path, bytes | None, bytes]],
    rewinds: Sequence[tuple[Path, list[str], list[str], int | None]] = (),
) -> None:
    """Write the contents and lists of a session as the release before facts about files did.

    An edit is (call id, path, content before, content after), a rewind (path, undone calls, redone calls, mode).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for content in (content for edit in edits for content in edit[2:] if content is not None):
        (folder / content_digest(content)).write_bytes(zlib.compress(content, 1))
    rows: list[list[Any]] = [
        [call_id, str(path), None if before is None else content_digest(before), content_digest(after)]
        for call_id, path, before, after in edits
    ]
    (folder / "edits.jsonl").write_bytes(b"".join(map(_old_line, rows)))
    if rewinds:
        lines = (_old_line([str(path), *more]) for path, *more in rewinds)
        (folder / "rewinds.jsonl").write_bytes(b"".join(lines))


def _old_line(row: list[Any]) -> bytes:
    return f"\n{json.dumps([*row, f'{zlib.crc32(json.dumps(row).encode()):08x}'])}\n".encode()
