"""The texts of a history: its transcript as the input of a summary, and its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolMessage, UserMessage

__all__ = ["count_attachment_characters", "count_characters", "iter_texts", "render", "snippets"]

_SNIPPET_CHARS = 200
_INPUT_CHARS = 400_000


def render(messages: Sequence[Message]) -> str:
    """Return the rows as a transcript; of a very long one only head and tail are rendered."""
    text = "\n\n".join(_first_rows(messages, _INPUT_CHARS + 1))
    if len(text) <= _INPUT_CHARS:
        return text
    half = _INPUT_CHARS // 2
    end = "\n\n".join(reversed(list(_first_rows(reversed(messages), half))))
    return f"{text[:half]}\n[… the middle was left out …]\n{end[-half:]}"


def _first_rows(messages: Iterable[Message], characters: int) -> Iterator[str]:
    """Yield the first rows as text, until they hold that many characters."""
    for message in messages:
        if characters <= 0:
            return
        text = _render_row(message)
        characters -= len(text)
        yield text


def _render_row(message: Message) -> str:
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
    what = f"\n[attached {attachment.name}, {attachment.media_type}]"
    return f"{what}\n{attachment.text}" if attachment.kind == "text" else what


def snippets(messages: Sequence[Message]) -> str:
    """Return the beginning of each row, the fallback for a summary on the AgentRuntime page."""
    rows = (_render_row(message) for message in messages)
    return "\n".join(row if len(row) <= _SNIPPET_CHARS else f"{row[:_SNIPPET_CHARS]}…" for row in rows)


def count_characters(messages: Sequence[Message]) -> int:
    """Return the characters of a history, its attachments by their estimates."""
    return sum(map(len, iter_texts(messages))) + count_attachment_characters(messages)


def count_attachment_characters(messages: Sequence[Message]) -> int:
    """Return the characters that stand for the attachments of a history."""
    return sum(
        attachment.estimated_chars
        for message in messages
        if isinstance(message, UserMessage)
        for attachment in message.attachments
    )


def iter_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the contents of the rows and the arguments of their calls."""
    for message in messages:
        yield message.content
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                yield call.arguments
