"""Paged reading of a session's log, which returns control to the event loop between pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from agenticx.sessions.store.base import Store, StoredEvent

__all__ = ["read_log_pages"]

_PAGE_EVENTS = 256  # about two milliseconds of work


async def read_log_pages(store: Store, session_id: str, after: int = 0) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the events behind `after` page by page, up to the end of the log at the time it is reached."""
    while events := await store.read(session_id, after, _PAGE_EVENTS):
        yield events
        after = events[-1].seq
        await asyncio.sleep(0)
