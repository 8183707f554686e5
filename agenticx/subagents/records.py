"""Sub-agents, their runs and their endings: what the manager keeps, and what is stored of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal
from unicodedata import category

from agenticx.argument_types import check_int, check_number
from agenticx.errors import InvalidArguments, ToolError
from agenticx.foreign_text import frame_text
from agenticx.messages import UserMessage, shown_text, sources_of
from agenticx.runtime import AgentRuntime, Budget, EventType, RuntimeEvent, Session, Steering, StopSignal
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.session import Notice
from agenticx.runtime.turn import Turn
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.registry import Toolbox

__all__ = [
    "ModelUnavailable",
    "Subagent",
    "SubagentBusy",
    "SubagentEnding",
    "SubagentLimitReached",
    "SubagentLimits",
    "SubagentNotFound",
    "SubagentRun",
    "SubagentState",
    "SubagentsClosed",
    "looks_like_ending",
    "sources_read",
]

SubagentState = Literal["queued", "running", "paused", "completed", "error"]

_SHOWN_CHARS = 20_000
_STATUS_CHARS = 500
_KEPT_SOURCES = 200
_NOTE = "its words, not the user's"
_LINE_CHARS = 60  # of which the beginning of a line is compared with that of an ending


class SubagentNotFound(ToolError):
    """An error for the id of a sub-agent that does not exist, or that the caller did not start."""


class SubagentsClosed(ToolError):
    """An error for a sub-agent that is to begin once the sub-agents of its session are being ended."""


class SubagentBusy(ToolError):
    """An error for what a sub-agent that works cannot do, such as beginning anew."""


class SubagentLimitReached(ToolError):
    """An error for a sub-agent beyond the limits of its tree."""


class ModelUnavailable(InvalidArguments):
    """An error for a sub-agent whose model cannot be used; the message names the accepted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """The limits of a tree of sub-agents.

    `depth` is that of the lowest sub-agent, those of the main agent being at 1. An agent has at most `children` that
    have not ended, and at most `running` sub-agents of the tree work at once; the others are queued, and those that
    wait for a person or for sub-agents of their own do not count; they go on at once, and none begins until a slot is
    free again. `seconds` limits the work of each, without the time of waiting for a person. With `total` one turn of
    the main agent starts at most so many runs of sub-agents, directly or through others.
    """

    depth: int = 3
    children: int = 8
    running: int = 4
    seconds: float = 1800.0
    total: int | None = None

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, "a number of seconds")
        for name in ("depth", "children", "running", "seconds", "total"):
            if name == "total" and self.total is None:
                continue
            value = getattr(self, name)
            if name != "seconds":
                check_int(name, value)
            if not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRun:
    """A run of a sub-agent, which is the turn `turn_id` once it has begun.

    `message` is what it begins with: the task, or a message to an agent that had ended. With `is_anew` the agent begins
    with an empty conversation. `parent_path` names the agent above it, after those above that one, and is empty outside
    of turns; `parent_turn_id` is that agent's turn in which it was started. `tools` are names. `earlier_rounds` are
    those of its conversation before this run. `budget` has the limits of the agent's own budget. `sources` name the
    texts of others in the conversations from which its messages come.
    """

    turn_id: str
    agent_id: str
    task: str
    message: str
    is_anew: bool = True
    parent_path: tuple[str, ...] = ()
    parent_turn_id: str = ""
    depth: int = 1
    tools: tuple[str, ...] | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    earlier_rounds: int = 0
    budget: Mapping[str, Any] | None = None
    sources: tuple[str, ...] = ()

    @property
    def message_id(self) -> str:
        """The id of `message` in its conversation."""
        return f"msg_{self.turn_id.removeprefix('turn_')}"

    @property
    def parent_id(self) -> str | None:
        """The agent above it, None if no agent started it."""
        return self.parent_path[-1] if self.parent_path else None

    @property
    def starter_path(self) -> tuple[str, ...]:
        """The path of an agent that is neither the main one nor a sub-agent and started it, such as a member of a team.

        Empty if another agent did.
        """
        return self.parent_path if self.depth == 1 and len(self.parent_path) > 1 else ()

    @property
    def reader(self) -> str:
        """The name of the agent that is told its ending in the main conversation; "" for the main agent."""
        return self.starter_path[-1] if self.starter_path else ""

    def dump(self) -> dict[str, Any]:
        """Return the run as JSON."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> SubagentRun:
        """Return the run of what `dump` returned."""
        values = dict(data)
        values["parent_path"] = tuple(data["parent_path"])
        values["sources"] = tuple(data["sources"])
        values["tools"] = None if data["tools"] is None else tuple(data["tools"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnding:
    """An ending of a sub-agent's work; `text` is its result, or says why there is none.

    `turn_id` is that of the run, `rounds` are its rounds. `code` is the error code of the event `error`, None for other
    states. In the fork of a session the code `forked` is that of a sub-agent which goes on with the old session.
    `sources` name the texts of others in its conversation.
    """

    turn_id: str
    agent_id: str
    state: Literal["paused", "completed", "error"]
    text: str
    code: str | None = None
    rounds: int = 0
    sources: Sequence[str] = ()

    @classmethod
    def from_event(
        cls, turn_id: str, agent_id: str, event: RuntimeEvent, rounds: int, session: Session | None
    ) -> SubagentEnding:
        """Return the ending of a run by the terminal event of its turn and its conversation."""
        sources = sources_read(session)
        data, of_run = event.data, partial(cls, turn_id=turn_id, agent_id=agent_id, rounds=rounds, sources=sources)
        if event.type == "final":
            return of_run(state="completed", text=data["text"])
        if event.type == "subagent_paused":
            text = f"It used its {data['max_rounds']} rounds. Its last words: {data['checkpoint']['last_text']}"
            return of_run(state="paused", text=text)
        return of_run(state="error", text=data["text"], code=data["code"])

    def dump(self) -> dict[str, Any]:
        """Return the ending as JSON, with the middle of a long text left out."""
        return asdict(self.shortened)

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> SubagentEnding:
        """Return the ending of what `dump` returned."""
        values = dict(data)
        values["sources"] = tuple(data["sources"])
        return cls(**values)

    @property
    def shortened(self) -> SubagentEnding:
        """This ending with the middle of a long text left out."""
        return replace(self, text=self._shown_text)

    @property
    def event(self) -> tuple[EventType, dict[str, Any]]:
        """The type and the data of the event that reports it; none does for work that is paused."""
        if self.state == "completed":
            return EventType.SUBAGENT_COMPLETED, {"result": self.text}
        return EventType.SUBAGENT_ERROR, {"text": self.text, "code": self.code or "internal"}

    def to_model_text(self) -> str:
        """Return the framed text by which the parent's model is told, with the middle of a long result left out."""
        what = {
            "paused": "paused; a message resumes it",
            "completed": "completed",
            "error": "stays with the old conversation" if self.code == "forked" else f"failed: {self.code}",
        }
        return frame_text(f"sub-agent {self.agent_id} {what[self.state]}", self._shown_text.rstrip(), _NOTE)

    @property
    def _shown_text(self) -> str:
        return truncate(self.text, _SHOWN_CHARS)[0]

    def notice(self, *, is_stored: bool, reader: str = "") -> Notice:
        """Return what the parent's model is told, see `Notice`; of a stored ending it is recorded that it was."""
        key = self.turn_id if is_stored else ""
        return Notice(self.to_model_text(), key, self.dump(), reader=reader, sources=tuple(self.sources))


def sources_read(session: Session | None) -> Sequence[str]:
    """Return the names of the texts of others in a conversation, and below it; the latest of very many."""
    if session is None:
        return ()
    found = dict.fromkeys([*sources_of(session.messages), *session.state.sources_below])
    return list(found)[-_KEPT_SOURCES:]


def looks_like_ending(line: str) -> bool:
    """Return whether a reader may take a line for the first one of an ending, whatever stands before its bracket."""
    shown = shown_text(line, _LINE_CHARS)
    letters = "".join(filter(str.isalpha, shown))
    before = shown.partition("s")[0]
    return letters.startswith("subagent") and any(category(char) == "Ps" for char in before)


@dataclass(slots=True, kw_only=True, eq=False)
class Subagent:
    """One sub-agent. `parent` is the one above it, None for the main agent; `above` the turn below which it runs now.

    `run` is its latest run, `run_rounds` are the rounds of that; `turn_ids` are those of its conversation, which is in
    `session`, or None if only the host has it. `tools` are None until its first run in this process, and so is its own
    `budget`, if it has one. `unread` are messages for it that no run has taken yet; `open_questions` the number of its
    questions to the user.
    """

    run: SubagentRun
    parent: Subagent | None
    above: Turn | None = None
    tools: Toolbox | None = None
    budget: Budget | None = None
    session: Session | None = None
    runtime: AgentRuntime | None = None
    turn_ids: tuple[str, ...] = ()
    state: SubagentState = "queued"
    ending: SubagentEnding | None = None
    run_rounds: int = 0
    activity: str = ""
    has_slot: bool = False
    open_questions: int = 0
    unread: list[UserMessage] = field(default_factory=list[UserMessage])
    steering: Steering = field(default_factory=Steering)
    stop: StopSignal = field(default_factory=StopSignal)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.run.agent_id

    @property
    def rounds(self) -> int:
        """The rounds of its conversation."""
        return self.run.earlier_rounds + self.run_rounds

    @property
    def depth(self) -> int:
        """1 for a sub-agent of the main agent."""
        return self.run.depth

    @property
    def has_ended(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def unheard(self) -> list[str]:
        """The messages that its conversation, which is here, does not have: that of a run which did not begin."""
        known = () if self.session is None else self.session.all_messages
        has_begun = any(one.message_id == self.run.message_id for one in known)
        return [*([] if has_begun else [self.run.message]), *(one.content for one in self.unread)]

    def go_to_work(self) -> None:
        """Have the run take the messages that came before it, and those that come from now on."""
        self.state = "running"
        for message in self.unread:
            self.steering.put(message)
        self.unread = []

    def close_steering(self) -> None:
        """Take back the messages that its run has not taken; the next ones are `unread`."""
        self.steering.close()
        self.unread = [*self.steering.take(), *self.unread]

    @property
    def ancestors(self) -> list[Subagent]:
        """The sub-agents above it, the nearest first."""
        return [] if self.parent is None else [self.parent, *self.parent.ancestors]

    @property
    def top(self) -> Subagent:
        """The highest sub-agent above it, or itself."""
        return [self, *self.ancestors][-1]

    def failure(self, code: str, text: str) -> SubagentEnding:
        """Return an ending of the run with an error."""
        turn_id, rounds = self.run.turn_id, self.run_rounds
        return SubagentEnding(
            turn_id=turn_id,
            agent_id=self.id,
            state="error",
            text=text,
            code=code,
            rounds=rounds,
            sources=sources_read(self.session),
        )

    def status(self) -> dict[str, Any]:
        """Return the state as JSON."""
        status: dict[str, Any] = {
            "agent_id": self.id,
            "state": self.state,
            "rounds": self.rounds,
            "task": self.run.task if len(self.run.task) <= _STATUS_CHARS else f"{self.run.task[:_STATUS_CHARS]}…",
            "parent_agent_id": self.run.parent_id,
            "depth": self.depth,
        }
        if self.has_ended and self.ending is not None and self.ending.code is not None:
            status["code"] = self.ending.code
        if self.open_questions:
            status["waits_for_user"] = True
        return status | ({"activity": self.activity} if self.activity and not self.has_ended else {})
