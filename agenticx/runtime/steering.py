"""Messages for a running turn: put in by the application, taken by the turn between its rounds."""

from __future__ import annotations

from agenticx.attachments import check_attachments
from agenticx.messages import UserMessage, clean_text

__all__ = ["Steering"]


class Steering:
    """An inbox to pass to `run_turn` in its `context`; all methods must be called on the turn's event loop.

    Before each model call, after the results of the round before, the turn takes the messages in the inbox and emits
    one `steered` event for each. A turn that is about to end with its answer makes one more round for pending messages,
    if it has a round left. Once the turn is about to end, in any way, the inbox is closed: `put` returns False, and
    messages that the turn did not take stay in `left`, oldest first.
    """

    def __init__(self) -> None:
        self.left: tuple[UserMessage, ...] = ()
        self._closed = False

    def put(self, message: str | UserMessage) -> bool:
        """Add `message` for the turn; return False if the turn will not take it, because it is ending or over.

        Raises `AttachmentRefused` for attachments that are not accepted.
        """
        user_message = UserMessage(content=clean_text(message)) if isinstance(message, str) else message
        check_attachments(user_message.attachments)
        if not self._closed:
            self.left = (*self.left, user_message)
        return not self._closed

    @property
    def closed(self) -> bool:
        """True if `put` no longer accepts messages."""
        return self._closed

    def remove(self, message_id: str) -> bool:
        """Remove a message that the turn has not taken; return False if there is none with that id."""
        kept = tuple(message for message in self.left if message.message_id != message_id)
        is_found, self.left = len(kept) < len(self.left), kept
        return is_found

    # --- the turn's side ----------------------------------------------------------------------------------------------

    def take(self) -> tuple[UserMessage, ...]:
        """Remove and return the pending messages, oldest first."""
        messages, self.left = self.left, ()
        return messages

    def close(self) -> None:
        """Accept no more messages."""
        self._closed = True
