"""A session in use: its conversation, the one writer of its log in this process, and the turn that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agenticx.runtime import EventType, RuntimeEvent, Session, Steering, StopSignal
from agenticx.sessions.base import JournalEntry, SessionRecord, SessionState, Store, StoredEvent, TurnRecord
from agenticx.sessions.keeping import Keeping
from agenticx.sessions.waiting import Waiting

__all__ = ["LiveSession", "RunningTurn", "to_its_end"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn from its claim until its generator is exhausted.

    `over` and `finished` once its terminal event is stored. `parked`, and `over` too, when it waits for a person while
    the program ends: nothing more of it may be stored, and it goes on after the next start. `title` is what a session
    without a name is called once the turn has begun.
    """

    turn: TurnRecord
    title: str | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    steering: Steering = field(default_factory=Steering)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    parked: bool = False
    task: asyncio.Task[None] | None = None

    async def begun(self) -> TurnRecord:
        """Wait for the turn's first stored event; whoever waits may leave without disturbing it."""
        return replace(self.turn, after_seq=await asyncio.shield(self.started))


class LiveSession:
    """One session; all its appends go through here, one at a time and each to its end.

    Whoever holds `door` decides alone what the session does next: what runs, and what `waiting` messages do. `storing`
    is held during each append: what its events are about is in doubt until then, and nobody else may settle that.
    """

    def __init__(self, session: Session, store: Store, seq: int) -> None:
        self.session = session
        self.running: RunningTurn | None = None
        self.waiting = Waiting()
        self.door = asyncio.Lock()
        self.storing = asyncio.Lock()
        self._store = store
        self._seq = seq
        self._doubtful = False
        self._keeping = Keeping(session)

    @property
    def current(self) -> RunningTurn | None:
        """The turn that runs."""
        return None if self.running is None or self.running.over else self.running

    @property
    def seq(self) -> int:
        """The number of the log's last event."""
        return self._seq

    async def append(
        self,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        journal: Sequence[JournalEntry] = (),
        findable: frozenset[str] | None = None,
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        """Store `events`, and with them what the session keeps. Not to be cancelled halfway: see `to_its_end`.

        `findable` names all messages that a search is to find from now on, where some are no longer told.
        """
        async with self.storing:
            if self._doubtful:  # nobody knows how the append before ended
                self._seq = await self._store.last_seq(self.session.id)
            parked = self.running is not None and self.running.parked  # what it does now, nobody will have heard of
            kept = None if parked else self._keeping.change(events)
            if findable is not None:
                kept = replace(kept or SessionState(keep_messages=len(self.session.messages)), searchable_ids=findable)
            taken = self.waiting.taken(turn_id, events, self._seq)
            self._doubtful = True
            self.waiting.doubt(events)
            stored = await self._store.append(
                self.session.id,
                turn_id,
                events,
                expected_seq=self._seq,
                state=kept,
                journal=[*journal, *self._questions(turn_id, events), *taken],
                record=record,
            )
            self._doubtful = False
            self._keeping.stored(kept)
            self.waiting.stored(events)
            self._seq = stored[-1].seq
            return stored

    async def reread(self) -> None:
        """Let the conversation be what is stored of it, after a write that failed: nobody else was told of more."""
        async with self.storing:
            self._keeping.back_to(await self._store.session_state(self.session.id))

    def _questions(self, turn_id: str | None, events: Sequence[RuntimeEvent]) -> Iterator[JournalEntry]:
        """Questions are put and closed in the very transaction that tells of them."""
        for event in events:
            if turn_id is None or event.type not in _QUESTIONS:
                continue
            yield JournalEntry(
                kind="asked" if event.type is EventType.CONFIRM_REQUIRED else "closed",
                key=event.data["id"],
                session_id=self.session.id,
                turn_id=turn_id,
                data={key: value for key, value in event.data.items() if key != "context"},
            )


_QUESTIONS = frozenset({EventType.CONFIRM_REQUIRED, EventType.CONFIRM_RESPONSE})


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; a cancellation waits until it is over and is raised then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
