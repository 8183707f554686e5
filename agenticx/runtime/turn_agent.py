"""The acting agent of a turn, with its model, instructions and tools, and the handoffs that replace it.

A tool hands off by returning a `TurnChange`, for example an `Agent` or a `Result` of `agenticx.core`. `TurnAgents`
makes the next acting agent of it. A `TurnChange` is never sent to a model (`calls.result_rendering`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

from agenticx.llms.sampling import NO_SAMPLING, Sampling
from agenticx.tools.base import DepsT

if TYPE_CHECKING:
    from agenticx.llms.base import ChatModel
    from agenticx.permissions.trusted_files import Instructions
    from agenticx.runtime.gates.base import ConfirmGate
    from agenticx.runtime.hooks import HookRegistry
    from agenticx.tools.registry import Toolbox

__all__ = [
    "AgentDefinition",
    "EndReason",
    "OutputT",
    "SystemPrompt",
    "ToolResult",
    "TurnAgent",
    "TurnAgents",
    "TurnChange",
]

OutputT = TypeVar("OutputT", default=str)
"""The type of the output of an agent's run: text, unless another type is asked for."""

SystemPrompt = str | Callable[[Mapping[str, Any]], Awaitable[str]] | None
"""Instructions, or a function that returns them for the context variables; it is called before each model call."""

EndReason = Literal["answer", "resolved", "not_resolved", "handoff"]
"""The `reason` of `final` in a turn that was ended by a call, or by an answer with a key of `endings_by_text`."""


class TurnChange(ABC):
    """A base class of tool results that also change the turn."""

    @abstractmethod
    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        """Return the result with the change; `agents` makes the next acting agent."""


class AgentDefinition(TurnChange, Generic[DepsT, OutputT]):
    """A base class of agents as applications describe them; a tool that returns one hands off to it.

    `handoffs` are the agents that it can hand off to: agents, names, and functions that return an agent.
    """

    name: str
    role: str
    goal: str
    model: Any
    confirm_gate: Any
    output_type: Any
    handoffs: Sequence[AgentDefinition[Any, Any] | str | Callable[[], AgentDefinition[Any, Any]]]

    @abstractmethod
    def turn_agent(self, agents: TurnAgents) -> TurnAgent:
        """Return the agent as a turn uses it; raise `ValueError`, `TypeError` or `SettingsError` if it cannot be used.

        Runs in a thread. Its model is `agents.model_of(self)`, its hooks are `agents.hooks` and then its own, and
        `agents.task_prompt` is added to its instructions. `agents.took_over(self)` is called once it acts.
        """

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return ToolResult(text=json.dumps({"assistant": self.name}), next_agent=await agents.prepare_handoff(self))


class TurnAgents:
    """The agents that a turn can hand off to; `known` maps names to agents.

    `model_of` returns the model of an agent. `hooks` run while any of them acts. `task_prompt` is added to their
    instructions, and each `TurnAgent` has these `endings_by_text`.
    """

    def __init__(
        self,
        model_of: Callable[[Any], ChatModel],
        hooks: HookRegistry,
        *,
        task_prompt: str = "",
        endings_by_text: Mapping[str, EndReason] | None = None,
    ) -> None:
        self.model_of = model_of
        self.hooks = hooks
        self.task_prompt = task_prompt
        self.endings_by_text: Mapping[str, EndReason] = endings_by_text or {}
        self.known: dict[str, AgentDefinition[Any, Any]] = {}
        self._made: dict[int, tuple[AgentDefinition[Any, Any], TurnAgent]] = {}

    def add_known(self, agents: Mapping[str, AgentDefinition[Any, Any]]) -> None:
        """Add agents by name; a name that is known already keeps its agent."""
        self.known = {**agents, **self.known}

    def of(self, agent: AgentDefinition[Any, Any]) -> TurnAgent:
        """Return `agent` as the turn uses it, always the same for the same object; raises as `turn_agent` does."""
        self.known.setdefault(agent.name, agent)
        if id(agent) not in self._made:
            self._made[id(agent)] = (agent, agent.turn_agent(self))
        return self._made[id(agent)][1]

    async def prepare_handoff(self, agent: AgentDefinition[Any, Any]) -> TurnAgent:
        """Return the agent of a handoff as `of` does, from a thread: finding its model may take requests."""
        from agenticx.threads import run_in_thread

        return await run_in_thread(self.of, agent, name="agx models")

    def took_over(self, agent: AgentDefinition[Any, Any]) -> None:
        """Called when `agent` begins to act; it does not if its handoff was blocked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnAgent(TurnChange):
    """An agent as a turn uses it.

    - `name` is the `agent_id` of its events.
    - `required_tool` is the tool that its first reply must call: a name, `""` for any tool, None for no requirement.
    - `parallel_calls=False` asks the model for one call at a time.
    - `shares_history`: other agents act in its sessions too. Their calls of tools that this agent does not have are
      sent to its model as text.
    - `organization_id` is in its log lines and `usage` events; a child turn's agent inherits it.
    - `endings_by_text`: an answer that contains a key ends the turn with the reason of the first such key.
    - `on_handoff` is called when a handoff has made it the acting agent.
    - `confirm_gate` is asked while it acts, and whoever it hands over to without a gate; None for the turn's gate.
    - `instructions` are the AGENTS.md files in its system prompt; None for none.
    - `max_rounds` and `output_type` hold for a turn that begins with it; None leaves them to the turn.
    """

    name: str
    model: ChatModel
    tools: Toolbox
    hooks: HookRegistry
    system_prompt: SystemPrompt = field(default=None, repr=False)
    sampling: Sampling = NO_SAMPLING
    required_tool: str | None = None
    parallel_calls: bool = True
    shares_history: bool = False
    organization_id: str | None = None
    endings_by_text: Mapping[str, EndReason] = field(default_factory=dict[str, EndReason])
    on_handoff: Callable[[], None] = lambda: None
    confirm_gate: ConfirmGate | None = None
    instructions: Instructions | None = field(default=None, repr=False)
    max_rounds: int | None = None
    output_type: Any = None

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return ToolResult(text=json.dumps({"assistant": self.name}), next_agent=self)

    def ending_of(self, answer: str) -> EndReason | None:
        """Return the reason with which an answer ends the turn, None if it contains no key of `endings_by_text`."""
        return next((reason for text, reason in self.endings_by_text.items() if text in answer), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(TurnChange):
    """A tool result that may change the turn.

    - `variables` are merged into the context variables.
    - `next_agent` acts from the next model call on; `reason` says why.
    - `ending` ends the turn after this round, and `answer` is the text of `final` if the model wrote none. The ending
      `"handoff"` hands off to `target`, an agent outside of the turn.

    If several calls of a round hand off or end the turn, the first counts and the others are answered as blocked.
    """

    text: str = ""
    variables: Mapping[str, Any] | None = None
    next_agent: TurnAgent | None = None
    reason: str = ""
    ending: EndReason | None = None
    target: str = ""
    answer: str = ""

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return self

    def handoff_data(self, from_agent: str) -> dict[str, str]:
        """Return the payload of the `handoff` event."""
        to_agent = self.target if self.next_agent is None else self.next_agent.name
        return {"from_agent": from_agent, "to_agent": to_agent, **({"reason": self.reason} if self.reason else {})}
