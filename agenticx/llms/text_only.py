"""A wrapper for models that do not see: text files are written out, other files are only mentioned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from agenticx.llms._attachments import message_pieces
from agenticx.llms.base import Delta, ModelRequest
from agenticx.llms.wrapping import Wrapper
from agenticx.messages import Message, UserMessage

__all__ = ["TextOnlyModel", "in_text"]


class TextOnlyModel(Wrapper):
    """`model`, which gets no image or document: providers refuse a whole request for one."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches."""
        return self._model.stream(replace(request, messages=[in_text(message) for message in request.messages]))


def in_text(message: Message) -> Message:
    """The message with what came with it as text."""
    if not (isinstance(message, UserMessage) and message.attachments):
        return message
    text = "\n\n".join(piece for piece in message_pieces(message, ()) if isinstance(piece, str))
    return message.model_copy(update={"content": text, "attachments": ()})
