"""The client that reads sessions beside a process that owns them and is not a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Literal, cast

from agenticx.cli.client.base import SessionInfo
from agenticx.cli.client.envelopes import Envelope
from agenticx.sessions.history.export import as_jsonl, as_markdown
from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.store.base import Log, StoreReader, read_log_pages
from agenticx.sessions.store.records import SessionRecord
from agenticx.sessions.store.usage import DailyUsage

__all__ = ["ReadingClient"]


class ReadingClient:
    """A `SessionReader` of a store that another process owns."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._log = cast("Log", reader)  # of which only `head` and `read` are used

    async def get(self, session_id: str) -> SessionInfo:
        (session,) = await self._with_turns([(await self._reader.get(session_id), ())])
        return session

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        archived_filter = "with" if archived else "without"
        if not query:
            records = await self._reader.sessions(limit=limit, before=before, archived=archived_filter)
            return await self._with_turns([(record, ()) for record in records])
        results = await self._reader.search(query, limit=limit, before=before, archived=archived_filter)
        return await self._with_turns([(found.record, [asdict(match) for match in found.matches]) for found in results])

    async def _with_turns(
        self, found: Sequence[tuple[SessionRecord, Sequence[Mapping[str, Any]]]]
    ) -> Sequence[SessionInfo]:
        running = await self._reader.running_turns([record.id for record, _ in found])
        return [SessionInfo(record, running.get(record.id), matches) for record, matches in found]

    @asynccontextmanager
    async def read_log(self, session_id: str) -> AsyncGenerator[AsyncIterator[Envelope]]:
        await self._reader.get(session_id)
        yield self._all_events(session_id)

    async def _all_events(self, session_id: str) -> AsyncGenerator[Envelope]:
        async for events in read_log_pages(self._log, session_id):
            for event in events:
                yield Envelope.parse(event.frame_json)

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        record = await self._reader.get(session_id)
        yield self._jsonl(session_id) if form == "jsonl" else self._markdown(record)

    async def _jsonl(self, session_id: str) -> AsyncGenerator[bytes]:
        async for events in read_log_pages(self._log, session_id):
            yield as_jsonl(events)

    async def _markdown(self, record: SessionRecord) -> AsyncGenerator[bytes]:
        yield as_markdown(record, await read_messages(self._log, record.id)).encode()

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        return await self._reader.usage(session_id=session_id, since=since, until=until)

    async def aclose(self) -> None:
        self._reader.close()
