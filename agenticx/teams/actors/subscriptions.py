"""Subscriptions: rules by which published messages reach agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from agenticx.messages import new_id
from agenticx.teams.actors.errors import CantHandleException
from agenticx.teams.actors.ids import AgentId, AgentType, TopicId

__all__ = [
    "DefaultSubscription",
    "Subscription",
    "TypeSubscription",
    "class_subscriptions",
    "default_subscription",
    "type_subscription",
]

ClassT = TypeVar("ClassT", bound=type[Any])

_TOPIC_TYPES = "_subscribed_topic_types"


@runtime_checkable
class Subscription(Protocol):
    """A rule that maps topics to agents; equal subscriptions are added to a runtime once."""

    @property
    def id(self) -> str:
        """The id by which the subscription is removed."""
        ...

    def is_match(self, topic_id: TopicId) -> bool:
        """Return whether messages of this topic reach an agent."""
        ...

    def map_to_agent(self, topic_id: TopicId) -> AgentId:
        """Return the agent that gets messages of this topic; raises `CantHandleException` if it does not match."""
        ...


class TypeSubscription:
    """A subscription of an agent type to a topic type, exactly; the agent's key is the topic's source.

    Equal to any other with the same two types.
    """

    def __init__(self, topic_type: str, agent_type: str | AgentType, id: str | None = None) -> None:
        self._topic_type = topic_type
        self._agent_type: str | None = str(agent_type)
        self._id = id or new_id("sub")

    @property
    def id(self) -> str:
        return self._id

    @property
    def topic_type(self) -> str:
        return self._topic_type

    @property
    def agent_type(self) -> str:
        """The type of the agents that get the messages; raises `CantHandleException` before it is known."""
        if self._agent_type is None:
            raise CantHandleException(
                f"the subscription to topic type {self._topic_type!r} has no agent type; pass one, or pass the "
                "subscription to `register`"
            )
        return self._agent_type

    @property
    def is_bound(self) -> bool:
        """True if the agent type is known."""
        return self._agent_type is not None

    def is_match(self, topic_id: TopicId) -> bool:
        return topic_id.type == self._topic_type

    def map_to_agent(self, topic_id: TopicId) -> AgentId:
        if not self.is_match(topic_id):
            raise CantHandleException(f"topic {topic_id} is not of type {self._topic_type!r}")
        return AgentId(self.agent_type, topic_id.source)

    def bound_to(self, agent_type: AgentType) -> TypeSubscription:
        """Return the subscription for `agent_type` if it has no agent type, else itself."""
        if self._agent_type is not None:
            return self
        return TypeSubscription(self._topic_type, agent_type, self._id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeSubscription):
            return NotImplemented
        return (self._topic_type, self._agent_type) == (other._topic_type, other._agent_type)

    def __hash__(self) -> int:
        return hash((self._topic_type, self._agent_type))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._topic_type!r}, {self._agent_type!r})"


class DefaultSubscription(TypeSubscription):
    """A subscription to the topic type "default"; without an agent type it gets that of the `register` call."""

    def __init__(self, topic_type: str = "default", agent_type: str | AgentType | None = None) -> None:
        super().__init__(topic_type, agent_type or "")
        if agent_type is None:
            self._agent_type = None


def type_subscription(topic_type: str) -> Callable[[ClassT], ClassT]:
    """Return a class decorator that subscribes the agents of the class to `topic_type` when they are registered."""

    def decorate(class_: ClassT) -> ClassT:
        setattr(class_, _TOPIC_TYPES, (*getattr(class_, _TOPIC_TYPES, ()), topic_type))
        return class_

    return decorate


@overload
def default_subscription(class_: ClassT) -> ClassT: ...
@overload
def default_subscription(class_: None = None) -> Callable[[ClassT], ClassT]: ...
def default_subscription(class_: ClassT | None = None) -> ClassT | Callable[[ClassT], ClassT]:
    """Subscribe the agents of a class to the topic type "default" when they are registered.

    A class decorator, also with empty brackets.
    """
    decorate: Callable[[ClassT], ClassT] = type_subscription("default")
    return decorate if class_ is None else decorate(class_)


def class_subscriptions(class_: object, agent_type: AgentType) -> Sequence[TypeSubscription]:
    """Return the subscriptions that decorators gave a class and its bases, each once."""
    topic_types: tuple[str, ...] = getattr(class_, _TOPIC_TYPES, ())
    return [TypeSubscription(topic_type, agent_type) for topic_type in dict.fromkeys(topic_types)]
