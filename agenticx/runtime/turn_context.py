"""The rarely needed arguments of a turn: agents, limits, parent, notes, and work instead of model calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agenticx.llms.base import ChatModel
from agenticx.messages import UserMessage
from agenticx.permissions.rule_stores import RuleStore
from agenticx.permissions.trusted_files import Instructions
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime.budgets.budget import Budget
from agenticx.runtime.channel import WritePacer
from agenticx.runtime.child_turns import ChildTurns
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.resume import CallJournal, NullCallJournal, ResumedTurn
from agenticx.runtime.session import Session
from agenticx.runtime.steering import Steering
from agenticx.runtime.turn_agent import TurnAgent, TurnAgents

if TYPE_CHECKING:
    from agenticx.runtime.turn import Turn

__all__ = ["OnExhausted", "TurnContext", "TurnNotes", "TurnWork", "WorkResult"]


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The text of the answer; `stop_reason` of `final` says why the run of a team stopped."""

    text: str
    stop_reason: str | None = None


TurnWork = Callable[["Turn"], Awaitable[str | WorkResult]]
"""The work of a turn instead of model calls; its result is the answer. See `TurnContext`."""

OnExhausted = Literal["error", "partial", "pause", "answer", "summary"]
"""The end of a turn that has used all of its rounds; see `TurnContext`."""


class TurnNotes(Protocol):
    """The notes of one turn; a `mode` and its `mode_reason` are in its `turn_started`."""

    @property
    def mode(self) -> Literal["chat", "vault", "agent"] | None: ...
    @property
    def mode_reason(self) -> str: ...

    async def begin(self, session: Session, window: int | None) -> None:
        """Add notes for the first model call to the conversation; `window` is the model's context window."""
        ...

    async def pin(self, session: Session, message: UserMessage, window: int | None) -> None:
        """Add the notes that a steering message names to the conversation, before that message."""
        ...

    async def cite(self, session: Session, text: str) -> Sequence[Mapping[str, Any]]:
        """Return the payloads of the answer's citations, in order, without `message_id`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """Rarely needed arguments of a turn, for applications with a log of their own or with several agents.

    The turn:

    - `turn_id` is its id, by default a new one; `client_turn_id` is an id of the application's, in `turn_started`.
    - `work` replaces the rounds of model calls; its result is the answer.
    - `continues`: the user's message is in the conversation already, before results of calls that the application made
      itself, and no new message is appended.
    - `resumed` is the turn of an earlier process that this one resumes, by default the parent's waiting child turn of
      the same agent.
    - `journal` records each call before it runs, so that a restart knows which calls may have taken effect.
    - `steering` is the inbox of messages for the running turn; the next model call gets them.
    - `pacer` makes text deltas be written at its ticks.
    - `notes` are the notes that the turn uses.
    - `instructions` are the AGENTS.md files in its prompt, by default the files of the agent's own prompt.

    Agents and models:

    - `agent` replaces the runtime's agent; `shares_history` sets that field of the runtime's agent.
    - `agents` makes the agents that tools hand off to by returning them. By default these have the runtime's hooks and,
      if they name no model, its model; they act to the end of the turn, and the runtime's agent has the next turn.
    - `model_of` returns the model of a name for the turn's options, by default a model of the catalogue.
    - `gate` replaces the parent's or the runtime's confirm gate; `permission_mode` replaces the session's mode.
    - `rules` has the rules of the user for all sessions, by default the parent's; without any, those in AGX_HOME hold
      that ask or deny.
    - `deps` is `ToolContext.deps` of its tools, by default the parent's.
    - `execute_tools=False` ends the turn at a reply with calls without running them, unless they submit the output.

    Limits:

    - `max_rounds` is the largest number of model calls, by default the runtime's. `on_exhausted` is the ending of a
      turn that has used them, by default the runtime's, which pauses agents other than `meta`. `"partial"` asks the
      model for what it found so far, and `"answer"` for its answer, both without tools; `"summary"` makes no call: the
      results of the last round are the answer.
    - `budget` limits all model calls of the turn and its child turns; without one, the limits of the settings do.
    - `work_seconds` ends it with `timeout.turn`, not counting the time in which it waits for a person; `turn_seconds`
      replaces the setting for the longest time of a turn.

    Child turns (`child_turns`):

    - `parent` is the turn in which this one runs. A `detached` turn continues after its parent's end, in a hub.
    - `child_turns` is where the events of its child turns are written, by default its own channel.
    - `title` begins the requests to the user of the turn and its child turns.
    """

    turn_id: str | None = None
    client_turn_id: str | None = None
    work: TurnWork | None = None
    continues: bool = False
    resumed: ResumedTurn | None = None
    journal: CallJournal = field(default_factory=NullCallJournal)
    steering: Steering = field(default_factory=Steering)
    pacer: WritePacer | None = None
    notes: TurnNotes | None = None
    instructions: Instructions | None = None

    agent: TurnAgent | None = None
    shares_history: bool = False
    agents: TurnAgents | None = None
    model_of: Callable[[str], ChatModel] | None = None
    gate: ConfirmGate | None = None
    permission_mode: PermissionMode | None = None
    rules: RuleStore | None = None
    deps: Any = field(default=None, repr=False)
    execute_tools: bool = True

    max_rounds: int | None = None
    on_exhausted: OnExhausted | None = None
    budget: Budget | None = None
    work_seconds: float | None = None
    turn_seconds: float | None = None

    parent: Turn | None = field(default=None, repr=False)
    detached: bool = False
    child_turns: ChildTurns | None = None
    title: str | None = None
