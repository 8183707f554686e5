"""The agents that the sessions of a hub can have besides the main one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

from agenticx.argument_types import check_sequence, check_type
from agenticx.core.agent import Agent
from agenticx.core.handoff_tools import reachable_agents
from agenticx.errors import UnknownAgent
from agenticx.llms.base import ChatModel
from agenticx.llms.duck_typed.model import adapt
from agenticx.messages import MAIN_AGENT
from agenticx.runtime.hooks import HookRegistry
from agenticx.runtime.turn_agent import AgentDefinition, TurnAgent, TurnAgents

__all__ = ["SessionAgents", "checked_agents"]

_REMEMBERED_SESSIONS = 1_000
_HOW_TO_ADD = "a hub has others with open_hub(agents=[…]), a studio with create_app(agents=[…])"


class SessionAgents:
    """The `AgentSource` of a hub: the agents with which it was opened, and with which sessions were created.

    While this process keeps a session, an agent that has taken over in it replaces the one of its name. `models` finds
    a model by name; `hooks` run while any agent acts.
    """

    def __init__(
        self, agents: Iterable[Agent[Any, Any]], *, models: Callable[[str], ChatModel], hooks: HookRegistry
    ) -> None:
        self._by_name: dict[str, Agent[Any, Any]] = {agent.name: agent for agent in agents}
        self._taken_over: dict[str, Agent[Any, Any]] = {}  # the last one, by the id of its session
        self._models = models
        self._hooks = hooks

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def check_name(self, name: str) -> None:
        """Raise `UnknownAgent` for the name of no agent."""
        if not self._by_name:
            raise UnknownAgent(f"unknown agent {name!r}: the session has its main agent only; {_HOW_TO_ADD}")
        if name not in self._by_name:
            known = ", ".join(map(repr, self._by_name))
            problem = f"unknown agent {name!r}; known agents: {known}; null stands for the main agent; {_HOW_TO_ADD}"
            raise UnknownAgent(problem)

    def add(self, agent: AgentDefinition[Any, Any]) -> None:
        """Let sessions use one more agent, and the agents to which it can hand over.

        Raises `ValueError` for a name that is taken.
        """
        if self._by_name.get(agent.name) == agent:
            return
        added = {each.name: each for each in checked_agents([cast("Agent[Any, Any]", agent)])}
        for name, each in added.items():
            if name in self._by_name and self._by_name[name] != each:
                raise ValueError(
                    f"the hub has another agent called {name!r}, and sessions store the name alone: give this one "
                    "a name of its own, or one turn with hub.run(session_id, …, agent=agent)"
                )
        self._by_name |= added

    def find(self, name: str) -> Agent[Any, Any] | None:
        """Return the agent of that name, None if there is none."""
        return self._by_name.get(name)

    def agent(self, name: str, session_id: str, agents: TurnAgents) -> TurnAgent:
        """Return the agent of that name for a turn of the session, that of `agents`; raises as `check_name` does."""
        self.check_name(name)
        taken_over = self._taken_over.get(session_id)
        return agents.of(self._by_name[name] if taken_over is None or taken_over.name != name else taken_over)

    def for_turn(self, session_id: str, *, default: ChatModel, override: ChatModel | None) -> TurnAgents:
        """Return the agents of one turn; raises the error of `models` for a model that is not found."""

        def model_of(agent: Agent[Any, Any]) -> ChatModel:
            if override is not None or agent.model is None:
                return override or default
            return self._models(agent.model) if isinstance(agent.model, str) else adapt(agent.model)

        made = _TurnAgents(model_of, self._hooks, partial(self._took_over, session_id))
        made.add_known(self._by_name)
        return made

    def _took_over(self, session_id: str, agent: AgentDefinition[Any, Any]) -> None:
        """Let `agent` answer the next messages if it has the name of one of the hub's agents; a restart finds that."""
        self._taken_over.pop(session_id, None)
        if agent.name in self._by_name and isinstance(agent, Agent):
            self._taken_over[session_id] = agent
        while len(self._taken_over) > _REMEMBERED_SESSIONS:
            del self._taken_over[next(iter(self._taken_over))]


class _TurnAgents(TurnAgents):
    """The agents of one turn of a hub, whose models are found on its event loop."""

    def __init__(
        self,
        model_of: Callable[[Agent[Any, Any]], ChatModel],
        hooks: HookRegistry,
        on_taken_over: Callable[[AgentDefinition[Any, Any]], None],
    ) -> None:
        super().__init__(model_of, hooks)
        self._on_taken_over = on_taken_over

    async def prepare_handoff(self, agent: AgentDefinition[Any, Any]) -> TurnAgent:
        return self.of(agent)

    def took_over(self, agent: AgentDefinition[Any, Any]) -> None:
        self._on_taken_over(agent)


def checked_agents(agents: Iterable[Agent[Any, Any]]) -> tuple[Agent[Any, Any], ...]:
    """Return the agents of a hub, and all agents that they reach by declared handoffs.

    Raises `TypeError` for anything other than an agent, `ValueError` for a name that is taken.
    """
    check_sequence("agents", agents, "agents")
    checked = tuple(agents)
    for index, agent in enumerate(checked):
        check_type(f"agents[{index}]", agent, Agent, "an Agent")
    names = [agent.name for agent in checked]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"agents need names of their own; more than one is called {doubled[0]!r}")
    if MAIN_AGENT in names:
        raise ValueError(f"agents need names of their own; {MAIN_AGENT!r} is the main agent")
    reachable = reachable_agents(checked)
    return tuple(agent for agent in reachable.values() if isinstance(agent, Agent) and agent.name != MAIN_AGENT)
