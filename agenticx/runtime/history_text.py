"""The texts of a history: its transcript as the input of a summary, and its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolMessage, UserMessage

__all__ = ["count_attachment_characters", "count_characters", "message_texts", "render_transcript", "snippets"]

_SNIPPET_CHARS = 200
_INPUT_CHARS = 400_000


def render_transcript(messages: Sequence[Message]) -> str:
    """Return the messages as a transcript; of a very long one only head and tail are rendered."""
    text = "\n\n".join(_first_messages(messages, _INPUT_CHARS + 1))
    if len(text) <= _INPUT_CHARS:
        return text
    half = _INPUT_CHARS // 2
    tail = "\n\n".join(reversed(list(_first_messages(reversed(messages), half))))
    return f"{text[:half]}\n[… the middle was left out …]\n{tail[-half:]}"


def _first_messages(messages: Iterable[Message], characters: int) -> Iterator[str]:
    """Yield the first messages as text, until they hold that many characters."""
    for message in messages:
        if characters <= 0:
            return
        text = _render_message(message)
        characters -= len(text)
        yield text


def _render_message(message: Message) -> str:
    match message:
        case AssistantMessage():
            calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
            return f"assistant: {message.content}{calls}"
        case ToolMessage():
            return f"result of {message.name} ({message.outcome}): {message.content}"
        case UserMessage():
            return f"user: {message.content}{''.join(map(_render_file, message.attachments))}"
        case SystemMessage():
            return f"system: {message.content}"


def _render_file(attachment: Attachment) -> str:
    heading = f"\n[attached {attachment.name}, {attachment.media_type}]"
    return f"{heading}\n{attachment.text}" if attachment.kind == "text" else heading


def snippets(messages: Sequence[Message]) -> str:
    """Return the beginning of each message, the fallback for a summary that failed."""
    texts = (_render_message(message) for message in messages)
    return "\n".join(text if len(text) <= _SNIPPET_CHARS else f"{text[:_SNIPPET_CHARS]}…" for text in texts)


def count_characters(messages: Sequence[Message]) -> int:
    """Return the characters of a history, its attachments by their estimates."""
    count = count_attachment_characters(messages)
    for message in messages:
        count += len(message.content)
        if message.role == "assistant":
            for call in message.tool_calls:
                count += len(call.arguments)
    return count


def count_attachment_characters(messages: Sequence[Message]) -> int:
    """Return the estimated number of characters of all attachments of a history."""
    return sum(
        attachment.estimated_chars
        for message in messages
        if message.role == "user"
        for attachment in message.attachments
    )


def message_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the contents of the messages and the arguments of their calls."""
    for message in messages:
        yield message.content
        if message.role == "assistant":
            for call in message.tool_calls:
                yield call.arguments
