"""The context of the agent that handles a message, and of the factory call that makes an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NoReturn

from agenticx.teams.actors.ids import AgentId, TopicId
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.context_scopes import scoped

__all__ = ["AgentInstantiationContext", "DefaultTopicId", "Handling", "current_handling"]


@dataclass(slots=True, eq=False)
class Handling:
    """One handler at work. `sends` is the number of its messages that wait for their answer or for room.

    `abandoned` is True if it ignored its cancellation and is no longer waited for.
    """

    runtime: MessageRuntime
    agent_id: AgentId
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    sends: int = 0
    cancelled: bool = False
    ended: bool = False
    abandoned: bool = False


current_handling: ContextVar[Handling | None] = ContextVar("agenticx_handling", default=None)
"""The handler in whose task, or in a task started by it, the code runs."""


class DefaultTopicId(TopicId):
    """A topic for the current context: its source is the handling agent's key, outside of handlers "default"."""

    __slots__ = ()

    def __init__(self, type: str = "default", source: str | None = None) -> None:
        if source is None:
            handling = current_handling.get()
            source = handling.agent_id.key if handling else "default"
        super().__init__(type, source)


class AgentInstantiationContext:
    """The runtime and the id for which a factory makes an agent; RuntimeError outside of a factory call."""

    _current: ContextVar[tuple[MessageRuntime, AgentId] | None] = ContextVar("agenticx_instantiation", default=None)

    def __new__(cls) -> NoReturn:
        raise TypeError("AgentInstantiationContext is used through its class methods")

    @classmethod
    @contextmanager
    def populate_context(cls, context: tuple[MessageRuntime, AgentId] | None) -> Generator[None]:
        """Let agents made in the block belong to `(runtime, agent_id)`; None: to no runtime."""
        with scoped(cls._current, context):
            yield

    @classmethod
    def is_in_factory_call(cls) -> bool:
        return cls._current.get() is not None

    @classmethod
    def current_runtime(cls) -> MessageRuntime:
        """Return the runtime for which an agent is made."""
        return cls._get()[0]

    @classmethod
    def current_agent_id(cls) -> AgentId:
        """Return the id of the agent that is made."""
        return cls._get()[1]

    @classmethod
    def _get(cls) -> tuple[MessageRuntime, AgentId]:
        context = cls._current.get()
        if context is None:
            raise RuntimeError("no agent is being made: this is known in a factory call of a runtime only")
        return context
