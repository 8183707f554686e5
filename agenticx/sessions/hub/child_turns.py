"""The child turns of a session, each committed under its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from agenticx.errors import StoreError
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import ToolCall
from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.runtime.events import ASKING_EVENTS, QUESTION_EVENTS, Event
from agenticx.runtime.resume import ChildTurnResumer, ResumedTurn
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.runtime.turns.child_turns import ChildTurn, ChildTurnWriter, TurnSuspended
from agenticx.sessions.hub.recovery import read_interrupted
from agenticx.sessions.hub.state import ENCODING_ERRORS, conversation_data
from agenticx.sessions.hub.turns.waiting_turns import WaitingTurns
from agenticx.sessions.hub.writer import SessionWriter, delivered_facts, run_to_completion
from agenticx.sessions.store.base import Log, OwnershipLost, TurnEnded
from agenticx.sessions.store.entries import CallBegan, Fact, ProcessStarted, StoredEvent, TurnWaiting
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.records import Loaded, TurnRecord
from agenticx.sessions.turn_tree import LoggedTurn

__all__ = ["ChildTurnRecords", "FactJournal", "SessionChildTurns"]

_FOLLOWED_EVENTS = QUESTION_EVENTS | {EventType.ROUND_START}

NOT_RESUMED = "The turn above it did not go on with it after the restart."

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FactJournal:
    """The `CallJournal` of one turn, kept as facts."""

    turn_id: str
    store_fact: Callable[[Fact], Awaitable[None]]

    async def record_call(self, call: ToolCall) -> None:
        key, turn_id = f"{self.turn_id}/{call.id}", self.turn_id
        fact = CallBegan(key=key, turn_id=turn_id, call_id=call.id, name=call.name, arguments=call.arguments)
        await self.store_fact(fact)

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        key, turn_id = f"{self.turn_id}/{call.id}/{process['pid']}", self.turn_id
        await self.store_fact(ProcessStarted(key=key, turn_id=turn_id, call_id=call.id, host=this_host(), **process))


class ChildTurnRecords(Protocol):
    """The records that are stored with the events of turns, such as that the run of a sub-agent has ended."""

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], round_: int, /) -> Sequence[Fact]:
        """Return the facts to store with these events of the turn, which is in that round after them."""
        ...

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        """Take those facts as stored."""
        ...

    async def on_ended(self, turn_id: str, /) -> None:
        """Go on after the end of a turn that did not emit it itself."""
        ...


class NoRecords:
    """No records."""

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], round_: int, /) -> Sequence[Fact]:
        return ()

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        return None

    async def on_ended(self, turn_id: str, /) -> None:
        return None


class SessionChildTurns:
    """The `ChildTurns` of one session. Once it is `closed`, no event is stored through it any more.

    `unended` holds the ids of turns whose end could not be stored; `records` are stored with the events. `resumer` goes
    on with the turns of an earlier process that outlive their parents and wait for a person; without it they are ended.
    `waiting` are those that are to go on and are not begun again yet.
    """

    is_durable = True
    records: ChildTurnRecords = NoRecords()

    def __init__(self, session: Session, writer: SessionWriter, log: Log) -> None:
        self.closed = False
        self.session = session
        self._writer = writer
        self._log = log
        self._open: dict[str, _StoredChildTurn] = {}
        self._begun_here = set[str]()
        self.unended = set[str]()
        self.resumer: ChildTurnResumer | None = None
        self.waiting = WaitingTurns()
        self._suspended = set[str]()
        self._lock = asyncio.Lock()
        self._all_released = asyncio.Event()
        self._all_released.set()

    @property
    def is_open(self) -> bool:
        """True if a turn runs here."""
        return bool(self._open)

    @property
    def has_work(self) -> bool:
        """True if a turn runs here, goes on later, or has an end that is not stored."""
        return bool(self._open or self.unended or self.waiting.by_id or self._suspended)

    @property
    def has_attached(self) -> bool:
        """True if a turn runs here that does not outlive the one above it."""
        return any(not opened.child.detached for opened in self._open.values())

    def runs(self, turn_id: str) -> bool:
        """Return whether that turn runs here; False if it goes on later."""
        return turn_id in self._open and turn_id not in self._suspended

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        parent_id = child.parent_id
        turn = TurnRecord(id=child.id, session_id=self.session.id, input=child.input, parent_turn_id=parent_id)
        self._all_released.clear()
        self.waiting.by_id.pop(child.id, None)
        self._begun_here.add(child.id)
        self._open[child.id] = opened = _StoredChildTurn(self, self._writer, child, turn)
        if child.id in self._suspended or parent_id in self._suspended:
            opened.suspend()
        return opened

    def stop(self) -> None:
        """Stop all turns."""
        for opened in list(self._open.values()):
            opened.child.stop()

    async def wait_until_released(self, seconds: float) -> None:
        """Wait, at most so long, until no turn runs."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_released.wait(), seconds)

    def close_below(self, turn_id: str) -> None:
        """Store no more events of the child turns of one that is being aborted, but for detached ones."""
        for opened in self._attached_to(turn_id):
            opened.closed = True
            self.close_below(opened.child.id)
        self.waiting.forget(self.waiting.below(turn_id))

    # --- turns of an earlier process ----------------------------------------------------------------------------------

    def resume(self, resumed: ResumedTurn) -> None:
        """Have the owner of a turn that outlives its parent go on with it; if that is impossible, it is to be ended."""
        if self.resumer is None or not self.resumer.resume(resumed):
            self.waiting.forget([resumed.turn_id])

    async def end_waiting(self, turn_id: str, code: str, text: str) -> None:
        """End a turn of an earlier process, and those below it, which cannot be begun again."""
        await self.end(code, text, only=self.waiting.forget([turn_id]))

    async def end_waiting_below(self, turn_id: str) -> None:
        """End the turns of an earlier process below one that ends now, which has not begun them again."""
        if below := self.waiting.below(turn_id):
            await self.end("interrupted", NOT_RESUMED, only=self.waiting.forget(below))

    def suspend_all(self, resumed: Sequence[ResumedTurn]) -> None:
        """Leave turns, and those below them, without an end: another process, or a later call, goes on with them."""
        for one in resumed:
            self._suspended.add(one.turn_id)
            self.suspend_all(one.point.children)

    @property
    def has_suspended(self) -> bool:
        """True if a turn goes on later, and not here or not yet."""
        return bool(self._suspended)

    def resume_all(self) -> None:
        """Go on with the turns that were left."""
        self._suspended.clear()

    # --- the end of the program ---------------------------------------------------------------------------------------

    def waits(self, turn_id: str, *, by_itself: bool) -> bool:
        """Return whether a turn with work waits for a person: `by_itself`, or in all its child turns."""
        below = self._attached_to(turn_id)
        has_any = bool(below or self.waiting.below(turn_id))  # the latter are those that are not begun again yet
        return (by_itself or has_any) and all(self._waits(opened) for opened in below)

    def _waits(self, opened: _StoredChildTurn) -> bool:
        if opened.child.has_work:
            return self.waits(opened.child.id, by_itself=bool(opened.logged.open_questions))
        return bool(opened.logged.open_questions) and not opened.running_calls

    def _attached_to(self, turn_id: str) -> Sequence[_StoredChildTurn]:
        children = [opened for opened in self._open.values() if opened.child.parent_id == turn_id]
        return [opened for opened in children if not opened.child.detached]

    def suspend_detached(self) -> None:
        """Suspend the turns that outlive their parents and wait for a person."""
        if self.resumer is None:
            return
        waiting = [one.child.id for one in self._open.values() if one.child.detached and self._waits(one)]
        for turn_id in (*waiting, *self.waiting.detached):
            self.suspend(turn_id)

    def suspend(self, turn_id: str) -> None:
        """Store nothing more of a turn and those below it: they go on after the next start."""
        self._suspended.add(turn_id)
        if (opened := self._open.get(turn_id)) is not None:
            opened.suspend()
        for below in (*(opened.child.id for opened in self._attached_to(turn_id)), *self.waiting.below(turn_id)):
            self.suspend(below)

    # --- ends ---------------------------------------------------------------------------------------------------------

    async def end(self, code: str, text: str, *, only: Collection[str] | None = None) -> None:
        """Append an end to the open turns that do not run here and are not to go on, the last begun first.

        With `only` the others are left out.
        """
        async with self._lock:  # none is ended twice
            # a turn that was resumed here ends itself, perhaps between this read and its check below; only for what was
            # over before the read, or never began here, an end that the read does not show will not come
            lost = {*self.unended, *(id_ for id_, opened in self._open.items() if opened.closed), *(only or ())}
            loaded = await self._writer.read()
            for turn in reversed(loaded.children):
                opened, is_left = self._open.get(turn.id), turn.id in self._suspended or turn.id in self.waiting.by_id
                is_over = (opened is None or opened.closed) and (turn.id in lost or turn.id not in self._begun_here)
                if is_over and not is_left and (only is None or turn.id in only):
                    await self._append_end(loaded, turn, code, text)

    def end_later(self, loaded: Loaded) -> None:
        """Have the loaded turns ended before the session's next turn begins, as they cannot be ended now."""
        self.unended.update({turn.id for turn in loaded.children} - self._begun_here - self.waiting.by_id.keys())

    async def end_unended(self) -> None:
        """Store the ends that could not be stored before; raises `StoreError` if that fails again."""
        unended = frozenset(self.unended)
        await self.end("storage", "The session's log could not be written.")
        self.unended -= unended

    async def _append_end(self, loaded: Loaded, turn: TurnRecord, code: str, text: str) -> None:
        with bound_ids(turn=turn.id):
            interrupted = await read_interrupted(self._log, turn, loaded)
            events = interrupted.closing_events(interrupted.missing_messages([]), code, text)
            facts = [TurnWaiting(key=turn.id, turn_id=turn.id)] if interrupted.turn.questions else []
            try:
                await self.commit(turn.id, events, facts, round_=interrupted.turn.round)
            except TurnEnded as exc:
                return _log.error("a turn was to be ended that has an end", error=str(exc))
            if code == "interrupted":
                ended = interrupted.turn
                log_interrupted_turn(events, ended.questions, rounds=ended.round, usage=ended.usage)
        await self.records.on_ended(turn.id)

    async def commit(
        self,
        turn_id: str,
        events: Sequence[RuntimeEvent],
        facts: Sequence[Fact] = (),
        begins: TurnRecord | None = None,
        *,
        round_: int,
    ) -> Sequence[StoredEvent]:
        """Store events and facts of a turn, and the records that belong to them."""
        records = self.records.facts(turn_id, events, round_)
        on_stored = partial(self.records.on_stored, turn_id, records) if records else None
        return await self._writer.commit(
            turn_id, events, begins=begins, facts=(*facts, *records), keeps_state=True, on_stored=on_stored
        )

    async def release(self, turn: TurnRecord, *, ended: bool, code: str) -> None:
        """Give up a turn that emits no more events, and store an end of it unless it has one."""
        self._open.pop(turn.id, None)
        try:
            if not (ended or self.closed):
                await self.end(code, "The turn ended without a terminal event.", only={turn.id})
        except OwnershipLost:
            pass
        except StoreError as exc:
            _log.error("end of a child turn could not be stored", turn=turn.id, error=str(exc))
            self.unended.add(turn.id)
        finally:
            self.session.return_notices(turn.id)
            if not self._open:
                self._all_released.set()


@dataclass(slots=True, eq=False)
class _StoredChildTurn:
    """The writer of a turn; it has `begun` once an event of it is stored, and `ended` once its last one is.

    `logged` has its questions and its round, `running_calls` are its calls without a result that have begun. Once it is
    `suspended`, nothing more is stored of it.
    """

    turns: SessionChildTurns
    writer: SessionWriter
    child: ChildTurn
    turn: TurnRecord
    begun: bool = False
    ended: bool = False
    closed: bool = False
    failed: bool = False
    suspended: bool = False
    running_calls: set[str] = field(default_factory=set[str])
    logged: LoggedTurn = field(init=False)
    journal: FactJournal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = FactJournal(self.turn.id, self._store_fact)
        self.logged = LoggedTurn(self.turn.id)
        if (resumed := self.child.resumed) is not None:
            self.begun = True
            self._follow(resumed.events)

    def suspend(self) -> None:
        """Store nothing more of the turn."""
        self.suspended = True
        self.child.suspend()

    async def write(self, events: Sequence[RuntimeEvent], /) -> None:
        begins = None if self.begun else self.turn
        if self.turns.waiting.by_id and events[-1].terminal:
            await self.turns.end_waiting_below(self.turn.id)
        self._check_open()
        try:
            facts = [*self._facts(events), *delivered_facts(self.turns.session, self.turn.id)]
            stored = await self.turns.commit(self.turn.id, events, facts, begins, round_=self.logged.round)
        except StoreError:
            self.failed = True
            raise
        self.begun, self.ended = True, stored[-1].terminal

    def _facts(self, events: Sequence[RuntimeEvent]) -> Sequence[Fact]:
        """Return the fact with which a turn that asks the user goes on after a restart; it is emptied at the end."""
        self._follow(events)
        if self.logged.questions and events[-1].terminal:
            return [TurnWaiting(key=self.turn.id, turn_id=self.turn.id)]
        return self._waiting_facts() if any(event.type in ASKING_EVENTS for event in events) else []

    def _follow(self, events: Iterable[RuntimeEvent]) -> None:
        for event in events:
            if event.type in _FOLLOWED_EVENTS:
                self.logged.apply(cast("Event", event))
            if event.type is EventType.TOOL_RESULT:
                self.running_calls.discard(event.data["tool_call_id"])

    def _waiting_facts(self) -> Sequence[Fact]:
        child = self.child
        try:
            conversation = conversation_data(child.session)
        except ENCODING_ERRORS as exc:
            _log.warning("a turn cannot go on after a restart: its tool state is not JSON", error=str(exc))
            return []
        waiting = TurnWaiting(
            key=self.turn.id,
            turn_id=self.turn.id,
            conversation=conversation,
            agent_path=tuple(child.agent_path),
            detached=child.detached,
        )
        return [waiting]

    async def close(self) -> None:
        code = "storage" if self.failed else "internal"
        ended = self.ended or self.suspended or not (self.begun or self.failed)
        await run_to_completion(self.turns.release(self.turn, ended=ended, code=code))

    async def _store_fact(self, fact: Fact) -> None:
        self._check_open()
        if isinstance(fact, CallBegan):
            self.running_calls.add(fact.call_id)
        await self.writer.commit(fact.turn_id, facts=[fact])

    def _check_open(self) -> None:
        if self.suspended:
            raise TurnSuspended(f"turn {self.turn.id!r} waits for a person, and goes on after the next start")
        if self.closed or self.turns.closed:
            raise StoreError(f"turn {self.turn.id!r} is closed: the session is, or the turn above it was aborted")
