"""The protocol of the runtime that delivers the messages of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.ids import AgentId, AgentType, TopicId
from agenticx.teams.actors.subscriptions import Subscription

__all__ = ["MessageRuntime"]

AgentT = TypeVar("AgentT")


@runtime_checkable
class MessageRuntime(Protocol):
    """The delivery of messages to agents, which it makes when a message for them arrives.

    A handler runs in a copy of the sender's context (`contextvars`), so that it is part of the sender's turn and run.
    `SingleThreadedAgentRuntime` implements it in the process and documents the methods.
    """

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any: ...

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None: ...

    async def register(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], Any],
        subscriptions: Sequence[Subscription] | None = None,
    ) -> AgentType: ...

    async def register_factory(
        self, type: str | AgentType, agent_factory: Callable[[], Any], *, expected_class: type[Any] | None = None
    ) -> AgentType: ...

    async def register_agent_instance(self, agent: Any, agent_id: AgentId) -> AgentId: ...

    async def get_agent(self, agent_id: AgentId) -> Any: ...

    async def get(
        self, id_or_type: AgentId | AgentType | str, key: str = "default", *, lazy: bool = True
    ) -> AgentId: ...

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[AgentT] = object) -> AgentT: ...

    async def add_subscription(self, subscription: Subscription) -> None: ...

    async def remove_subscription(self, id: str) -> None: ...

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def stop_when_idle(self) -> None: ...

    async def close(self) -> None: ...

    async def process_next(self) -> None: ...

    @property
    def unprocessed_messages_count(self) -> int: ...

    async def save_state(self) -> Mapping[str, Any]: ...

    async def load_state(self, state: Mapping[str, Any], /) -> None: ...
