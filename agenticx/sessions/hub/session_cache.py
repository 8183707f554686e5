"""A cache of the sessions in memory: those that are referenced and those used last."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from agenticx.logs import get_logger
from agenticx.sessions.files.snapshots import SnapshotFolder
from agenticx.sessions.history.state import load_session
from agenticx.sessions.hub.live_session import LiveSession
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.damage import DamagedData, map_decode_errors
from agenticx.sessions.store.records import SessionRecord, SessionState

__all__ = ["SessionCache"]

_MAX_RECENT = 200
"""Sessions kept in memory beside those that are referenced; any other is read again when it is needed."""


_log = get_logger(__name__)


class SessionCache:
    """A cache with one `LiveSession` for each session in use."""

    def __init__(self, store: Store, snapshots: SnapshotFolder | None = None) -> None:
        self._store = store
        self._snapshots = snapshots
        self._live: WeakValueDictionary[str, LiveSession] = WeakValueDictionary()
        self._recent: OrderedDict[str, LiveSession] = OrderedDict()

    def get(self, session_id: str) -> LiveSession | None:
        """Return the session if it is in memory, else None."""
        return self._live.get(session_id)

    async def open(self, record: SessionRecord) -> LiveSession:
        """Return the session, read from the store if it is not in memory; raises `DamagedData` if it is unreadable."""
        live = self._live.get(record.id)
        if live is None:
            state = await self._store.session_state(record.id)
            with map_decode_errors(f"state of session {record.id!r}"):
                session = load_session(record, state)
            session.snapshots = None if self._snapshots is None else self._snapshots.for_session(record.id)
            seq = await self._store.last_seq(record.id)
            live = self._live.setdefault(record.id, LiveSession(session, self._store, seq))
        self._recent[record.id] = live
        self._recent.move_to_end(record.id)
        if len(self._recent) > _MAX_RECENT:
            self._recent.popitem(last=False)
        return live

    async def open_for_deletion(self, session_id: str) -> LiveSession:
        """Return the session, with an empty conversation where it cannot be read, so that it can be deleted.

        Raises `SessionNotFound`.
        """
        live = self.get(session_id)
        if live is not None:
            return live
        try:
            return await self.open(await self._store.get(session_id))
        except DamagedData as exc:
            _log.error("unreadable session is being deleted", error=str(exc))
        record = SessionRecord(id=session_id, workspace="/", created_at="")
        # not cached: any other caller of `open` still gets `DamagedData`
        return LiveSession(load_session(record, SessionState()), self._store, await self._store.last_seq(session_id))

    def discard(self, session_id: str) -> None:
        """Remove a deleted session from the cache."""
        self._live.pop(session_id, None)
        self._recent.pop(session_id, None)
