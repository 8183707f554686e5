"""The tools made of the handoffs that an agent declares, and the agents that can be reached through them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from agenticx import user_code
from agenticx.core.handoffs import AnyAgent, handoff_name
from agenticx.llms.base import ToolSchema
from agenticx.messages import clean_text
from agenticx.runtime.turn_agent import AgentDefinition, ToolResult, TurnAgents
from agenticx.tools.base import Assessment
from agenticx.tools.context import ToolContext

__all__ = [
    "HandoffTool",
    "declared_targets",
    "handoff_message",
    "handoff_tools",
    "reachable_agents",
]


def handoff_message(target: str) -> str:
    """Return the default result of a handoff."""
    return f"Transferred to {target}, adopting the role of {target} immediately."


class HandoffTool:
    """The tool of a handoff: it takes an optional `reason` for `hand_over`; other arguments are ignored."""

    read_only = True
    timeout: float | None = None

    def __init__(
        self, name: str, description: str, target: str, hand_over: Callable[[str], Awaitable[ToolResult]]
    ) -> None:
        about = f"Why you hand over, and what {target} needs to know, such as a question to answer."
        parameters = {"type": "object", "properties": {"reason": {"type": "string", "description": about}}}
        self.schema = ToolSchema(name, description, parameters)
        self._hand_over = hand_over

    @property
    def name(self) -> str:
        return self.schema.name

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        return Assessment(risk="read")

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"reason": clean_text(str(arguments.get("reason") or ""))}

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._hand_over(arguments["reason"])


def declared_targets(agent: AnyAgent) -> Iterator[AnyAgent | str]:
    """Yield the agents, or their names, to which an agent declares to hand over; calls its functions."""
    for handoff in agent.handoffs:
        yield handoff if isinstance(handoff, str | AgentDefinition) else _returned_agent(handoff, agent.name)


def _returned_agent(function: Callable[[], Any], owner: str) -> AnyAgent:
    name = getattr(function, "__name__", type(function).__name__)
    what = f"the function {name} in handoffs of agent {owner!r}"
    target: object = user_code.call_sync(function, what=what)
    if inspect.iscoroutine(target):
        target.close()
    if not isinstance(target, AgentDefinition):
        raise TypeError(f"{what} must return an Agent, not {type(target).__name__}")
    return cast("AnyAgent", target)


def reachable_agents(agents: Iterable[AnyAgent]) -> dict[str, AnyAgent]:
    """Return by name the agents, and all that can be reached from them by declared handoffs."""
    found: dict[str, AnyAgent] = {}
    unread = list(agents)
    while unread:
        agent = unread.pop(0)
        if agent.name not in found:
            found[agent.name] = agent
            unread += [target for target in declared_targets(agent) if not isinstance(target, str)]
    return found


def handoff_tools(agent: AnyAgent, agents: TurnAgents) -> list[HandoffTool]:
    """Return the tools of the handoffs of an agent, to agents as the turn of `agents` uses them.

    Raises `ValueError` for a name that no agent of the turn has.
    """
    if not agent.handoffs:
        return []
    agents.add_known(reachable_agents([agent]))
    targets = list(declared_targets(agent))
    return [_handoff_tool(agent.name, target, agents) for target in targets]


def _handoff_tool(owner: str, target: AnyAgent | str, agents: TurnAgents) -> HandoffTool:
    if isinstance(target, str):
        found = agents.known.get(target)
        if found is None:
            known = ", ".join(map(repr, agents.known)) or "none"
            raise ValueError(
                f"agent {owner!r} hands over to {target!r}, which names no agent here; known agents: {known}; give the "
                "Agent itself, or open the hub with it"
            )
        target = found
    about = "".join([f", {target.role}" if target.role else "", ".", f" {target.goal}" if target.goal else ""])
    description = f"Hand over to {target.name}{about}"
    return HandoffTool(handoff_name(target.name), description, target.name, partial(_hand_over, target, agents))


async def _hand_over(target: AnyAgent, agents: TurnAgents, reason: str) -> ToolResult:
    next_agent = await agents.prepare_handoff(target)
    return ToolResult(text=handoff_message(target.name), next_agent=next_agent, reason=reason)
