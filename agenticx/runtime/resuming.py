"""What is said of a call before it runs, so that a crash leaves no doubt, and where a turn that was cut off goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agenticx.llms.base import Usage
from agenticx.messages import ToolCall
from agenticx.runtime.confirm import ConfirmAnswer, ConfirmRequest
from agenticx.runtime.events import TurnState

__all__ = ["CallJournal", "NullCallJournal", "ResumePoint", "ResumedQuestion"]


class CallJournal(Protocol):
    """Keeps what the log of events cannot tell: that a call is about to run. What it raises ends the turn."""

    async def record_call(self, call: ToolCall) -> None:
        """The call may run once this has returned."""
        ...

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        """The call started a process, to be ended should ours die: {pid, started, mark}."""
        ...


class NullCallJournal:
    """The journal of turns that nobody will ask about after a crash."""

    async def record_call(self, call: ToolCall) -> None:
        return None

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedQuestion:
    """A question that was put before the cut; `said` tells that its `confirm_response` stands in the log already."""

    request: ConfirmRequest
    answer: ConfirmAnswer | None = None
    is_response_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The place in a round where no call is under way: those of `calls` are to begin, all others are answered.

    The reply that made them stands in the session's messages. `questions` are those of these calls, by call id.
    """

    round: int
    calls: tuple[ToolCall, ...]
    questions: Mapping[str, ResumedQuestion] = field(default_factory=dict[str, ResumedQuestion])
    state: TurnState = "executing"
    usage: Usage | None = None
    last_text: str = ""
