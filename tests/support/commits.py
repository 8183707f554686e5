"""Writes of a session without a hub: each claims the session and makes one commit."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.runtime import RuntimeEvent
from agenticx.sessions import (
    Commit,
    Fact,
    OutcomeUnknown,
    SessionRecord,
    StateChange,
    Store,
    StoredEvent,
    TurnRecord,
)
from agenticx.sessions.log.commits import LoadedSession

__all__ = ["add_fact", "append", "delete", "load", "must_sync", "update"]


def must_sync(events: Sequence[RuntimeEvent]) -> bool:
    """Return whether a commit of `events` alone must be synced before it returns."""
    return any(event.synced for event in events)


async def append(
    store: Store,
    session_id: str,
    turn_id: str | None,
    events: Sequence[RuntimeEvent],
    *,
    begins: TurnRecord | None = None,
    state: StateChange | None = None,
    facts: Sequence[Fact] = (),
    record: SessionRecord | None = None,
) -> Sequence[StoredEvent]:
    """Commit `events` and return them as they are stored."""
    lease = await store.ownership.claim(session_id)
    sync = bool(facts) or record is not None or must_sync(events)
    write = Commit(turn_id=turn_id, events=events, begins=begins, state=state, facts=facts, record=record, sync=sync)
    try:
        return await lease.commit(write)
    except OutcomeUnknown:
        return await lease.commit(write)


async def add_fact(store: Store, session_id: str, fact: Fact) -> None:
    """Commit a fact."""
    await append(store, session_id, None, [], facts=[fact])


async def update(store: Store, record: SessionRecord) -> None:
    """Replace the record of a session."""
    await append(store, record.id, None, [], record=record)


async def delete(store: Store, session_id: str) -> None:
    """Delete a session."""
    await store.delete(await store.ownership.claim(session_id))


async def load(store: Store, session_id: str) -> LoadedSession:
    """Return what an actor of the session starts from."""
    return await (await store.ownership.claim(session_id)).load()
