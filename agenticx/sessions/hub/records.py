"""Changes of session records: each is stored in one transaction with its event.

A name taken from the first message is stored with the first event of its turn and announced (`session_changed`) after
the last one. The journal lists names that were not announced yet, so that the next start announces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.hub.live_session import LiveSession, RunningTurn, run_to_completion
from agenticx.sessions.hub.session_cache import SessionCache
from agenticx.sessions.store.base import JournalEntry, JournalKind, Store
from agenticx.sessions.store.records import SessionRecord, StoredEvent

__all__ = ["RecordUpdater"]


class RecordUpdater:
    """An updater of session records that makes one change at a time."""

    def __init__(self, store: Store, session_cache: SessionCache) -> None:
        self._store = store
        self._session_cache = session_cache
        self._lock = asyncio.Lock()  # records are read, changed and written back

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and append the `session_changed` event."""
        async with self._lock:
            record = replace(await self._store.get(session_id), **changes)
            live = await self._session_cache.open(record)
            await run_to_completion(
                live.append(None, [RuntimeEvent(EventType.SESSION_CHANGED, changes)], record=record)
            )
            live.session.permission_mode = record.permission_mode
            return record

    async def append_first_events(
        self, live: LiveSession, running: RunningTurn, first: Sequence[RuntimeEvent]
    ) -> Sequence[StoredEvent]:
        """Store the first events of a turn; a session without a name gets the turn's `derived_name` with them."""
        turn = running.turn
        if running.derived_name is None:
            return await live.append(turn.id, first)
        async with self._lock:
            record = await self._store.get(turn.session_id)
            if record.name is not None:
                return await live.append(turn.id, first)
            named, entry = (
                replace(record, name=running.derived_name),
                _entry("named", live, turn.id, {"name": running.derived_name}),
            )
            return await live.append(turn.id, first, record=named, journal=[entry])

    async def announce_name(self, live: LiveSession, turn_id: str) -> None:
        """Append, after a turn, the event of the name that it gave, unless the user gave another one meanwhile."""
        named = await self._store.journal_entry("named", turn_id)
        if named is None:
            return
        announced = _entry("told", live, turn_id, {})
        async with self._lock:
            if (await self._store.get(live.session.id)).name != named.data["name"]:
                await self._store.add_journal_entry(announced)
                return
            event = RuntimeEvent(EventType.SESSION_CHANGED, {"name": named.data["name"]})
            await run_to_completion(live.append(None, [event], journal=[announced]))


def _entry(kind: JournalKind, live: LiveSession, turn_id: str, data: dict[str, Any]) -> JournalEntry:
    return JournalEntry(kind=kind, key=turn_id, session_id=live.session.id, turn_id=turn_id, data=data)
