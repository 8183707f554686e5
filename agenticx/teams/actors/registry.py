"""The agents of a runtime: their types, factories and instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agenticx import user_code
from agenticx.logs import get_logger
from agenticx.teams.actors.errors import AgentInstanceMissing, UnknownAgentType
from agenticx.teams.actors.handling import AgentInstantiationContext, current_handling
from agenticx.teams.actors.ids import AgentId, AgentType
from agenticx.teams.actors.protocols import MessageRuntime

__all__ = ["AgentRegistry"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _AgentKind:
    """An agent type: the factory of its agents, or None and the class of its instances."""

    factory: Callable[[], Any] | None
    class_: type[Any] | None


class AgentRegistry:
    """The agents of one runtime; each is made once, also if several messages for it arrive at the same time."""

    def __init__(self, runtime: MessageRuntime) -> None:
        self._runtime = runtime
        self._kinds: dict[str, _AgentKind] = {}
        self._agents: dict[AgentId, Any] = {}
        self._builds: dict[AgentId, asyncio.Task[Any]] = {}

    @property
    def agents(self) -> Mapping[AgentId, Any]:
        """The agents that were made or registered so far."""
        return self._agents

    def add_factory(self, agent_type: AgentType, factory: Callable[[], Any], expected_class: type[Any] | None) -> None:
        """Register a factory; ValueError if the type is known."""
        if (kind := self._kinds.get(agent_type.type)) is not None:
            what = "has instances" if kind.factory is None else "is registered already"
            raise ValueError(f"agent type {agent_type.type!r} {what}")
        self._kinds[agent_type.type] = _AgentKind(factory, expected_class)

    async def add_instance(self, agent_id: AgentId, agent: Any) -> None:
        """Register an agent; ValueError for a known id, for another class and for a type that has a factory."""
        kind = self._kinds.get(agent_id.type, _AgentKind(None, agent.__class__))
        if kind.factory is not None:
            raise ValueError(f"agent type {agent_id.type!r} has a factory, which makes all its agents")
        if agent_id in self._agents:
            raise ValueError(f"there is an agent {agent_id} already")
        if kind.class_ is not agent.__class__:
            raise ValueError(f"the agents of type {agent_id.type!r} are of {kind.class_}, not {agent.__class__}")
        await self._bind(agent_id, agent)
        self._kinds[agent_id.type] = kind
        self._agents[agent_id] = agent

    def check(self, agent_id: AgentId) -> None:
        """Raise `UnknownAgentType` or `AgentInstanceMissing` if there cannot be such an agent."""
        kind = self._kinds.get(agent_id.type)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            raise UnknownAgentType(f"there is no agent type {agent_id.type!r}; registered: {known}")
        if kind.factory is None and agent_id not in self._agents:
            raise AgentInstanceMissing(
                f"there is no agent {agent_id}: the agents of this type were registered as instances; register one "
                "with this key, or leave out a subscription that maps a topic to it"
            )

    async def get(self, agent_id: AgentId) -> Any:
        """Return the agent, made if needed; raises as `check` does, and the factory's error."""
        self.check(agent_id)
        if agent_id in self._agents:
            return self._agents[agent_id]
        build = self._builds.get(agent_id)
        if build is None:
            build = self._builds[agent_id] = asyncio.create_task(self._build(agent_id))
            build.add_done_callback(lambda build: self._on_built(agent_id, build))
        await asyncio.wait({build})
        return build.result()

    async def abandon_builds(self) -> None:
        """Cancel the factories that are at work."""
        builds = [user_code.abandon(build, f"factory of agent {id_}") for id_, build in self._builds.items()]
        await asyncio.gather(*builds)

    async def _build(self, agent_id: AgentId) -> Any:
        kind = self._kinds[agent_id.type]
        assert kind.factory is not None
        current_handling.set(None)
        with AgentInstantiationContext.populate_context((self._runtime, agent_id)):
            agent = await user_code.call_in_place(kind.factory, what=f"factory of agent {agent_id}")
        if kind.class_ is not None and not isinstance(agent, kind.class_):
            raise ValueError(f"the factory of agent {agent_id} made a {type(agent)}, not a {kind.class_}")
        await self._bind(agent_id, agent)
        self._agents[agent_id] = agent
        return agent

    async def _bind(self, agent_id: AgentId, agent: Any) -> None:
        if not callable(getattr(agent, "on_message", None)):
            raise TypeError(f"agent {agent_id} is a {type(agent)} without a method `on_message(message, ctx)`")
        if (bind := getattr(agent, "bind_id_and_runtime", None)) is not None:
            await bind(agent_id, self._runtime)

    def _on_built(self, agent_id: AgentId, build: asyncio.Task[Any]) -> None:
        self._builds.pop(agent_id, None)
        if not build.cancelled() and (exc := build.exception()) is not None:
            _log.error("Error constructing agent", agent_id=str(agent_id), exc_info=exc)
