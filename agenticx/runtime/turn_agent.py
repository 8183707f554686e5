"""The agent that acts in a turn: its model, instructions and tools, all of which a handoff replaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agenticx.llms.base import ChatModel
from agenticx.llms.sampling import NO_SAMPLING, Sampling
from agenticx.runtime.hooks import HookRegistry
from agenticx.tools.registry import Toolbox

__all__ = ["EndReason", "SystemPrompt", "ToolResult", "TurnAgent"]

SystemPrompt = str | Callable[[Mapping[str, Any]], Awaitable[str]] | None
"""Instructions, or a function that is given the context variables before each model call and returns them."""

EndReason = Literal["resolved", "not_resolved", "handoff"]
"""The `reason` of `final` in a turn that a call, or an answer that mentions one, has ended."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnAgent:
    """An agent as a turn uses it.

    `name` is the `agent_id` of its events. `required_tool` is the tool to call first: the name of one, `""` for any,
    None for none; once a call was made, the model is free. With `parallel_calls` False the model is asked for one call
    at a time. `shares_history` says that other agents act in its sessions too: calls of tools which this one does not
    have are sent to its model as text, but for those that it has made itself since it acts. `organization_id` is on its
    log lines and in its `usage` events; an agent below has that of the one above unless it has its own. An answer that
    mentions a key of `endings_by_text` ends the turn with the reason beside it; the first key that it mentions counts.
    `on_handover` is called when a handoff has made this the agent that acts.
    """

    name: str
    model: ChatModel
    tools: Toolbox
    hooks: HookRegistry
    system_prompt: SystemPrompt = None
    sampling: Sampling = NO_SAMPLING
    required_tool: str | None = None
    parallel_calls: bool = True
    shares_history: bool = False
    organization_id: str | None = None
    endings_by_text: Mapping[str, EndReason] = field(default_factory=dict[str, EndReason])
    on_handover: Callable[[], None] = lambda: None

    def ending_of(self, answer: str) -> EndReason | None:
        """Return the reason with which the text of an answer ends the turn, None if it is an answer like any other."""
        return next((reason for text, reason in self.endings_by_text.items() if text in answer), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
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

    def handoff_data(self, from_agent: str) -> dict[str, str]:
        """Return the payload of the `handoff` event of a result that hands over."""
        to_agent = self.target if self.handover is None else self.handover.name
        return {"from_agent": from_agent, "to_agent": to_agent, **({"reason": self.reason} if self.reason else {})}
