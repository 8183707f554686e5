"""The context of a message."""

from __future__ import annotations

from dataclasses import dataclass, field

from agenticx.messages import new_id
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.ids import AgentId, TopicId

__all__ = ["MessageContext"]


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The context of one message; `is_rpc` distinguishes a sent message, which is answered, from a published one."""

    sender: AgentId | None
    topic_id: TopicId | None
    is_rpc: bool
    cancellation_token: CancellationToken
    message_id: str = field(default_factory=lambda: new_id("msg"))
