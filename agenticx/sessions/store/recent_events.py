"""A cache of the newest events, so that readers at the end of a log need no disk access."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter

from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.store.notify import Notifier

__all__ = ["RecentEvents", "SessionTails"]

_MAX_SESSION_EVENTS = 1024
_MAX_ALL_EVENTS = 4096
_MAX_BYTES = 16 * 1024 * 1024
_POSITION = attrgetter("position")


class SessionTails:
    """The last events of recently written sessions."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, list[StoredEvent]] = OrderedDict()
        self._bytes = 0

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Add the events of a commit, all of one session; they follow the events in the cache."""
        session_id = events[0].session_id
        tail = self._sessions.get(session_id)
        if tail is None:
            tail = self._sessions[session_id] = []
        self._sessions.move_to_end(session_id)
        tail += events
        self._bytes += _size(events)
        if len(tail) > 2 * _MAX_SESSION_EVENTS:
            self._shorten(tail, len(tail) - _MAX_SESSION_EVENTS)
        while self._bytes > _MAX_BYTES:
            self.evict(next(iter(self._sessions)))

    def last(self, session_id: str) -> StoredEvent | None:
        """Return the session's last event in the cache, or None."""
        tail = self._sessions.get(session_id)
        return tail[-1] if tail else None

    def after(self, session_id: str, seq: int, limit: int) -> Sequence[StoredEvent] | None:
        """Return up to `limit` events after `seq`; None if the cache begins later."""
        tail = self._sessions.get(session_id)
        if not tail or seq + 1 < tail[0].seq:
            return None
        start = seq + 1 - tail[0].seq
        return tail[start : start + limit]

    def evict(self, session_id: str) -> None:
        """Drop a session's events; readers read them from the storage from now on."""
        tail = self._sessions.pop(session_id, [])
        self._shorten(tail, len(tail))

    def _shorten(self, tail: list[StoredEvent], count: int) -> None:
        self._bytes -= _size(tail[:count])
        del tail[:count]


class RecentEvents:
    """The last events of recently written sessions and of the log of all sessions, with their readers.

    `last_position` is the position of the last event of the log.
    """

    def __init__(self, last_position: int) -> None:
        self.notifier = Notifier()
        self.last_position = last_position
        self.restart(last_position)

    def restart(self, position: int) -> None:
        """Drop all events. Events up to `position` are read from disk from now on, later ones are cached again."""
        self.sessions = SessionTails()
        self._all: list[StoredEvent] = []
        self._all_bytes = 0
        self._all_start = position  # just before the first of `_all`

    def publish(self, events: Sequence[StoredEvent]) -> None:
        """Add the events of a commit, all of one session, if there are any, and notify their readers."""
        if not events:
            return
        self.sessions.add(events)
        self._all += events
        self._all_bytes += _size(events)
        self.last_position = max(self.last_position, events[-1].position)
        if len(self._all) > 2 * _MAX_ALL_EVENTS or self._all_bytes > _MAX_BYTES:
            self._shorten_all()
        self.notifier.notify(events[0].session_id)

    def all_events_after(self, position: int, limit: int) -> Sequence[StoredEvent] | None:
        """Return up to `limit` events of all sessions after `position`; None if the cache begins later."""
        if position < self._all_start:
            return None
        start = bisect_right(self._all, position, key=_POSITION)
        return self._all[start : start + limit]

    def remove_session(self, session_id: str) -> None:
        """Drop the events of a deleted session, also from the log of all sessions."""
        self.sessions.evict(session_id)
        self._all = [event for event in self._all if event.session_id != session_id]
        self._all_bytes = _size(self._all)

    def _shorten_all(self) -> None:
        """Drop the older half; if the size limit is exceeded, all but the last."""
        dropped = max(len(self._all) // 2, 1) if self._all_bytes <= _MAX_BYTES else len(self._all) - 1
        if dropped:
            self._all_start = self._all[dropped - 1].position
            self._all_bytes -= _size(self._all[:dropped])
            del self._all[:dropped]


def _size(events: Sequence[StoredEvent]) -> int:
    return sum(len(event.frame_json) for event in events)
