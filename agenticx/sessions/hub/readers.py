"""Readers of a session's events, which get each one once it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agenticx.errors import StoreError
from agenticx.runtime.events import EventType
from agenticx.sessions.hub.submission import TurnFailed
from agenticx.sessions.log.events import SessionEvent, StoredEvent, decode
from agenticx.sessions.log.turn_tree import TurnFilter
from agenticx.sessions.store.base import Log, ended_turn_id
from agenticx.threads import run_sized

__all__ = ["EventReader"]

_PAGE_EVENTS = 256


class EventReader:
    """A reader of the events after the sequence number `after`, in order.

    With `turn_id` it reads the events of that turn and its child turns, and ends with the turn. After a call of
    `finish` it ends with the events that are stored by then.
    """

    def __init__(self, log: Log, session_id: str, *, after: int, turn_id: str | None = None) -> None:
        self._log = log
        self._session_id = session_id
        self._after = after
        self._turn_id = turn_id
        self._filter = None if turn_id is None else TurnFilter({turn_id})
        self._unread: list[StoredEvent] = []
        self._ended = False
        self._failure: Exception | None = None
        self._wakeup = asyncio.Event()
        self._lock = asyncio.Lock()  # of reading from the log

    async def next_events(self) -> Sequence[SessionEvent]:
        """Return the next events as soon as there are some, and none at the end.

        Raises `TurnFailed` if the turn never begins, because its message was handed back, and `StoreError`, such as
        `SessionNotFound` once the session is deleted.
        """
        await self._wait_for_page()
        if not self._unread:
            if self._failure is not None:
                raise self._failure
            return ()
        page, self._unread = self._unread, []
        size = sum(len(event.frame_json) for event in page)
        return await run_sized(_decode, page, size=size, name="agx decoding events")

    async def finish(self) -> None:
        """Read the rest of the turn, or the next page of the session; nothing is read from the log later."""
        async with self._lock:
            try:
                while not self._ended and await self._read_page() and self._turn_id is not None:
                    pass
            except StoreError as exc:
                self._failure = exc
            self._ended = True
            self._wakeup.set()

    async def _wait_for_page(self) -> None:
        """Wait until there are unread events or no more will come."""
        with self._log.subscribe(self._session_id, self._wakeup):
            while not (self._unread or self._ended):
                self._wakeup.clear()
                async with self._lock:
                    has_read = self._ended or await self._read_page()
                if not has_read:
                    await self._wakeup.wait()

    async def _read_page(self) -> bool:
        """Read a page from the log; return False if it has none."""
        page = await self._log.read(self._session_id, self._after, _PAGE_EVENTS)
        for event in page:
            self._after = event.seq
            if self._filter is None or self._filter.includes(event):
                self._unread.append(event)
                self._ended = event.terminal and event.turn_id == self._turn_id
            elif self._turn_id is not None and ended_turn_id(event) == self._turn_id:
                outcome = "handed back" if event.type == EventType.HANDED_BACK else "taken into another turn"
                self._failure, self._ended = TurnFailed(f"the message was {outcome}: its turn never began"), True
            if self._ended:
                break
        return bool(page)


def _decode(page: Sequence[StoredEvent]) -> list[SessionEvent]:
    return [decode(stored) for stored in page]
