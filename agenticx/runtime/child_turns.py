"""The child turns of a turn: the running ones, and where the events of all are written.

Code that runs inside a turn, such as a tool, runs another agent's turn as its child:

    context = TurnContext(parent=current_turn())
    result = await AgentRuntime(model).run("Read the log", agent_id="reader", context=context)

1. A child turn has its own id, on each of its events (`RuntimeEvent.turn_id`); its `turn_started` names its parent
   (`parent_turn_id`). Its generator yields only its own events. The generator of the root turn also yields the events
   of all its child turns, at any depth, each turn's in order, all before its own terminal event; a hub stores them in
   the session of the root turn.
2. A stop of a turn stops its child turns at the same moment. A child turn that still runs when its parent ends is
   stopped before the parent's terminal event, but a `detached` one continues in a hub, where events are stored.
3. A child turn asks its parent's confirm gate, and never acts in a mode that permits more.
4. In a hub, a child turn that waits for a person resumes after a restart if it is detached, or if its parent runs again
   as the `work` of its session or of the application. When an agent of the same name begins it again, it has its
   earlier id, conversation and events, and the request is asked once. Options do not resume (`options`).
5. `final.usage` of a turn covers its own model calls; child turns have `usage` events of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agenticx.errors import AgenticXError
from agenticx.runtime.channel import Channel
from agenticx.runtime.events import Event
from agenticx.runtime.resume import CallJournal, NullCallJournal, ResumedTurn
from agenticx.runtime.session import Session

if TYPE_CHECKING:
    from agenticx.runtime.turn import Turn

__all__ = ["ChannelChildTurns", "ChildTurn", "ChildTurnWriter", "ChildTurns", "RunningChildren", "TurnSuspended"]

_ENDING_SECONDS = 1.0  # for stopped child turns to write their last events; a stop takes 0.2 s


class TurnSuspended(AgenticXError):
    """Raised where a turn waits for a person and the program ends: the turn is suspended, and resumes later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTurn:
    """A turn that is about to begin as a child of the turn `parent_id`; `stop` requests its end.

    `suspend` is called once no more events are written, because it resumes after the program's next start. `session` is
    its conversation, and `agent_path` has the agents from the root turn to this one. The events of `resumed` are
    written already. A turn that `has_work` calls no model itself.
    """

    id: str
    parent_id: str
    agent_id: str
    input: str
    detached: bool
    stop: Callable[[], None]
    suspend: Callable[[], None]
    session: Session
    agent_path: Sequence[str]
    resumed: ResumedTurn | None = None
    has_work: bool = False


class ChildTurnWriter(Protocol):
    """The writer of one turn's events."""

    @property
    def journal(self) -> CallJournal:
        """The record of the turn's calls."""
        ...

    async def write(self, events: Sequence[Event], /) -> None:
        """Write events, in order; an exception ends the turn."""
        ...

    async def close(self) -> None:
        """Release the turn, which emits no more events; write its ending if it has none."""
        ...


class ChildTurns(Protocol):
    """The place where the events of a turn's child turns, at any depth, are written."""

    @property
    def is_durable(self) -> bool:
        """True if turns can outlive their parent here."""
        ...

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        """Return the writer of a child turn; nothing is written before its first events."""
        ...


class RunningChildren:
    """The running child turns of a turn.

    `waiting` are child turns of an earlier process that wait for a person; they resume when they are begun again.
    """

    def __init__(self) -> None:
        self.is_open = True
        """False once no child turn can begin any more."""
        self.waiting: list[ResumedTurn] = []
        self._running: dict[str, Turn] = {}

    def add(self, turn: Turn) -> None:
        """Add a child turn that begins."""
        self._running[turn.id] = turn

    def remove(self, turn: Turn) -> None:
        """Remove a child turn that has ended."""
        self._running.pop(turn.id, None)

    def take_waiting(self, agent_id: str) -> ResumedTurn | None:
        """Remove and return the first waiting child turn of that agent, None if there is none."""
        for resumed in self.waiting:
            if resumed.agent_id == agent_id:
                self.waiting.remove(resumed)
                return resumed
        return None

    def stop(self) -> None:
        """Stop all child turns."""
        for child in list(self._running.values()):
            child.stop()

    def close(self) -> None:
        """Let no child turn begin any more."""
        self.is_open = False

    async def end(self) -> None:
        """Stop the child turns that are not detached and wait until their last events are written; let none begin."""
        self.close()
        ending = [child for child in self._running.values() if not child.detached]
        for child in ending:
            child.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS if ending else None):
                for child in ending:
                    await child.written.wait()


@dataclass(frozen=True, slots=True)
class ChannelChildTurns:
    """The channel of the root turn, as the place for the events of its child turns."""

    channel: Channel
    journal: CallJournal = field(default_factory=NullCallJournal)

    @property
    def is_durable(self) -> bool:
        return False

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        return self

    async def write(self, events: Sequence[Event], /) -> None:
        self.channel.put(*events)
        await self.channel.wait_until_written()

    async def close(self) -> None:
        return None
