"""The turns below the turns of a session, each committed under its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from agenticx.errors import StoreError
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import ToolCall
from agenticx.runtime import RuntimeEvent
from agenticx.runtime.resume import ChildTurnResumer
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.runtime.turns.child_turns import ChildTurn, ChildTurnWriter
from agenticx.sessions.hub.recovery import read_interrupted
from agenticx.sessions.hub.writer import SessionWriter, run_to_completion
from agenticx.sessions.store.base import Log, OwnershipLost
from agenticx.sessions.store.hosts import this_host
from agenticx.sessions.store.records import Fact, FactKind, Loaded, StoredEvent, TurnRecord

__all__ = ["ChildTurnRecords", "FactJournal", "SessionChildTurns"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FactJournal:
    """The `CallJournal` of one turn, kept as facts."""

    turn_id: str
    store_fact: Callable[[Fact], Awaitable[None]]

    async def record_call(self, call: ToolCall) -> None:
        await self._write("call_began", call.id, {"call_id": call.id, "name": call.name, "arguments": call.arguments})

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        data = {"call_id": call.id, "host": this_host(), **process}
        await self._write("process_started", f"{call.id}/{process['pid']}", data)

    async def _write(self, kind: FactKind, key: str, data: Mapping[str, Any]) -> None:
        turn_id = self.turn_id
        await self.store_fact(Fact(kind=kind, key=f"{turn_id}/{key}", turn_id=turn_id, data=data))


class ChildTurnRecords(Protocol):
    """The records that are stored with the events of turns, such as that the run of a sub-agent has ended."""

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], /) -> Sequence[Fact]:
        """Return the facts to store with these events of the turn."""
        ...

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        """Take those facts as stored."""
        ...

    async def on_ended(self, turn_id: str, /) -> None:
        """Go on after the end of a turn that did not emit it itself."""
        ...


class NoRecords:
    """No records."""

    def facts(self, turn_id: str, events: Sequence[RuntimeEvent], /) -> Sequence[Fact]:
        return ()

    def on_stored(self, turn_id: str, facts: Sequence[Fact], /) -> None:
        return None

    async def on_ended(self, turn_id: str, /) -> None:
        return None


class SessionChildTurns:
    """The `ChildTurns` of one session. Once it is `closed`, no event is stored through it any more.

    `unended` holds the ids of turns whose end could not be stored; `records` are stored with the events. `resumer` goes
    on with the turns of an earlier process that outlive their parents and wait for a person; without it they are ended.
    """

    is_durable = True
    records: ChildTurnRecords = NoRecords()

    def __init__(self, session_id: str, writer: SessionWriter, log: Log) -> None:
        self.closed = False
        self._session_id = session_id
        self._writer = writer
        self._log = log
        self._open: dict[str, _StoredChildTurn] = {}
        self.unended = set[str]()
        self.resumer: ChildTurnResumer | None = None
        self._lock = asyncio.Lock()
        self._all_released = asyncio.Event()
        self._all_released.set()

    @property
    def is_open(self) -> bool:
        """True if a turn runs here."""
        return bool(self._open)

    @property
    def has_work(self) -> bool:
        """True if a turn runs here, or its end is not stored."""
        return bool(self._open or self.unended)

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        session_id, parent_id = self._session_id, child.parent_id
        turn = TurnRecord(id=child.id, session_id=session_id, input=child.input, parent_turn_id=parent_id)
        self._all_released.clear()
        opened = self._open[child.id] = _StoredChildTurn(self, self._writer, child, turn)
        return opened

    def stop(self) -> None:
        """Stop all turns."""
        for opened in list(self._open.values()):
            opened.child.stop()

    async def wait_until_released(self, seconds: float) -> None:
        """Wait, at most so long, until no turn runs."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_released.wait(), seconds)

    def close_attached(self) -> None:
        """Store no more events of the turns that do not outlive the turn above them, which is being aborted."""
        for opened in self._open.values():
            opened.closed = opened.closed or not opened.child.outlives_parent

    async def end(self, code: str, text: str, *, only: str | None = None) -> None:
        """Append an end to the open turns that do not run here, the last begun first, or to one of them."""
        async with self._lock:  # none is ended twice
            loaded = await self._writer.read()
            for turn in reversed(loaded.children):
                opened = self._open.get(turn.id)
                if (opened is None or opened.closed) and only in (None, turn.id):
                    await self._append_end(loaded, turn, code, text)

    def end_later(self, loaded: Loaded) -> None:
        """Have the loaded turns ended before the session's next turn begins, as they cannot be ended now."""
        self.unended.update(turn.id for turn in loaded.children)

    async def end_unended(self) -> None:
        """Store the ends that could not be stored before; raises `StoreError` if that fails again."""
        await self.end("storage", "The session's log could not be written.")
        self.unended.clear()

    async def _append_end(self, loaded: Loaded, turn: TurnRecord, code: str, text: str) -> None:
        with bound_ids(turn=turn.id):
            interrupted = await read_interrupted(self._log, turn, loaded)
            events = interrupted.closing_events(interrupted.missing_messages([]), code, text)
            await self.commit(turn.id, events)
            if code == "interrupted":
                log_interrupted_turn(events, interrupted.questions, rounds=interrupted.round, usage=interrupted.usage)
        await self.records.on_ended(turn.id)

    async def commit(
        self, turn_id: str, events: Sequence[RuntimeEvent], begins: TurnRecord | None = None
    ) -> Sequence[StoredEvent]:
        """Store events of a turn, and the records that belong to them."""
        facts = self.records.facts(turn_id, events)
        on_stored = partial(self.records.on_stored, turn_id, facts) if facts else None
        return await self._writer.commit(
            turn_id, events, begins=begins, facts=facts, keeps_state=True, on_stored=on_stored
        )

    async def release(self, turn: TurnRecord, *, ended: bool, code: str) -> None:
        """Give up a turn that emits no more events, and store an end of it unless it has one."""
        self._open.pop(turn.id, None)
        try:
            if not (ended or self.closed):
                await self.end(code, "The turn ended without a terminal event.", only=turn.id)
        except OwnershipLost:
            pass
        except StoreError as exc:
            _log.error("end of a turn below another one could not be stored", turn=turn.id, error=str(exc))
            self.unended.add(turn.id)
        finally:
            if not self._open:
                self._all_released.set()


@dataclass(slots=True, eq=False)
class _StoredChildTurn:
    """The writer of a turn; it has `begun` once an event of it is stored, and `ended` once its last one is."""

    turns: SessionChildTurns
    writer: SessionWriter
    child: ChildTurn
    turn: TurnRecord
    begun: bool = False
    ended: bool = False
    closed: bool = False
    failed: bool = False
    journal: FactJournal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = FactJournal(self.turn.id, self._store_fact)

    async def write(self, events: Sequence[RuntimeEvent], /) -> None:
        self._check_open()
        begins = None if self.begun else self.turn
        try:
            stored = await self.turns.commit(self.turn.id, events, begins)
        except StoreError:
            self.failed = True
            raise
        self.begun, self.ended = True, stored[-1].terminal

    async def close(self) -> None:
        code = "storage" if self.failed else "internal"
        ended = self.ended or not (self.begun or self.failed)
        await run_to_completion(self.turns.release(self.turn, ended=ended, code=code))

    async def _store_fact(self, fact: Fact) -> None:
        self._check_open()
        await self.writer.commit(fact.turn_id, facts=[fact])

    def _check_open(self) -> None:
        if self.closed or self.turns.closed:
            raise StoreError(f"turn {self.turn.id!r} is closed: the session is, or the turn above it was aborted")
