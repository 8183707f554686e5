"""Messages with attachments, split into parts that a wire can send."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from agenticx.logs import get_logger
from agenticx.messages import Attachment, UserMessage

__all__ = ["DOCUMENT_TYPES", "IMAGE_TYPES", "chat_part", "content_parts", "data_url"]

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENT_TYPES = frozenset({"application/pdf"})

_log = get_logger(__name__)


def content_parts(message: UserMessage, supported: Container[str]) -> list[str | Attachment]:
    """Return the attachments, those not of the `supported` media types as text, and the user's text last.

    Text files are written out in a frame with their name. Any other unsupported file is replaced by a note, so that
    the model knows that it has not seen the file.
    """
    parts = [_content_part(attachment, supported) for attachment in message.attachments]
    return [*parts, message.content] if message.content else parts


def data_url(attachment: Attachment) -> str:
    """Return the attachment as a `data:` URL."""
    return f"data:{attachment.media_type};base64,{attachment.data}"


def chat_part(part: str | Attachment) -> dict[str, Any]:
    """Return a part as Chat Completions has it."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    return {"type": "file", "file": {"filename": part.name, "file_data": data_url(part)}}


def _content_part(attachment: Attachment, supported: Container[str]) -> str | Attachment:
    if attachment.media_type in supported:
        return attachment
    if attachment.kind == "text":
        return attachment.framed_text
    description = attachment.description
    _log.info("the model does not accept an attached file; a note in the prompt replaces it", file=description)
    return f"[attached file {description}: its content is not here, because you cannot be given files of this type]"
