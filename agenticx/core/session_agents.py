"""The agents that the sessions of a hub can have besides the main one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agenticx.argument_types import check_type
from agenticx.core.agent import Agent
from agenticx.core.turn_agents import TurnAgents
from agenticx.errors import UnknownAgent
from agenticx.llms.base import ChatModel
from agenticx.llms.duck_typed.model import adapt
from agenticx.runtime.agent_runtime import MAIN_AGENT
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.turn_agent import TurnAgent
from agenticx.tools.base import Tool

__all__ = ["SessionAgents", "checked_agents"]


class SessionAgents:
    """The `AgentSource` of a hub: the agents that it was opened with, and those that took over since.

    `models` finds a model by name; `hooks` run while any agent acts.
    """

    def __init__(self, agents: Iterable[Agent], *, models: Callable[[str], ChatModel], hooks: HookRegistry) -> None:
        self._by_name = {agent.name: agent for agent in agents}
        self._models = models
        self._hooks = hooks

    def check_name(self, name: str) -> None:
        """Raise `UnknownAgent` for the name of no agent."""
        if name not in self._by_name:
            known = ", ".join(map(repr, self._by_name)) or "none"
            raise UnknownAgent(f"unknown agent {name!r}; known agents: {known}; null stands for the main agent")

    def agent(self, name: str, *, default: ChatModel, override: ChatModel | None) -> TurnAgent:
        """Return the agent of that name for one turn; raises as `check_name` does, and the error of `models`."""
        self.check_name(name)
        return self._for_turn(default, override).of(self._by_name[name])

    def main_tools(self, tools: Sequence[Tool], *, default: ChatModel, override: ChatModel | None) -> Sequence[Tool]:
        """Return the main agent's tools for one turn."""
        return self._for_turn(default, override).handing_over(tools)

    def _for_turn(self, default: ChatModel, override: ChatModel | None) -> TurnAgents:
        def model_of(agent: Agent) -> ChatModel:
            if override is not None or agent.model is None:
                return override or default
            return self._models(agent.model) if isinstance(agent.model, str) else adapt(agent.model)

        return _TurnAgents(model_of, self._hooks, by_name=self._by_name)


class _TurnAgents(TurnAgents):
    """The agents of one turn of a hub, whose models are found on its event loop."""

    async def taking_over(self, agent: Agent) -> TurnAgent:
        return self.of(agent)


def checked_agents(agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """Return the agents of a hub; raise `TypeError` for what is none, `ValueError` for a name that is taken."""
    checked = tuple(agents)
    for agent in checked:
        check_type("agents", agent, Agent, "agents of agenticx.core")
    names = [agent.name for agent in checked]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"agents need names of their own; more than one is called {doubled[0]!r}")
    if MAIN_AGENT in names:
        raise ValueError(f"agents need names of their own; {MAIN_AGENT!r} is the main agent")
    return checked
