"""Contents by session and digest: kept contents in the database, contents of limited retention in a folder.

A content that a rewind needs belongs to a file of this host, so it stays on this host. Contents that messages and
artifacts name are needed wherever the session goes on.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Sequence

from agenticx.errors import StoreError
from agenticx.sessions.store.blobs import TOO_LARGE, Blobs, Retention, content_digest
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.postgres._text import to_text
from agenticx.threads import run_in_thread

__all__ = ["PostgresBlobs"]

_CHUNK_BYTES = 1024 * 1024


class PostgresBlobs:
    """The `Blobs` of a database; contents of limited retention are in `local`, or are not stored if it is None."""

    def __init__(self, server: Server, local: Blobs | None) -> None:
        self._server = server
        self._local = local

    async def put(
        self, session_id: str, content: bytes, *, synced: bool = True, retention: Retention = "limited"
    ) -> str:
        if retention == "limited":
            if self._local is None:
                return content_digest(content)
            return await self._local.put(session_id, content, synced=synced)
        digest, chunks = await run_in_thread(_chunks, content, name="agx blob")
        if digest == TOO_LARGE:
            return digest
        await self._server.fetch(
            """INSERT INTO blobs (session_id, digest, is_removable, chunk, body)
               SELECT $1, $2, $3, chunk - 1, body FROM unnest($4::bytea[]) WITH ORDINALITY AS given (body, chunk)
               ON CONFLICT DO NOTHING""",
            *(to_text(session_id), digest, retention == "removable", chunks),
        )
        return digest

    async def remove(self, session_id: str, digests: Collection[str]) -> None:
        await self._server.fetch(
            "DELETE FROM blobs WHERE session_id = $1 AND is_removable AND digest = ANY ($2::text[])",
            *(to_text(session_id), list(digests)),
        )

    async def get(self, session_id: str, digest: str) -> bytes | None:
        rows = await self._server.fetch(
            """SELECT body FROM blobs WHERE session_id = $1 AND digest = $2 AND is_removable = (
                   SELECT bool_and(is_removable) FROM blobs WHERE session_id = $1 AND digest = $2)
               ORDER BY chunk""",
            *(to_text(session_id), digest),
        )
        if rows:
            return await run_in_thread(_content, [row[0] for row in rows], digest, name="agx blob")
        return None if self._local is None else await self._local.get(session_id, digest)

    def read(self, session_id: str, digest: str) -> bytes | None:
        loop = self._server.loop
        if self._local is not None and (content := self._local.read(session_id, digest)) is not None:
            return content
        if loop is None:
            raise StoreError("a content of the database is read before the store is used")
        return asyncio.run_coroutine_threadsafe(self.get(session_id, digest), loop).result()

    async def retentions(self, session_id: str, digest: str) -> Collection[Retention]:
        rows = await self._server.fetch(
            "SELECT DISTINCT is_removable FROM blobs WHERE session_id = $1 AND digest = $2",
            *(to_text(session_id), digest),
        )
        found: list[Retention] = ["removable" if row[0] else "kept" for row in rows]
        if self._local is not None and await self._local.get(session_id, digest) is not None:
            found.append("limited")
        return found

    async def share(self, session_id: str, other_id: str, digests: Collection[str]) -> None:
        await self._server.fetch(
            """INSERT INTO blobs (session_id, digest, is_removable, chunk, body)
               SELECT $2, digest, is_removable, chunk, body FROM blobs
               WHERE session_id = $1 AND digest = ANY ($3::text[])
               ON CONFLICT DO NOTHING""",
            *(to_text(session_id), to_text(other_id), list(digests)),
        )
        if self._local is not None:
            await self._local.share(session_id, other_id, digests)

    async def contents(self, session_id: str) -> Sequence[tuple[str, Retention]]:
        found = await self._server.fetch(
            "SELECT DISTINCT digest, is_removable FROM blobs WHERE session_id = $1 ORDER BY 1", to_text(session_id)
        )
        stored: list[tuple[str, Retention]] = [
            (digest, "removable" if is_removable else "kept") for digest, is_removable in found
        ]
        local = () if self._local is None else await self._local.contents(session_id)
        return [*stored, *((digest, retention) for digest, retention in local if retention == "limited")]

    async def forget(self, session_id: str) -> None:
        await self._server.fetch("DELETE FROM blobs WHERE session_id = $1", to_text(session_id))
        if self._local is not None:
            await self._local.forget(session_id)


def _chunks(content: bytes) -> tuple[str, list[bytes]]:
    packed = zlib.compress(content, 1)
    return content_digest(content), [packed[at : at + _CHUNK_BYTES] for at in range(0, len(packed), _CHUNK_BYTES)]


def _content(chunks: list[bytes], digest: str) -> bytes | None:
    """Return the content, None if its digest differs: a damaged content counts as missing."""
    try:
        content = zlib.decompress(b"".join(chunks))
    except zlib.error:
        return None
    return content if content_digest(content) == digest else None
