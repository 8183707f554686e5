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
    """Raised for a message or a topic that its receiver does not handle."""


class UndeliverableException(AgenticXError):
    """Raised for an undeliverable message: the receiver is unknown, the queue is full, or the runtime has ended."""


class UnknownAgentType(UndeliverableException, LookupError):
    """Raised for an agent type that is not registered."""


class AgentInstanceMissing(UndeliverableException, RuntimeError):
    """Raised for an unknown key of an agent type that was registered by instances, so that no agent can be made."""


class MessageDroppedException(AgenticXError):
    """Raised for a message or an answer that an intervention handler dropped."""


class SubscriptionExists(AgenticXError, ValueError):
    """Raised for a subscription that the runtime already has."""
