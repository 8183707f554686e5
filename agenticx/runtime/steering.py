"""Messages for a turn that runs already: put in by whoever talks to it, taken in by the turn between its rounds."""

from __future__ import annotations

from agenticx.attachments import check_attachments
from agenticx.messages import UserMessage, clean_text

__all__ = ["Steering"]


class Steering:
    """An inbox to hand to `run_turn`; all calls belong on the turn's event loop.

    Before each model call, after the results of the round before, the turn takes in what is there and says so with one
    `steered` event for each message. A turn that is about to end with its answer makes one more round for what is
    there, if it has a round left. From the moment it has settled on its end, whatever that is, it takes nothing any
    more: `put` says so, and what it did not take in stays in `left`.
    """

    def __init__(self) -> None:
        self._messages: list[UserMessage] = []
        self._closed = False

    def put(self, message: str | UserMessage) -> bool:
        """Have the turn take in `message`; False if it will not, because it is ending or over.

        Raises `AttachmentRefused` for attachments that are not let in.
        """
        user_message = UserMessage(content=clean_text(message)) if isinstance(message, str) else message
        check_attachments(user_message.attachments)
        if not self._closed:
            self._messages.append(user_message)
        return not self._closed

    @property
    def closed(self) -> bool:
        """Whether `put` would be in vain."""
        return self._closed

    @property
    def left(self) -> tuple[UserMessage, ...]:
        """What was put in and not taken in, oldest first."""
        return tuple(self._messages)

    # --- the turn's side ----------------------------------------------------------------------------------------------

    def take(self) -> list[UserMessage]:
        """What waits, oldest first; the turn's own from now on."""
        taken, self._messages = self._messages, []
        return taken

    def close(self) -> None:
        """Nothing more will be taken."""
        self._closed = True
