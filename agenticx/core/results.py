"""Results: of a tool that hands over, of a chat, and of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field

from agenticx.call_errors import ExplainedModel
from agenticx.core.agent import Agent
from agenticx.core.guide_rails import GuideRailVerdict
from agenticx.messages import ToolCall
from agenticx.runtime.events import RuntimeEvent
from agenticx.runtime.events.payloads import FinalUsageData
from agenticx.runtime.turn_agent import ToolResult, TurnAgents, TurnChange

__all__ = ["ChatResponse", "ExecutionResult", "ExecutionStats", "Response", "Result"]

if TYPE_CHECKING:
    _AnyAgent = Agent[Any, Any]
else:
    _AnyAgent = Agent  # for pydantic, which would copy an agent to make it one of `Agent[Any, Any]`


class Result(ExplainedModel, BaseModel, TurnChange, frozen=True, extra="forbid"):
    """A tool's result that hands over to `agent` or changes the context variables; the model reads `value`."""

    by_position: ClassVar[str] = "value"

    value: str = ""
    agent: _AnyAgent | None = None
    context_variables: dict[str, Any] = Field(default={}, repr=False)

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        next_agent = None if self.agent is None else await agents.prepare_handoff(self.agent)
        return ToolResult(text=self.value, variables=self.context_variables, next_agent=next_agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """The end of a chat.

    `messages` are the rows that it added, as in Chat Completions; rows of role assistant have the agent's name as
    `sender`. `agent` acted last.
    """

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    agent: Agent[Any, Any] | None = None
    context_variables: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


Response = ChatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStats:
    """The counts of a run and all of its attempts: `usage` and `cost_usd` as in the `final` event, and seconds.

    `organization_id` is the organization of the agent with which the run began. `usage_by_organization` divides
    `usage`: a model call counts to the organization of the agent that acts, also in child turns of an attempt and in
    guide rails. The fields can also be read as items, `stats["rounds"]`.
    """

    rounds: int
    tool_calls: int
    usage: FinalUsageData
    cost_usd: str | None
    seconds: float
    organization_id: str
    usage_by_organization: Mapping[str, FinalUsageData] = field(default_factory=dict[str, FinalUsageData])

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The end of a task.

    `result` is the text of the answer as the guide rails left it, empty if they refused it. Where `case_resolved` or
    `case_not_resolved` ended the run, it is the argument of that call, or without one the text of the reply. `output`
    is the object that the task's `output_type` asked for. Without `success`, `error` says why. `agent` acted last.
    `guide_rails` are the verdicts on the last attempt, `events` the events of all attempts. `tool_calls` are the calls
    of the last reply that were not run, with `execute_tools` False. `session_id` is the id of the stored session, if
    there is one.
    """

    success: bool
    result: str
    output: Any
    error: str | None
    events: tuple[RuntimeEvent, ...] = field(repr=False)
    stats: ExecutionStats
    agent: Agent[Any, Any]
    context_variables: dict[str, Any] = field(repr=False)
    guide_rails: tuple[GuideRailVerdict, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    session_id: str | None = None
