"""The client that reads sessions from a store while another process owns it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from agenticx.cli.client.base import SessionInfo
from agenticx.cli.client.envelopes import Envelope
from agenticx.runtime import Session
from agenticx.sessions.files.options import find_option, stored_session_files
from agenticx.sessions.history.export import export_jsonl, export_markdown
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.base import SessionLog, StoreReader, read_log_pages
from agenticx.sessions.store.blobs import MemoryBlobs
from agenticx.tools.artifacts.files import Artifact, Artifacts

__all__ = ["ReadingClient"]


class ReadingClient:
    """A `SessionReader` of a store that another process owns."""

    def __init__(self, store: StoreReader) -> None:
        self._reader = store

    async def get(self, session_id: str) -> SessionInfo:
        record, running = await self._reader.catalog.get(session_id), await self._reader.log.turn(session_id)
        return SessionInfo(record, running and running.id)

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        listed = await self._reader.catalog.sessions(
            query=query or None, limit=limit, before=before, archived="with" if archived else "without"
        )
        return list(map(SessionInfo.of, listed))

    @asynccontextmanager
    async def read_log(self, session_id: str, after: int = 0) -> AsyncGenerator[AsyncIterator[Envelope]]:
        await self._reader.catalog.get(session_id)
        yield _read_envelopes(self._reader.log, session_id, after)

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        record = await self._reader.catalog.get(session_id)
        yield _export_log(self._reader.log, record, form)

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Sequence[Artifact]:
        return (await self._artifacts(session_id, option)).listed()

    async def option_numbers(self, session_id: str) -> Sequence[int]:
        return [option.number for option in (await self._session_files(session_id)).options]

    async def read_artifact(
        self, session_id: str, path: str, revision: int | None = None, *, option: int | None = None
    ) -> bytes:
        artifacts = await self._artifacts(session_id, option)
        return await artifacts.read(artifacts.find(path, revision))

    async def _artifacts(self, session_id: str, option: int | None) -> Artifacts:
        session = await self._session_files(session_id)
        return session.artifacts if option is None else find_option(session.options, option).artifacts

    async def _session_files(self, session_id: str) -> Session:
        state = await self._reader.log.state(session_id)
        return stored_session_files(state.parts, self._reader.blobs or MemoryBlobs(), session_id)

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        return await self._reader.catalog.usage(session_id=session_id, since=since, until=until)

    async def aclose(self) -> None:
        await self._reader.aclose()


async def _read_envelopes(log: SessionLog, session_id: str, after: int) -> AsyncGenerator[Envelope]:
    async for events in read_log_pages(log, session_id, after):
        for event in events:
            yield Envelope.parse(event.frame_json)


async def _export_log(
    log: SessionLog, record: SessionRecord, form: Literal["jsonl", "markdown"]
) -> AsyncGenerator[bytes]:
    """Yield the parts of a session's export."""
    if form == "markdown":
        yield (await export_markdown(log, record)).encode()
        return
    async for lines in export_jsonl(log, record.id):
        yield lines
