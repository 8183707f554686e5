"""The end of a session's log, folded without the part before it, for one page of messages or turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from agenticx.runtime.events import TRANSCRIPT_EVENTS, EventType
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["LogFold", "find_end", "find_event", "fold_end"]

_FIRST_EVENTS = 1_024
_GROWTH = 4
_SEARCHED_EVENTS = 4_096


class LogFold(Protocol):
    """A fold of events of a session, in order."""

    def feed(self, events: Sequence[StoredEvent], /) -> None: ...


FoldT = TypeVar("FoldT", bound=LogFold)


async def fold_end(
    log: SessionLog,
    session_id: str,
    fold: Callable[[bool], FoldT],
    is_enough: Callable[[FoldT], bool],
    *,
    until: int | None = None,
    first_events: int = _FIRST_EVENTS,
) -> FoldT:
    """Return a fold of the last events of a session, of `first_events` or more, that `is_enough`; else of all.

    `fold` returns an empty fold; its argument is True for a fold of all events. A shorter fold begins with the first
    event of a root turn, and has the first event of each of its turns. `until` is the number of the last event, by
    default of the session. Raises `SessionNotFound`, `StoreError`.
    """
    head, count = await log.head(session_id) if until is None else until, first_events
    while count < head:
        folded, end = fold(False), _End()
        async for page in read_log_pages(log, session_id, head - count, until=head):
            folded.feed(end.add(page))
            if end.lacks_turn:
                break
        if not end.lacks_turn and is_enough(folded):
            return folded
        count *= _GROWTH
    folded = fold(True)
    async for page in read_log_pages(log, session_id, until=until):
        folded.feed(page)
    return folded


async def find_end(log: SessionLog, session_id: str, names: Callable[[StoredEvent], bool]) -> int | None:
    """Return the number of the last event of a session that `names` what is looked for; None if a rewind follows it.

    None also if there is no such event. No event is decoded. Raises `SessionNotFound`, `StoreError`.
    """
    end = await log.head(session_id)
    while end > 0:
        start, found = max(0, end - _SEARCHED_EVENTS), None
        async for page in read_log_pages(log, session_id, start, until=end):
            for event in page:
                if event.type == EventType.SESSION_CHANGED and b'"rewound_to"' in event.frame_json:
                    found, end = None, 0  # unless an event after this one names it
                elif names(event):
                    found = event.seq
        if found is not None or end == 0:
            return found
        end = start
    return None


async def find_event(log: SessionLog, session_id: str, names: Callable[[StoredEvent], bool]) -> StoredEvent | None:
    """Return the last event of a session that `names` what is looked for, also before a rewind; else None.

    No event is decoded. Raises `SessionNotFound`, `StoreError`.
    """
    end = await log.head(session_id)
    while end > 0:
        start = max(0, end - _SEARCHED_EVENTS)
        pages = [page async for page in read_log_pages(log, session_id, start, until=end)]
        for event in (event for page in reversed(pages) for event in reversed(page)):
            if names(event):
                return event
        end = start
    return None


class _End:
    """The events from the first root turn on; once it `lacks_turn`, one of them is of a turn that began before it."""

    def __init__(self) -> None:
        self._turn_ids = set[str | None]()
        self.lacks_turn = False

    def add(self, page: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Return the events of the next page that belong to it."""
        kept = list[StoredEvent]()
        for event in page:
            if event.type == EventType.TURN_STARTED and (self._turn_ids or _is_root(event)):
                self._turn_ids.add(event.turn_id)
            if self._turn_ids:
                kept.append(event)
                is_shown = event.turn_id is not None and event.type in TRANSCRIPT_EVENTS
                self.lacks_turn = self.lacks_turn or (is_shown and event.turn_id not in self._turn_ids)
        return kept


def _is_root(event: StoredEvent) -> bool:
    return "parent_turn_id" not in decode(event).event.data
