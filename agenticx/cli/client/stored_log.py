"""The log of a stored session, as envelopes and as an exported file, read page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal

from agenticx.cli.client.envelopes import Envelope
from agenticx.sessions.history.export import export_jsonl, export_markdown
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["export_log", "read_envelopes"]


async def read_envelopes(log: SessionLog, session_id: str) -> AsyncGenerator[Envelope]:
    """Yield all events of a session."""
    async for events in read_log_pages(log, session_id):
        for event in events:
            yield Envelope.parse(event.frame_json)


async def export_log(
    log: SessionLog, record: SessionRecord, form: Literal["jsonl", "markdown"]
) -> AsyncGenerator[bytes]:
    """Yield the parts of a session's export."""
    if form == "markdown":
        yield (await export_markdown(log, record)).encode()
        return
    async for lines in export_jsonl(log, record.id):
        yield lines
