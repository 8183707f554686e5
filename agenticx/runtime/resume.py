"""The journal of calls that are about to run, and the turns of an earlier process that can be resumed."""

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
from agenticx.tools.artifacts.files import ArtifactPreview
from agenticx.tools.context import ToolState

__all__ = [
    "CallJournal",
    "ChildTurnResumer",
    "NullCallJournal",
    "ResumePoint",
    "ResumedRequest",
    "ResumedTurn",
]


class CallJournal(Protocol):
    """A durable record of the calls that are about to run; the event log has no event for that.

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

    `asked_at` is the time of the event that asked, None if it is unknown. `is_response_logged` is true if the event
    with the answer is in the log already. `asked` is set once the gate has the request again, or the turn no longer
    needs an answer.
    """

    request: UserRequest
    answer: UserAnswer | None = None
    asked_at: datetime | None = None
    is_response_logged: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The point in a round from which a turn resumes: `calls` are to begin, all other calls are answered.

    The reply that made the calls is in the session's messages. `requests` are the requests to the user about these
    calls, by call id, and `previews` their previews when the earlier process ended.

    A turn with `work` has no calls: its work starts again and finds the `requests` that it has asked, by request id,
    and its `children`, the child turns that resume when they are begun again.

    `has_auto_consent` says that in mode auto the turn goes on under the consent with which it began.
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
    has_auto_consent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedTurn:
    """A child turn of an earlier process that waits for a person and resumes at `point`.

    `agent_path` has the agents from the root turn to this one. `messages` are its conversation, `state` is the state of
    its tools, and `events` are its events in the log, from `turn_started` on.
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
    """The owner of detached child turns that begins them again after a restart."""

    def resume(self, resumed: ResumedTurn, /) -> bool:
        """Begin the turn again, with a `TurnContext` that has it as `resumed`.

        Return False if that is impossible; the turn is ended as interrupted then.
        """
        ...
