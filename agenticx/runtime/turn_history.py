"""The writer of a turn's messages: replies of the model, and reminders for it."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.llms.base import Reply
from agenticx.messages import AssistantMessage, Message, ToolCall, UserMessage, is_from_user
from agenticx.runtime.session import Session

__all__ = ["TurnHistory"]


class TurnHistory:
    """The writer of a turn's messages into the conversation.

    `message_id` is the id of the user's message that began the turn. `sender` is the acting agent's name on its
    replies, None if no other agent acts in the session.
    """

    def __init__(self, session: Session) -> None:
        self.message_id = ""
        self.sender: str | None = None
        self._session = session

    def append(self, message: Message) -> None:
        """Append a message to the conversation."""
        self._session.messages.append(message)

    def append_reply(self, reply: Reply, message_id: str, calls: Sequence[ToolCall] = ()) -> None:
        """Append the model's text and its usable `calls`; a reply with neither adds no message."""
        if not (reply.text or calls):
            return
        self.append(
            AssistantMessage(
                content=reply.text,
                reasoning=reply.reasoning,
                tool_calls=tuple(calls),
                provider_state=reply.provider_state,
                message_id=message_id,
                sender=self.sender,
            )
        )

    def append_reminder(self, text: str) -> None:
        """Append a text for the model in the user's role."""
        self.append(UserMessage(content=f"[reminder] {text[0].upper()}{text[1:]}", injected=True))

    def own_messages(self) -> Sequence[Message]:
        """Return the messages of this turn: the user's with the ones injected just before it, and all after it."""
        messages = self._session.messages
        said = [index for index, message in enumerate(messages) if is_from_user(message)]
        own = (index for index in said if messages[index].message_id == self.message_id)
        start = next(own, said[-1] if said else 0)
        while start and isinstance(before := messages[start - 1], UserMessage) and before.injected:
            start -= 1
        return messages[start:]
