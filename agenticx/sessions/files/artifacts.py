"""The contents of files that live in a session, stored as blobs; parts of the state name them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from agenticx.sessions.store.blobs import Blobs
from agenticx.tools.artifacts.files import Artifacts

__all__ = ["SessionContents", "share_artifacts"]


class SessionContents:
    """The `Contents` of one session, stored as blobs that stay until they are removed or the session is deleted."""

    def __init__(self, blobs: Blobs, session_id: str) -> None:
        self._blobs = blobs
        self._session_id = session_id
        self._storing = set[asyncio.Future[str]]()

    async def put(self, content: bytes) -> None:
        """Store a content whatever room is left; it is stored to its end if the caller is cancelled."""
        storing = asyncio.ensure_future(self._blobs.put(self._session_id, content, retention="removable"))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        await asyncio.shield(storing)

    def read(self, sha256: str) -> bytes | None:
        """Return a content, None if it is not stored; blocks."""
        return self._blobs.read(self._session_id, sha256)

    async def remove(self, sha256: Collection[str]) -> None:
        """Delete these contents; raises `StoreError`."""
        await self._blobs.remove(self._session_id, sha256)

    async def delete(self) -> None:
        """Delete all contents of the session, whose turn was stopped, once none is being stored; raise `StoreError`."""
        while self._storing:
            await asyncio.wait(self._storing)
        await self._blobs.forget(self._session_id)


async def share_artifacts(artifacts: Artifacts, blobs: Blobs, session_id: str, other_id: str) -> None:
    """Share the contents of a session's files with a fork of it; raises `StoreError`."""
    if artifacts.revisions:
        await blobs.share(session_id, other_id, {artifact.sha256 for artifact in artifacts.revisions})
