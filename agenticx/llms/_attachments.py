"""What a message with attachments says, in pieces: what a wire has a place for stays a file, the rest becomes text."""

from __future__ import annotations

from collections.abc import Container

from agenticx.logs import get_logger
from agenticx.messages import Attachment, UserMessage

__all__ = ["DOCUMENTS", "IMAGES", "data_url", "message_pieces"]

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENTS = frozenset({"application/pdf"})

_log = get_logger(__name__)


def message_pieces(message: UserMessage, taken: Container[str]) -> list[str | Attachment]:
    """Attachments of the `taken` media types as they are, other ones as text, and what the person said last.

    Text files are written out under a line with their name. For what cannot be said in text there is a note, so that
    the model knows that it has not seen the file.
    """
    pieces = [_piece(attachment, taken) for attachment in message.attachments]
    return [*pieces, message.content] if message.content else pieces


def data_url(attachment: Attachment) -> str:
    """The attachment as a `data:` URL."""
    return f"data:{attachment.media_type};base64,{attachment.data}"


def _piece(attachment: Attachment, taken: Container[str]) -> str | Attachment:
    if attachment.media_type in taken:
        return attachment
    what = f"{attachment.name} ({attachment.media_type}, {attachment.size} bytes)"
    if attachment.kind == "text":
        return f"[attached file {what}]\n{attachment.text}\n[end of {attachment.name}]"
    _log.info("the model cannot take an attached file; it is told so", file=what)
    return f"[attached file {what}: its content is not here, because you cannot be given files of this type]"
