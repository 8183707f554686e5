"""The child turns of a session, each committed under its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agenticx.errors import StoreError
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import ToolCall
from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.runtime.child_turns import ChildTurn, ChildTurnWriter, TurnSuspended
from agenticx.runtime.events import ASKING_EVENTS
from agenticx.runtime.resume import ChildTurnResumer
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.sessions.hub.live_turns import NOT_STORED, DueEnd, LiveTurn, LiveTurns
from agenticx.sessions.hub.recovery import read_interrupted
from agenticx.sessions.hub.writer import SessionWriter, delivered_facts, run_to_completion
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.log.records import CallBegan, ChildTurnSaved, Fact, ProcessStarted
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.log.tool_state import ENCODING_ERRORS, encode_tool_state
from agenticx.sessions.store.base import Log, OwnershipLost, TurnEnded
from agenticx.sessions.store.hosts import this_host

__all__ = ["ChildTurnRecords", "FactJournal", "SessionChildTurns"]

_NOT_RESUMED = DueEnd("interrupted", "The turn above it did not go on with it after the restart.")
_NO_TERMINAL_EVENT = "The turn ended without a terminal event."

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
    """The records that are stored with a turn's events, for example that the run of a sub-agent has ended."""

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], round_: int, /) -> Sequence[Fact]:
        """Return the facts to store with these events of the turn, which is in that round after them."""
        ...

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        """Mark these facts as stored."""
        ...

    async def on_ended(self, turn_id: str, /) -> None:
        """Continue after the end of a turn that did not emit its end itself."""
        ...


class SessionChildTurns:
    """The `ChildTurns` of one session; they are among the `live` turns.

    `records` are stored with the events. `resumer` continues the detached turns of an earlier process that wait for a
    person.
    """

    is_durable = True
    records: ChildTurnRecords
    resumer: ChildTurnResumer

    def __init__(self, session: Session, writer: SessionWriter, log: Log, live: LiveTurns) -> None:
        self.session = session
        self.live = live
        self._writer = writer
        self._log = log
        self._ending = asyncio.Lock()
        self._all_released = asyncio.Event()
        self._all_released.set()

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        live, turn = self.live, self.live.by_id.get(child.id)
        if turn is None:
            parent_id = child.parent_id
            record = TurnRecord(id=child.id, session_id=self.session.id, input=child.input, parent_turn_id=parent_id)
            turn = LiveTurn(record=record, tree=live.tree)
            live.add(turn)
        turn.child, turn.detached = child, child.detached
        self._all_released.clear()
        parent = live.by_id.get(child.parent_id)
        if turn.stays_suspended or (parent is not None and parent.stays_suspended):
            live.suspend(turn)
        elif child.resumed is not None:
            turn.resume()
        return _ChildTurnWriter(self, turn)

    def stop(self) -> None:
        """Stop all turns."""
        for turn in self.live.children:
            if turn.child is not None:
                turn.child.stop()

    async def wait_until_released(self, seconds: float) -> None:
        """Wait, at most so long, until no turn runs."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_released.wait(), seconds)

    # --- turns of an earlier process ----------------------------------------------------------------------------------

    def awaits_resume(self, turn_id: str) -> bool:
        """Return whether that turn of an earlier process can be begun again."""
        turn = self.live.by_id.get(turn_id)
        return turn is not None and turn.awaits_resume

    async def end_suspended(self, turn_id: str, code: str, text: str) -> None:
        """End a turn of an earlier process that cannot be begun again, and its child turns."""
        self.live.fail(self.live.by_id[turn_id], DueEnd(code, text))
        await self.end_due()

    async def end_not_resumed(self, turn_id: str) -> None:
        """End the child turns of an earlier process that their parent has not begun again before its own end."""
        children = [turn for turn in self.live.attached_to(turn_id) if turn.awaits_resume]
        for turn in children:
            self.live.fail(turn, _NOT_RESUMED)
        if children:
            await self.end_due()

    # --- ends ---------------------------------------------------------------------------------------------------------

    @property
    def has_due_end(self) -> bool:
        """True if an end is to be stored."""
        return any(turn.due_end is not None for turn in self.live.children)

    async def end_due(self) -> None:
        """Store the due ends, the end of the newest turn first; raises `StoreError`.

        A turn whose end cannot be stored ends with the code `storage` at the next call.
        """
        if not self.has_due_end:
            return
        async with self._ending:  # none is ended twice
            try:
                loaded = await self._writer.read()
                stored = {record.id for record in loaded.child_turns}
                for turn in self.live.children:
                    if turn.due_end is not None and turn.child is None and turn.id not in stored:
                        self.live.remove(turn)  # nothing of it was stored
                for record in reversed(loaded.child_turns):
                    turn = self.live.by_id.get(record.id)
                    if turn is not None and turn.due_end is not None:
                        await self._append_end(loaded, record, turn, turn.due_end)
            except StoreError:
                for turn in self.live.children:
                    turn.due_end = turn.due_end and NOT_STORED
                raise

    async def _append_end(self, loaded: LoadedSession, record: TurnRecord, turn: LiveTurn, end: DueEnd) -> None:
        with bound_ids(turn=turn.id):
            interrupted = await read_interrupted(self._log, record, loaded)
            events = interrupted.closing_events(interrupted.missing_messages([]), *end)
            facts = [ChildTurnSaved(key=turn.id, turn_id=turn.id)] if interrupted.turn.requests else []
            try:
                await self.commit(turn.id, events, facts, round_=interrupted.turn.round)
            except TurnEnded as exc:
                self.live.remove(turn)
                return _log.error("a turn was to be ended that has an end", error=str(exc))
            if end.code == "interrupted":
                ended = interrupted.turn
                log_interrupted_turn(events, ended.requests, rounds=ended.round, usage=ended.usage)
        await self.records.on_ended(turn.id)

    async def commit(
        self,
        turn_id: str,
        events: Sequence[RuntimeEvent],
        facts: Sequence[Fact] = (),
        begins: TurnRecord | None = None,
        *,
        round_: int,
    ) -> None:
        """Store events and facts of a turn, and the records that belong to them."""
        records = self.records.facts(turn_id, events, round_)
        on_stored = partial(self.records.on_stored, turn_id, records) if records else None
        await self._writer.commit(
            turn_id, events, begins=begins, facts=(*facts, *records), keeps_state=True, on_stored=on_stored
        )

    async def store_journal(self, turn: LiveTurn, fact: Fact) -> None:
        """Store a fact of a turn's calls."""
        self.check_open(turn)
        if isinstance(fact, CallBegan):
            turn.running_calls.add(fact.call_id)
        await self._writer.commit(fact.turn_id, facts=[fact])

    def check_open(self, turn: LiveTurn) -> None:
        """Raise `TurnSuspended` or `StoreError` if no events of the turn are stored any more."""
        if turn.status == "suspended":
            raise TurnSuspended(f"turn {turn.id!r} waits for a person, and goes on after the next start")
        if turn.is_over or self.live.abandoned:
            raise StoreError(f"turn {turn.id!r} is closed: the session is, or the turn above it was aborted")

    async def release(self, turn: LiveTurn) -> None:
        """Release a turn that emits no more events, and store an end for it unless it has one."""
        turn.child = None
        try:
            if turn.status == "queued" and turn.due_end is None:
                self.live.remove(turn)
            elif turn.status not in ("suspended", "ended") and not self.live.abandoned:
                turn.due_end = turn.due_end or DueEnd("internal", _NO_TERMINAL_EVENT)
                await self.end_due()
        except OwnershipLost:
            pass
        except StoreError as exc:
            _log.error("end of a child turn could not be stored", turn=turn.id, error=str(exc))
        finally:
            self.session.return_notices(turn.id)
            if not any(other.child is not None for other in self.live.children):
                self._all_released.set()


@dataclass(frozen=True, slots=True)
class _ChildTurnWriter:
    """The writer of a child turn that runs here."""

    turns: SessionChildTurns
    turn: LiveTurn

    @property
    def journal(self) -> FactJournal:
        return FactJournal(self.turn.id, partial(self.turns.store_journal, self.turn))

    async def write(self, events: Sequence[RuntimeEvent], /) -> None:
        turns, turn = self.turns, self.turn
        if events[-1].terminal:
            await turns.end_not_resumed(turn.id)
        turns.check_open(turn)
        begins = turn.record if turn.status == "queued" else None
        facts = [*self._saved_facts(events), *delivered_facts(turns.session, turn.id)]
        rounds = [event.data["round"] for event in events if event.type is EventType.ROUND_START]
        try:
            await turns.commit(turn.id, events, facts, begins, round_=rounds[-1] if rounds else turn.logged.round)
        except (StoreError, asyncio.CancelledError):  # the events may be stored
            if not turn.is_over:
                turn.due_end = DueEnd("storage", _NO_TERMINAL_EVENT)
            raise

    def _saved_facts(self, events: Sequence[RuntimeEvent]) -> Sequence[Fact]:
        """Return the fact from which a turn that asks the user is resumed; at the end of the turn it is emptied."""
        turn, child = self.turn, self.turn.child
        has_asked = any(event.type in ASKING_EVENTS for event in events)
        if events[-1].terminal:
            return [ChildTurnSaved(key=turn.id, turn_id=turn.id)] if has_asked or turn.logged.requests else []
        if not has_asked or child is None:
            return []
        try:
            state = encode_tool_state(child.session.state)  # its files are the session's
        except ENCODING_ERRORS as exc:
            _log.warning("a turn cannot go on after a restart: its tool state is not JSON", error=str(exc))
            return []
        saved = ChildTurnSaved(
            key=turn.id,
            turn_id=turn.id,
            messages=tuple(child.session.messages),
            state=state,
            agent_path=tuple(child.agent_path),
            detached=child.detached,
        )
        return [saved]

    async def close(self) -> None:
        await run_to_completion(self.turns.release(self.turn))
