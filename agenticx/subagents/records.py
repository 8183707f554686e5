"""Sub-agents and their endings, as the manager keeps them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from agenticx.runtime import Budget, Session, Steering, StopSignal
from agenticx.runtime.turn import Turn
from agenticx.tools.registry import Toolbox

__all__ = ["Subagent", "SubagentEnding", "SubagentLimits", "SubagentState"]

SubagentState = Literal["queued", "running", "paused", "completed", "error"]

_SHOWN_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """The limits of a tree of sub-agents.

    `depth` is that of the lowest sub-agent, those of the main agent being at 1. An agent has at most `children` that
    have not ended, and at most `running` sub-agents of the tree work at once; the others are queued. `seconds` limits
    the work of each, without the time of waiting for a person.
    """

    depth: int = 3
    children: int = 8
    running: int = 4
    seconds: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("depth", "children", "running", "seconds"):
            if not (value := getattr(self, name)) > 0:
                raise ValueError(f"{name} must be above 0, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnding:
    """An ending of a sub-agent's work; `text` is its result, or says why there is none.

    `code` is the error code of the event `error`, None for other states.
    """

    agent_id: str
    state: Literal["paused", "completed", "error"]
    text: str
    code: str | None = None

    def to_model_text(self) -> str:
        """Return the text by which the parent's model is told, with the middle of a long result left out."""
        what = {"paused": "paused; a message resumes it", "completed": "completed", "error": f"failed: {self.code}"}
        return f"[sub-agent {self.agent_id} {what[self.state]}]\n{_shortened(self.text)}".rstrip()


def _shortened(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


@dataclass(slots=True, kw_only=True, eq=False)
class Subagent:
    """One sub-agent. `parent` is the one above it, None for the main agent; `above` the turn below which it runs next.

    `unread` are messages for it that no run has taken yet.
    """

    id: str
    task: str
    parent: Subagent | None
    above: Turn | None
    model: str | None
    tools: Toolbox | None
    budget: Budget | None
    session: Session
    state: SubagentState = "queued"
    ending: SubagentEnding | None = None
    rounds: int = 0
    activity: str = ""
    has_slot: bool = False
    unread: list[str] = field(default_factory=list[str])
    steering: Steering = field(default_factory=Steering)
    stop: StopSignal = field(default_factory=StopSignal)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def depth(self) -> int:
        """1 for a sub-agent of the main agent."""
        return 1 if self.parent is None else self.parent.depth + 1

    @property
    def parent_id(self) -> str | None:
        return None if self.parent is None else self.parent.id

    def status(self) -> dict[str, Any]:
        """Return the state as JSON."""
        status: dict[str, Any] = {"agent_id": self.id, "state": self.state, "rounds": self.rounds, "task": self.task}
        if self.ending is not None and self.ending.code is not None:
            status["code"] = self.ending.code
        return status | ({"activity": self.activity} if self.activity and not self.has_ended else {})
