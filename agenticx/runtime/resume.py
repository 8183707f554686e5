"""The journal of calls that are about to run, and turns of an earlier process that go on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from agenticx.llms.base import Usage
from agenticx.messages import MAIN_AGENT, Message, ToolCall
from agenticx.runtime.events import Event, TurnState
from agenticx.runtime.user_requests.requests import UserAnswer, UserRequest
from agenticx.tools.context import ToolState
from agenticx.tools.session_files import ArtifactPreview

__all__ = [
    "CallJournal",
    "ChildTurnResumer",
    "NullCallJournal",
    "ResumePoint",
    "ResumedRequest",
    "ResumedTurn",
]


class CallJournal(Protocol):
    """A durable record of the calls that are about to run, which the event log does not show.

    An exception that it raises ends the turn.
    """

    async def record_call(self, call: ToolCall) -> None:
        """Record that `call` is about to run; it runs once this has returned."""
        ...

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        """Record a process that the call started, to be ended if this program dies: {pid, started, mark}."""
        ...


class NullCallJournal:
    """A journal that records nothing, for turns that are not resumed after a crash."""

    async def record_call(self, call: ToolCall) -> None:
        return None

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRequest:
    """A request to the user that was asked before the interruption.

    `answer` is of the same kind. `asked_at` is the time of the event that asked, None if it is not known.
    `is_response_logged` is true if the event with the answer is in the log already. `asked` is set once the gate has
    the request again, or the turn no longer needs an answer.
    """

    request: UserRequest
    answer: UserAnswer | None = None
    asked_at: datetime | None = None
    is_response_logged: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The point in a round at which no call is running: those of `calls` are to begin, all others are answered.

    The reply that made them is in the session's messages. `requests` are those about these calls, by call id. A turn
    with `work` has no calls: its work begins anew, and finds the `requests` that it has asked, by their own ids, and
    its child turns, `children`, which go on when they are begun again. `acting_agent` is the agent that acts.
    `previews` are those of its calls, by id, that ended with the earlier process.
    """

    round: int
    calls: tuple[ToolCall, ...]
    requests: Mapping[str, ResumedRequest] = field(default_factory=dict[str, ResumedRequest])
    state: TurnState = "executing"
    usage: Usage | None = None
    last_text: str = ""
    acting_agent: str = MAIN_AGENT
    children: Sequence[ResumedTurn] = ()
    previews: Mapping[str, ArtifactPreview] = field(default_factory=dict[str, ArtifactPreview])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedTurn:
    """A child turn, of an earlier process, that waits for a person and goes on at `point`.

    `agent_path` names its agent, after those of the turns above it. `messages` are its conversation and `state` the
    state of its tools; `events` are those that the log has of it, from `turn_started` on.
    """

    turn_id: str
    parent_turn_id: str
    agent_path: Sequence[str]
    point: ResumePoint
    messages: Sequence[Message] = ()
    state: ToolState = field(default_factory=ToolState)
    events: Sequence[Event] = ()

    @property
    def agent_id(self) -> str:
        """The name of its agent."""
        return self.agent_path[-1]


class ChildTurnResumer(Protocol):
    """The owner of turns that outlive their parents, which begins them again after a restart."""

    def resume(self, resumed: ResumedTurn, /) -> bool:
        """Have the turn go on, with a `TurnContext` that has it as `resumed`; return False if that is impossible.

        It is ended as interrupted then.
        """
        ...
