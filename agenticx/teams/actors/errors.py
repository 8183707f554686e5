"""The errors of the actor runtime, all of them `AgenticXError`."""

from __future__ import annotations

from agenticx.errors import AgenticXError

__all__ = [
    "AgentInstanceMissing",
    "CantHandleException",
    "MessageDroppedException",
    "SubscriptionExists",
    "UndeliverableException",
    "UnknownAgentType",
]


class CantHandleException(AgenticXError):
    """A message or a topic that its receiver does not handle."""


class UndeliverableException(AgenticXError):
    """A message that could not be delivered: the receiver is unknown, the queue is full, or the runtime has ended."""


class UnknownAgentType(UndeliverableException, LookupError):
    """An agent type that is not registered."""


class AgentInstanceMissing(UndeliverableException, RuntimeError):
    """A key without an agent, under a type whose agents were registered as instances and cannot be made."""


class MessageDroppedException(AgenticXError):
    """A message or an answer that an intervention handler dropped."""


class SubscriptionExists(AgenticXError, ValueError):
    """A subscription equal to one that the runtime has."""
