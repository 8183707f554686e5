"""The agents that the sessions of a hub can have besides the main one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agenticx.argument_types import check_type
from agenticx.core.agent import Agent
from agenticx.errors import UnknownAgent
from agenticx.llms.base import ChatModel
from agenticx.llms.duck_typed.model import adapt
from agenticx.runtime.agent_runtime import MAIN_AGENT
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.turn_agent import AgentDefinition, TurnAgent, TurnAgents

__all__ = ["SessionAgents", "checked_agents"]


class SessionAgents:
    """The `AgentSource` of a hub: the agents that it was opened with, or those of their names that took over since.

    `models` finds a model by name; `hooks` run while any agent acts.
    """

    def __init__(self, agents: Iterable[Agent], *, models: Callable[[str], ChatModel], hooks: HookRegistry) -> None:
        self._by_name = {agent.name: agent for agent in agents}
        self._models = models
        self._hooks = hooks

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def check_name(self, name: str) -> None:
        """Raise `UnknownAgent` for the name of no agent."""
        if not self._by_name:
            raise UnknownAgent(f"unknown agent {name!r}: there is the main agent only, which null stands for")
        if name not in self._by_name:
            known = ", ".join(map(repr, self._by_name))
            raise UnknownAgent(f"unknown agent {name!r}; known agents: {known}; null stands for the main agent")

    def agent(self, name: str, agents: TurnAgents) -> TurnAgent:
        """Return the agent of that name for the turn of `agents`; raises as `check_name` does."""
        self.check_name(name)
        return agents.of(self._by_name[name])

    def for_turn(self, *, default: ChatModel, override: ChatModel | None) -> TurnAgents:
        """Return the agents of one turn; to find their models raises the error of `models`."""

        def model_of(agent: Agent) -> ChatModel:
            if override is not None or agent.model is None:
                return override or default
            return self._models(agent.model) if isinstance(agent.model, str) else adapt(agent.model)

        return _TurnAgents(model_of, self._hooks, self._by_name)


class _TurnAgents(TurnAgents):
    """The agents of one turn of a hub, whose models are found on its event loop."""

    def __init__(self, model_of: Callable[[Agent], ChatModel], hooks: HookRegistry, by_name: dict[str, Agent]) -> None:
        super().__init__(model_of, hooks)
        self._by_name = by_name

    async def taking_over(self, agent: AgentDefinition) -> TurnAgent:
        return self.of(agent)

    def took_over(self, agent: AgentDefinition) -> None:
        """Let `agent` answer the next messages if it has the name of one of the hub's agents; a restart finds that."""
        if agent.name in self._by_name and isinstance(agent, Agent):
            self._by_name[agent.name] = agent


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
