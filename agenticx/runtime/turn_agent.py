"""The agent that acts in a turn: its model, instructions and tools, all of which a handoff replaces.

A tool hands over by returning a `TurnChange`, such as an `Agent` or a `Result` of `agenticx.core`; `TurnAgents` makes
of it the agent that acts next, in every turn alike. Such a value is never sent to a model, see
`calls.result_rendering`.
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
"""Instructions, or a function that is given the context variables before each model call and returns them."""

EndReason = Literal["answer", "resolved", "not_resolved", "handoff"]
"""The `reason` of `final` in a turn that a call, or an answer that mentions one, has ended."""


class TurnChange(ABC):
    """A base class of the values by which a tool changes the turn as well as answers its call."""

    @abstractmethod
    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        """Return the change as the turn makes it; `agents` makes the agent that takes over."""


class AgentDefinition(TurnChange, Generic[DepsT, OutputT]):
    """A base class of agents as applications describe them; a tool that returns one hands over to it.

    `handoffs` are the agents to which it declares to hand over: agents, names, and functions that return an agent.
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

        Runs in a thread. Its model is `agents.model_of(self)`; its own hooks follow `agents.hooks`, and
        `agents.task_prompt` its instructions. `agents.took_over(self)` is called once it acts.
        """

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return ToolResult(text=json.dumps({"assistant": self.name}), handover=await agents.prepare_handoff(self))


class TurnAgents:
    """The agents to which a turn can hand over, each as the turn uses it; `known` are those that a name stands for.

    `model_of` returns the model of an agent. `hooks` run while any of them acts. `task_prompt` ends their instructions;
    `endings_by_text` are those of each `TurnAgent`.
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
        """Let names stand for these agents, unless they stand for others already."""
        self.known = {**agents, **self.known}

    def of(self, agent: AgentDefinition[Any, Any]) -> TurnAgent:
        """Return `agent` as the turn uses it, the same for the same object; raises as `turn_agent` does."""
        self.known.setdefault(agent.name, agent)
        if id(agent) not in self._made:
            self._made[id(agent)] = (agent, agent.turn_agent(self))
        return self._made[id(agent)][1]

    async def prepare_handoff(self, agent: AgentDefinition[Any, Any]) -> TurnAgent:
        """Return the agent of a handoff as `of` does, in a thread: to find its model may take requests."""
        from agenticx.threads import run_in_thread

        return await run_in_thread(self.of, agent, name="agx models")

    def took_over(self, agent: AgentDefinition[Any, Any]) -> None:
        """Take note that `agent` acts from now on; it did not if its handoff was blocked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnAgent(TurnChange):
    """An agent as a turn uses it.

    `name` is the `agent_id` of its events. `required_tool` is the tool to call first: the name of one, `""` for any,
    None for none; once a call was made, the model is free. With `parallel_calls` False the model is asked for one call
    at a time. `shares_history` says that other agents act in its sessions too: calls of tools which this one does not
    have are sent to its model as text, but for those that it has made itself since it acts. `organization_id` is on its
    log lines and in its `usage` events; an agent below has that of the one above unless it has its own. An answer that
    mentions a key of `endings_by_text` ends the turn with the reason beside it; the first key that it mentions counts.
    `on_handover` is called when a handoff has made this the agent that acts.

    `confirm_gate` is asked while the agent acts, None for the gate of the turn. A turn that begins with the agent makes
    at most `max_rounds` model calls, and its answer is of the `output_type`; None for what the turn has.
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
    on_handover: Callable[[], None] = lambda: None
    confirm_gate: ConfirmGate | None = None
    max_rounds: int | None = None
    output_type: Any = None

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return ToolResult(text=json.dumps({"assistant": self.name}), handover=self)

    def ending_of(self, answer: str) -> EndReason | None:
        """Return the reason with which the text of an answer ends the turn, None if it is an answer like any other."""
        return next((reason for text, reason in self.endings_by_text.items() if text in answer), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(TurnChange):
    """A value that a tool may return to change the turn as well as to answer its call.

    `variables` are merged into the context variables. With `handover`, that agent acts from the next model call on;
    `reason` says why. With `ending` the turn ends after this round, and `answer` is the text of `final` if the model
    wrote none; with `"handoff"` it ends by handing over to `target`, an agent that acts elsewhere. Of several calls of
    a round that hand over or end it the first counts, and the others are answered as blocked.
    """

    text: str = ""
    variables: Mapping[str, Any] | None = None
    handover: TurnAgent | None = None
    reason: str = ""
    ending: EndReason | None = None
    target: str = ""
    answer: str = ""

    async def tool_result(self, agents: TurnAgents) -> ToolResult:
        return self

    def handoff_data(self, from_agent: str) -> dict[str, str]:
        """Return the payload of the `handoff` event of a result that hands over."""
        to_agent = self.target if self.handover is None else self.handover.name
        return {"from_agent": from_agent, "to_agent": to_agent, **({"reason": self.reason} if self.reason else {})}
