"""A session in use: its conversation, its only log writer in this process, and its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agenticx.runtime import EventType, RuntimeEvent, Session, Steering, StopSignal
from agenticx.sessions.history.state import StateTracker
from agenticx.sessions.hub.message_queue import MessageQueue
from agenticx.sessions.store.base import JournalEntry, Store
from agenticx.sessions.store.records import SessionRecord, SessionState, StoredEvent, TurnRecord

__all__ = ["LiveSession", "RunningTurn", "run_to_completion"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn from its claim until its generator is exhausted.

    `closed`: no further event of its generator is stored, because the terminal event is stored, the turn is being
    aborted, or it is `suspended`. `suspended` is set when the turn waits for a confirmation while the program ends: it
    continues after the next start. `done_event` is set once the turn's end is stored, its claim released, its session
    deleted or its end left to `TurnRunner.end_later`; never for a suspended turn. `derived_name` becomes the name of a
    session without one once the turn has begun.
    """

    turn: TurnRecord
    derived_name: str | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    steering: Steering = field(default_factory=Steering)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    closed: bool = False
    done_event: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: bool = False
    task: asyncio.Task[None] | None = None

    async def wait_begun(self) -> TurnRecord:
        """Wait for the turn's first stored event and return the turn; cancelling the wait does not affect the turn."""
        return replace(self.turn, after_seq=await asyncio.shield(self.started))


class LiveSession:
    """A session in memory; all its appends are made here, one at a time and each to completion.

    The holder of `lock` alone decides what the session does next: which messages are queued, begin a turn or are handed
    back, and whether it is rewound or deleted. `append_lock` is held during each append: until the append is done, the
    state of the messages in its events is uncertain, and no other task may resolve it.
    """

    def __init__(self, session: Session, store: Store, seq: int) -> None:
        self.session = session
        self.latest_turn: RunningTurn | None = None
        self.queue = MessageQueue()
        self.lock = asyncio.Lock()
        self.append_lock = asyncio.Lock()
        self._store = store
        self._seq = seq
        self._seq_unknown = False
        self._state_tracker = StateTracker(session)

    @property
    def running_turn(self) -> RunningTurn | None:
        """The turn that runs, None if there is none."""
        return None if self.latest_turn is None or self.latest_turn.closed else self.latest_turn

    @property
    def seq(self) -> int:
        """The sequence number of the log's last event."""
        return self._seq

    async def append(
        self,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        journal: Sequence[JournalEntry] = (),
        searchable_ids: frozenset[str] | None = None,
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        """Store `events` and the change of the session's state; do not cancel it midway: see `run_to_completion`.

        `searchable_ids` holds the ids of all messages that a search finds from now on, where some are removed from the
        conversation.
        """
        async with self.append_lock:
            if self._seq_unknown:  # the previous append failed and may or may not have committed
                self._seq = await self._store.last_seq(self.session.id)
            suspended = self.latest_turn is not None and self.latest_turn.suspended  # its state stays as it was stored
            state_change = None if suspended else self._state_tracker.pending_change(events)
            if searchable_ids is not None:
                state_change = state_change or SessionState(keep_messages=len(self.session.messages))
                state_change = replace(state_change, searchable_ids=searchable_ids)
            outcome_entries = self.queue.taken_entries(turn_id, events, self._seq)
            self._seq_unknown = True
            self.queue.mark_unconfirmed(events)
            stored = await self._store.append(
                self.session.id,
                turn_id,
                events,
                expected_seq=self._seq,
                state=state_change,
                journal=[*journal, *self._confirm_entries(turn_id, events), *outcome_entries],
                record=record,
            )
            self._seq_unknown = False
            self._state_tracker.mark_stored(state_change)
            self.queue.mark_stored(events)
            self._seq = stored[-1].seq
            return stored

    async def reload(self) -> None:
        """Reset the conversation to what is stored, after a failed write: nothing newer was reported to any client."""
        async with self.append_lock:
            self._state_tracker.reset_to(await self._store.session_state(self.session.id))

    def _confirm_entries(self, turn_id: str | None, events: Sequence[RuntimeEvent]) -> Iterator[JournalEntry]:
        """Yield the journal entries that open and close questions, for the transaction that stores `events`."""
        for event in events:
            if turn_id is None or event.type not in _CONFIRM_EVENTS:
                continue
            yield JournalEntry(
                kind="asked" if event.type is EventType.CONFIRM_REQUIRED else "closed",
                key=event.data["id"],
                session_id=self.session.id,
                turn_id=turn_id,
                data={key: value for key, value in event.data.items() if key != "context"},
            )


_CONFIRM_EVENTS = frozenset({EventType.CONFIRM_REQUIRED, EventType.CONFIRM_RESPONSE})


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; a cancellation is raised once `work` is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
