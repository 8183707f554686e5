"""Removal of deleted sessions from the database in small steps, and the purge of their bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.store.postgres._connection import Server
from agenticx.sessions.store.postgres._purging import purge
from agenticx.sessions.store.postgres._text import to_text
from agenticx.sessions.store.postgres._worker import Worker
from agenticx.sessions.store.postgres.schema import CONTENT_TABLES

__all__ = ["Maintenance"]

_ROWS_AT_ONCE = 500
_PURGE_SECONDS = 5.0  # wait for further deletions and purge them together
_LOOK_SECONDS = 60.0

_LEFTOVERS = """SELECT sessions.number, hidden_id FROM sessions LEFT JOIN workers ON workers.id = sessions.hidden_by
    WHERE sessions.id IS NULL AND (workers.id IS NULL OR workers.until + $1 < clock_timestamp())"""
_CLEAR = """WITH forgotten AS (
        DELETE FROM workers WHERE (until < clock_timestamp() - interval '10 minutes'
            OR until < clock_timestamp() AND address <> '' AND EXISTS (
                SELECT FROM workers AS others WHERE others.host = workers.host AND others.address = workers.address
                AND others.started > workers.started))
        AND NOT EXISTS (SELECT FROM fences WHERE owner = workers.id AND has_work)
    ), expired AS (DELETE FROM shared WHERE expires < clock_timestamp())
    DELETE FROM commands WHERE made < clock_timestamp() - interval '10 minutes'"""
"""A dead worker is reported for ten minutes, or until one that was started in its place has taken over its work."""

_log = get_logger(__name__)


class Maintenance:
    """The removal of deleted sessions, and of what dead workers have left."""

    def __init__(self, server: Server, worker: Worker) -> None:
        self._server = server
        self._worker = worker
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the task that purges, and removes what dead workers have left."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="agx store maintenance")

    async def close(self) -> None:
        """End the task; another worker purges what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def remove(self, number: int, session_id: str) -> None:
        """Delete the rows of a session that nobody sees, in many short statements, and have its bytes purged."""
        for table in CONTENT_TABLES:
            key, value = ("session_id", to_text(session_id)) if table == "blobs" else ("session", number)
            query = f"""DELETE FROM {table} WHERE {key} = $1 AND ctid = ANY (ARRAY(
                            SELECT ctid FROM {table} WHERE {key} = $1 LIMIT {_ROWS_AT_ONCE})) RETURNING true"""
            while len(await self._server.fetch(query, value)) == _ROWS_AT_ONCE:
                pass
        await self._server.fetch("SELECT note_purge($1, $2)", number, to_text(session_id))
        await self._server.fetch("DELETE FROM sessions WHERE number = $1", number)
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            try:
                for number, session_id in await self._server.fetch(_LEFTOVERS, self._worker.lease):
                    await self.remove(number, session_id)
                await self._server.fetch(_CLEAR)
                await purge(self._server, leaves_large=True)
            except StoreError as exc:
                _log.warning("deleted sessions could not be purged yet", error=str(exc))
            self._wakeup.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wakeup.wait()
                    await asyncio.sleep(_PURGE_SECONDS)
