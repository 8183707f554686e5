"""The child turns of a turn: where their events are written.

Code that runs inside a turn, such as a tool, runs another agent's turn below it:

    context = TurnContext(parent=current_turn())
    result = await AgentRuntime(model).run("Read the log", agent_id="reader", context=context)

1. A child turn has an id of its own, on each of its events (`RuntimeEvent.turn_id`); its `turn_started` names the turn
   above it (`parent_turn_id`). Its own generator yields its own events alone. The generator of the turn at the top also
   yields those of all its child turns, at any depth, each turn's in order, all before its own terminal event; a hub
   stores them in the session of that turn.
2. A stop of a turn stops its child turns at the same moment. Those that still run when their parent ends are stopped
   before its terminal event; one that is `detached` goes on where events are stored, in a hub.
3. A turn asks the confirm gate of the one above it, and never acts in a mode that permits more.
4. In a hub, a child turn that waits for a person goes on after a restart, if the turn above it runs again
   as the `work` of its session or of the application, or the turn is detached: when it is begun again, by a turn
   of an agent with the same name, it has its earlier id, conversation and events, and the request is asked once.
   Options do not go on (`options`).
5. `final.usage` of a turn covers its own model calls; those below it have `usage` events in their own turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agenticx.errors import AgenticXError
from agenticx.runtime.channel import Channel
from agenticx.runtime.events import Event
from agenticx.runtime.resume import CallJournal, NullCallJournal, ResumedTurn
from agenticx.runtime.session import Session

__all__ = ["ChannelChildTurns", "ChildTurn", "ChildTurnWriter", "ChildTurns", "TurnSuspended"]


class TurnSuspended(AgenticXError):
    """Raised where a turn that waits for a person is left as it is, because the program ends: it goes on later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTurn:
    """A turn that is about to begin below the turn `parent_id`; `stop` requests its end.

    `suspend` is called once no more of it is written, as it goes on after the program's next start. `session` is its
    conversation, `agent_path` its agent after those above it. If it goes on with the turn `resumed`, its place has the
    events of that already. With `has_work` it calls no model itself.
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
        """Release the turn, which emits no more events; it is ended if that is not written."""
        ...


class ChildTurns(Protocol):
    """The place where the events of the child turns of a turn are written, at any depth."""

    @property
    def is_durable(self) -> bool:
        """True if turns can outlive their parent here."""
        ...

    def begin(self, child: ChildTurn) -> ChildTurnWriter:
        """Return the writer of a turn; nothing is written before its first events."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelChildTurns:
    """The channel of the turn at the top, through which its consumer gets all events."""

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
