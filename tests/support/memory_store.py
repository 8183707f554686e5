"""Changes of a store in memory that no worker makes: leases that end, and copies that lag behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from agenticx.sessions import MemoryStore
from agenticx.sessions.store.memory_sessions import Change, MemoryData

# pyright: reportPrivateUsage=false


def expire_lease(store: MemoryStore, session_id: str, *, only_idle: bool = False, noticed: bool = True) -> None:
    """End the lease of the session's owner, as a store does that has not heard from the owner for some time.

    With `only_idle` it ends only if the session has no running turn and no open fact. Unless it is `noticed`, the
    owner learns of it when it uses the lease the next time.
    """
    session = store._data.sessions.get(session_id)
    if session is not None and session.owner is not None and not (only_idle and session.has_work):
        if noticed:
            session.owner.lost.set()
        session.owner = None
        store._data.notify_of_work(session)


def empty_copy(store: MemoryStore) -> MemoryStore:
    """Return an empty store with the same log id, for readers; `apply` repeats the changes of the other one in it."""
    copy = MemoryStore(store._clock, blobs=store.blobs)
    copy._data.log_id = store.log_id
    return copy


def follow(store: MemoryStore, follower: Callable[[Change], None]) -> None:
    """Call `follower` with each change from now on; call this before a worker claims a session of the store."""
    if not isinstance(store._data, _FollowedData):
        store._data = _FollowedData(**{each.name: getattr(store._data, each.name) for each in fields(MemoryData)})
    store._data.followers.append(follower)


def apply(store: MemoryStore, change: Change) -> None:
    """Make a change of another store."""
    store._data.change(change)


@dataclass(slots=True)
class _FollowedData(MemoryData):
    followers: list[Callable[[Change], None]] = field(default_factory=list[Callable[[Change], None]])

    def change(self, change: Change) -> None:
        MemoryData.change(self, change)
        for follower in self.followers:
            follower(change)
