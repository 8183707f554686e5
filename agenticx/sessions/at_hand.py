"""The sessions that are kept in memory: those that anybody holds, and those used last."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from agenticx.logs import get_logger
from agenticx.sessions.base import SessionRecord, SessionState, Store
from agenticx.sessions.damage import DamagedData, map_decode_errors
from agenticx.sessions.keeping import revive
from agenticx.sessions.live import LiveSession
from agenticx.sessions.snapshots import SnapshotFolder

__all__ = ["AtHand"]

_MOST = 200
"""Conversations kept beside those that somebody holds; the others are read again when they are needed."""


_log = get_logger(__name__)


class AtHand:
    """One `LiveSession` for each session, for as long as it is in use."""

    def __init__(self, store: Store, snapshots: SnapshotFolder | None = None) -> None:
        self._store = store
        self._snapshots = snapshots
        self._live: WeakValueDictionary[str, LiveSession] = WeakValueDictionary()
        self._recent: OrderedDict[str, LiveSession] = OrderedDict()

    def get(self, session_id: str) -> LiveSession | None:
        """The session, if it is in memory."""
        return self._live.get(session_id)

    async def open(self, record: SessionRecord) -> LiveSession:
        """The session, read from the store if it is not in memory; raises `Damaged` where that cannot be read."""
        live = self._live.get(record.id)
        if live is None:
            kept = await self._store.session_state(record.id)
            with map_decode_errors(f"what session {record.id!r} keeps"):
                session = revive(record, kept)
            session.snapshots = None if self._snapshots is None else self._snapshots.for_session(record.id)
            seq = await self._store.last_seq(record.id)
            live = self._live.setdefault(record.id, LiveSession(session, self._store, seq))
        self._recent[record.id] = live
        self._recent.move_to_end(record.id)
        if len(self._recent) > _MOST:
            self._recent.popitem(last=False)
        return live

    async def to_delete(self, session_id: str) -> LiveSession:
        """The session, whose conversation is taken for empty where it cannot be read: it can go all the same.

        Raises `SessionNotFound`.
        """
        live = self.get(session_id)
        if live is not None:
            return live
        try:
            return await self.open(await self._store.get(session_id))
        except DamagedData as exc:
            _log.error("a session that cannot be read is to be deleted", error=str(exc))
        record = SessionRecord(id=session_id, workspace="/", created_at="")
        # nobody else gets it: whoever opens the session meets the damage
        return LiveSession(revive(record, SessionState()), self._store, await self._store.last_seq(session_id))

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._live.pop(session_id, None)
        self._recent.pop(session_id, None)
