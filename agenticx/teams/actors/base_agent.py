"""The base class of agents that know their id and their runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, final

from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.errors import SubscriptionExists
from agenticx.teams.actors.handling import AgentInstantiationContext
from agenticx.teams.actors.ids import AgentId, AgentMetadata, AgentType, TopicId
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.actors.subscriptions import class_subscriptions

__all__ = ["BaseAgent"]


class BaseAgent(ABC):
    """An agent of a message runtime.

    One that is made in a factory call of a runtime knows its id and runtime at once; another is bound by
    `register_instance`.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._bound: tuple[MessageRuntime, AgentId] | None = None
        if AgentInstantiationContext.is_in_factory_call():
            self._bound = AgentInstantiationContext.current_runtime(), AgentInstantiationContext.current_agent_id()

    # --- identity -----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> AgentId:
        """The agent's id; RuntimeError before it is bound to a runtime."""
        return self._binding()[1]

    @property
    def type(self) -> str:
        return self.id.type

    @property
    def runtime(self) -> MessageRuntime:
        """The agent's runtime; RuntimeError before it is bound to one."""
        return self._binding()[0]

    @property
    def metadata(self) -> AgentMetadata:
        return AgentMetadata(self.id.key, self.id.type, self._description)

    def _binding(self) -> tuple[MessageRuntime, AgentId]:
        if self._bound is None:
            raise RuntimeError(
                f"this {type(self).__name__} belongs to no runtime: register it with `register_instance`, or make it "
                "in a factory"
            )
        return self._bound

    async def bind_id_and_runtime(self, id: AgentId, runtime: MessageRuntime) -> None:
        """Bind the agent to a runtime; RuntimeError if it is bound to another, or under another id."""
        if self._bound is not None and (self._bound[0] is not runtime or self._bound[1] != id):
            raise RuntimeError(f"agent {self._bound[1]} cannot become {id}: it is bound to its runtime already")
        self._bound = runtime, id

    # --- messages -----------------------------------------------------------------------------------------------------

    @final
    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        return await self.on_message_impl(message, ctx)

    @abstractmethod
    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Return the answer to `message`; the answer to a published message is dropped."""
        ...

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Return the answer of another agent, as the runtime's `send_message` does."""
        return await self.runtime.send_message(
            message, recipient, sender=self.id, cancellation_token=cancellation_token, message_id=message_id
        )

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Publish a message, as the runtime's `publish_message` does; this agent does not get it."""
        await self.runtime.publish_message(
            message, topic_id, sender=self.id, cancellation_token=cancellation_token, message_id=message_id
        )

    # --- state --------------------------------------------------------------------------------------------------------

    async def save_state(self) -> Mapping[str, Any]:
        """Return the agent's state as a JSON mapping, empty for an agent without state."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` returned; ValueError if an agent without state is given one."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state to load {sorted(state)} into; override `load_state`")

    async def close(self) -> None:
        """Release resources; called when the runtime is closed."""
        return

    # --- registration -------------------------------------------------------------------------------------------------

    async def register_instance(
        self, runtime: MessageRuntime, agent_id: AgentId, *, skip_class_subscriptions: bool = True
    ) -> AgentId:
        """Register this agent; ValueError as `register_agent_instance` of the runtime."""
        await runtime.register_agent_instance(self, agent_id)
        if not skip_class_subscriptions:
            await _subscribe(type(self), runtime, AgentType(agent_id.type))
        return agent_id

    @classmethod
    async def register(
        cls,
        runtime: MessageRuntime,
        type: str | AgentType,
        factory: Callable[[], Any],
        *,
        skip_class_subscriptions: bool = False,
    ) -> AgentType:
        """Register a factory of agents of this class, plain or async, with the subscriptions of the class."""
        agent_type = await runtime.register_factory(type, factory, expected_class=cls)
        if not skip_class_subscriptions:
            await _subscribe(cls, runtime, agent_type)
        return agent_type


async def _subscribe(class_: object, runtime: MessageRuntime, agent_type: AgentType) -> None:
    for subscription in class_subscriptions(class_, agent_type):
        with suppress(SubscriptionExists):  # another instance of the type has it
            await runtime.add_subscription(subscription)
