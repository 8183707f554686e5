"""Interception of messages: handlers that see, replace or drop what is sent, published and answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

from agenticx import user_code
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.errors import MessageDroppedException
from agenticx.teams.actors.ids import AgentId

__all__ = ["DefaultInterventionHandler", "DropMessage", "InterventionHandler", "Interventions"]


@final
class DropMessage:
    """A marker that an intervention handler returns, the class or an instance, to drop the message."""


@runtime_checkable
class InterventionHandler(Protocol):
    """Code that gets each message before it is queued, and each answer before it is returned.

    A method returns the message, another message, or `DropMessage`; for `DropMessage` the sender gets
    `MessageDroppedException`. An error of a method reaches the sender.
    """

    async def on_send(self, message: Any, *, message_context: MessageContext, recipient: AgentId) -> Any:
        """Return the message to send to `recipient`."""
        return message

    async def on_publish(self, message: Any, *, message_context: MessageContext) -> Any:
        """Return the message to publish on the topic of the context."""
        return message

    async def on_response(self, message: Any, *, sender: AgentId, recipient: AgentId | None) -> Any:
        """Return the answer of agent `sender` to `recipient`, which is None for a caller that is no agent."""
        return message


class DefaultInterventionHandler(InterventionHandler):
    """An intervention handler that changes nothing: a base for handlers that override one method."""


@dataclass(frozen=True, slots=True)
class Interventions:
    """The intervention handlers of a runtime, called in their order; missing methods are skipped."""

    handlers: Sequence[InterventionHandler]

    async def apply(self, name: str, message: Any, **details: Any) -> Any:
        """Pass a message through the methods `name`; raises `MessageDroppedException` and their errors."""
        for handler in self.handlers:
            method: Callable[..., Any] | None = getattr(handler, name, None)
            if method is None:
                continue
            what = f"{type(handler).__name__}.{name}"
            message = await user_code.call_in_place(partial(method, message, **details), what=what)
            if message is DropMessage or isinstance(message, DropMessage):
                raise MessageDroppedException(f"{what} dropped the message")
        return message
