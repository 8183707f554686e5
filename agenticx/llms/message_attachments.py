"""Messages with attachments, split into parts that a wire can send."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from agenticx.logs import get_logger
from agenticx.messages import Attachment, Message, ToolMessage, UserMessage

__all__ = [
    "DOCUMENT_TYPES",
    "IMAGE_TYPES",
    "chat_part",
    "content_parts",
    "data_url",
    "result_parts",
    "with_files_after_results",
]

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENT_TYPES = frozenset({"application/pdf"})

_log = get_logger(__name__)


def content_parts(message: UserMessage, supported: Container[str]) -> list[str | Attachment]:
    """Return the attachments, as text if their media type is not `supported`, and the user's text last.

    Text files are written out in a frame with their name. Any other unsupported file is replaced by a note, so that
    the model knows that it has not seen the file.
    """
    parts = [_content_part(attachment, supported) for attachment in message.attachments]
    return [*parts, message.content] if message.content else parts


def result_parts(message: ToolMessage, supported: Container[str]) -> tuple[str, list[Attachment]]:
    """Return the text of a result, including its unsupported files as text, and its `supported` files."""
    parts = [_content_part(attachment, supported) for attachment in message.attachments]
    texts = [message.content, *(part for part in parts if isinstance(part, str))]
    return "\n\n".join(filter(None, texts)), [part for part in parts if isinstance(part, Attachment)]


def with_files_after_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the files of results moved to a user message after them.

    It is for APIs with only text in the result of a call: Chat Completions (all servers), Ollama, and Gemini before
    version 3.
    """
    if not any(isinstance(message, ToolMessage) and message.attachments for message in messages):
        return list(messages)
    return list(_with_files_after(messages))


def _with_files_after(messages: Sequence[Message]) -> Iterator[Message]:
    results: list[ToolMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results += [message] if message.attachments else []
            yield message.model_copy(update={"attachments": ()}) if message.attachments else message
            continue
        if results:
            yield _files_message(results)
            results = []
        yield message
    if results:
        yield _files_message(results)


def _files_message(results: Sequence[ToolMessage]) -> UserMessage:
    files = [file for result in results for file in result.attachments]
    text = f"[results] The files of the results above, in this order: {', '.join(file.name for file in files)}."
    id_ = f"{results[0].message_id}_files"
    return UserMessage(content=text, attachments=tuple(files), injected=True, message_id=id_)


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
