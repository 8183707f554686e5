"""The part of a turn that its caller gives: agents, limits, parent, notes, and work in the place of model calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agenticx.llms.base import ChatModel
from agenticx.messages import UserMessage
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.channel import WritePacer
from agenticx.runtime.child_turns import ChildTurns
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.resume import CallJournal, NullCallJournal, ResumedTurn
from agenticx.runtime.session import Session
from agenticx.runtime.steering import Steering
from agenticx.runtime.turn_agent import TurnAgent, TurnAgents
from agenticx.tools.permissions import PermissionMode

if TYPE_CHECKING:
    from agenticx.runtime.turn import Turn

__all__ = ["OnExhausted", "TurnContext", "TurnNotes", "TurnWork", "WorkResult"]


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The text of the answer, and for the run of a team why it stopped, which `final` has as `stop_reason`."""

    text: str
    stop_reason: str | None = None


TurnWork = Callable[["Turn"], Awaitable[str | WorkResult]]
"""The work of a turn in place of model calls; its result is the answer. See `TurnContext`."""

OnExhausted = Literal["error", "partial", "pause", "answer", "summary"]
"""The end of a turn that has used all of its rounds; see `TurnContext`."""


class TurnNotes(Protocol):
    """The notes of one turn; `mode` and `mode_reason` are said in its `turn_started` if there is a mode."""

    @property
    def mode(self) -> Literal["chat", "vault", "agent"] | None: ...
    @property
    def mode_reason(self) -> str: ...

    async def begin(self, session: Session, window: int | None) -> None:
        """Add to the conversation what the model, whose context window is given, is to have before its first call."""
        ...

    async def pin(self, session: Session, message: UserMessage, window: int | None) -> None:
        """Add to the conversation the notes that a message to the running turn names, before that message."""
        ...

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the payloads of the answer's citations, in order, without `message_id`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """The part of a turn that only few applications give: those with a log of their own, or with several agents.

    `client_turn_id` is named in `turn_started`. `journal` records each call before it runs, so
    that after a crash it is known which calls may have taken effect. Messages put into `steering` while the turn runs
    are sent to the model with its next call. With a `pacer` text deltas are written at its ticks. `permission_mode`
    takes the place of the session's for this turn.

    `agent` takes the place of the runtime's, whose `shares_history` is given here. `agents` makes the agents to which a
    tool hands over by returning them; by default they have the runtime's hooks, and its model if they name none, act to
    the end of the turn, and the next one is the runtime's agent's again. `model_of` returns the model of a name for the
    options of the turn, by default one of the catalogue. `max_rounds` is the largest number of model calls,
    `on_exhausted` the end of a turn that has used them; by default both are the runtime's, which pauses agents other
    than `meta`. `"partial"` asks the model for what it found so far, `"answer"` for its answer, both without tools;
    `"summary"` makes no call: the results of the last round are the answer. With `execute_tools` False a reply with
    calls ends the turn, and they are not run, unless they only submit the object that is asked for. All model calls of
    the turn, and of those below it, are made within `budget`. After `work_seconds`, in which waiting for a person does
    not count, it ends with `timeout.turn`. `turn_seconds` takes the place of the setting for the longest time of a
    turn. `notes` are those that the turn uses.

    With a `parent` the turn runs below that one, see `child_turns`; if it is `detached`, it goes on after the
    parent's end, where turns are stored. `turn_id` is the turn's id, by default a new one; `child_turns` is where its
    child turns are written, by default its own events. `gate` is asked instead of the parent's or the runtime's. `deps`
    are those of its tools (`ToolContext.deps`), by default the parent's.
    `work` takes the place of the rounds of model calls: its result is the answer. With `continues` nothing new is said:
    the user's message is in the conversation already, before results of calls that the application made itself. With a
    `title` the requests that the turn and those below it put to the user begin with it. `resumed` is a turn of an
    earlier process, with which this one goes on; by default the one below the same parent that waits and has the same
    agent.
    """

    client_turn_id: str | None = None
    turn_id: str | None = None
    parent: Turn | None = field(default=None, repr=False)
    detached: bool = False
    child_turns: ChildTurns | None = None
    gate: ConfirmGate | None = None
    deps: Any = field(default=None, repr=False)
    work: TurnWork | None = None
    continues: bool = False
    title: str | None = None
    resumed: ResumedTurn | None = None
    journal: CallJournal = field(default_factory=NullCallJournal)
    steering: Steering = field(default_factory=Steering)
    pacer: WritePacer | None = None
    permission_mode: PermissionMode | None = None
    agent: TurnAgent | None = None
    agents: TurnAgents | None = None
    model_of: Callable[[str], ChatModel] | None = None
    shares_history: bool = False
    max_rounds: int | None = None
    on_exhausted: OnExhausted | None = None
    execute_tools: bool = True
    budget: Budget | None = None
    work_seconds: float | None = None
    turn_seconds: float | None = None
    notes: TurnNotes | None = None
