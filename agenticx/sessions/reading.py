"""A session's log as it is read from the store: piece by piece, with the loop free in between, however long it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from agenticx.sessions.base import Store, StoredEvent

__all__ = ["log_in_pieces"]

_EVENTS_A_PIECE = 256  # about two milliseconds of work


async def log_in_pieces(store: Store, session_id: str, after: int = 0) -> AsyncGenerator[Sequence[StoredEvent]]:
    """The events behind `after`, as far as the log goes when its end is reached."""
    while events := await store.read(session_id, after, _EVENTS_A_PIECE):
        yield events
        after = events[-1].seq
        await asyncio.sleep(0)
