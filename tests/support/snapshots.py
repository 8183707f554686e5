"""Snapshots of sessions without a hub."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from agenticx.sessions import BlobFolder, Commit, Fact, Lease, MemoryStore, SessionRecord, Store
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.log.records import FileFact
from tests.support.two_hubs import UnreliableStore

__all__ = ["SnapshotSessions", "session_snapshots"]


def session_snapshots(lease: Lease, store: Store, blobs: BlobFolder, workspace: Path) -> SessionSnapshots:
    """Return the snapshots of the session that the lease is for."""
    return SessionSnapshots(
        lease.session_id,
        blobs,
        lambda: workspace,
        read=lambda: store.log.facts(lease.session_id, FileFact),
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
        self.store: Store = memory if rng is None else UnreliableStore(memory, rng, repeats=True)
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
        self._opened[session_id] = session_snapshots(lease, self.store, self.blobs, self.workspace)
        return self._opened[session_id]

    async def commit(self, session_id: str, facts: Sequence[Fact]) -> None:
        """Store facts of a session."""
        await self._leases[session_id].commit(Commit(facts=facts))

    def folder(self, session_id: str = "ses_1") -> Path:
        """Return the folder of a session's contents."""
        return self.blobs.folder(session_id)
