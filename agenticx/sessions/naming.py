"""What a session is called, and all else in its record: a change and the event that tells of it are one transaction.

A name that was taken from the first message is stored with the first event of that turn and told behind its last one;
the journal knows of names that were not told yet, so that the next start tells them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.at_hand import AtHand
from agenticx.sessions.base import JournalEntry, JournalKind, SessionRecord, Store, StoredEvent
from agenticx.sessions.live import LiveSession, RunningTurn, to_its_end

__all__ = ["Naming"]


class Naming:
    """Changes records, one at a time."""

    def __init__(self, store: Store, at_hand: AtHand) -> None:
        self._store = store
        self._at_hand = at_hand
        self._changing = asyncio.Lock()  # records are read, changed and written back

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and tell its readers."""
        async with self._changing:
            record = replace(await self._store.get(session_id), **changes)
            live = await self._at_hand.open(record)
            await to_its_end(live.append(None, [RuntimeEvent(EventType.SESSION_CHANGED, changes)], record=record))
            live.session.permission_mode = record.permission_mode
            return record

    async def begin(
        self, live: LiveSession, running: RunningTurn, first: Sequence[RuntimeEvent]
    ) -> Sequence[StoredEvent]:
        """Store the first events of a turn; a session without a name takes the turn's title with them."""
        turn = running.turn
        if running.title is None:
            return await live.append(turn.id, first)
        async with self._changing:
            record = await self._store.get(turn.session_id)
            if record.name is not None:
                return await live.append(turn.id, first)
            named, entry = replace(record, name=running.title), _entry("named", live, turn.id, {"name": running.title})
            return await live.append(turn.id, first, record=named, journal=[entry])

    async def tell(self, live: LiveSession, turn_id: str) -> None:
        """Tell, behind a turn, of the name that it gave, unless a person gave another one meanwhile."""
        named = await self._store.journal_entry("named", turn_id)
        if named is None:
            return
        told = _entry("told", live, turn_id, {})
        async with self._changing:
            if (await self._store.get(live.session.id)).name != named.data["name"]:
                await self._store.add_journal_entry(told)
                return
            event = RuntimeEvent(EventType.SESSION_CHANGED, {"name": named.data["name"]})
            await to_its_end(live.append(None, [event], journal=[told]))


def _entry(kind: JournalKind, live: LiveSession, turn_id: str, data: dict[str, Any]) -> JournalEntry:
    return JournalEntry(kind=kind, key=turn_id, session_id=live.session.id, turn_id=turn_id, data=data)
