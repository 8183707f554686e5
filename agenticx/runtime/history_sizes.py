"""The size of a history: in characters, in estimated tokens, and for `run_sized`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agenticx.messages import Message, files_of

__all__ = ["TOKEN_CHARS", "count_characters", "estimate_tokens", "message_count_size"]

TOKEN_CHARS = 4
"""Characters per token, the usual rule of thumb for English and code."""

_MESSAGE_CHARS = 32


def count_characters(messages: Sequence[Message]) -> int:
    """Return the characters of a history, its attachments by their estimates."""
    count = _attachment_characters(messages)
    for message in messages:
        count += len(message.content)
        if message.role == "assistant":
            for call in message.tool_calls:
                count += len(call.arguments)
    return count


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return a rough token count: one per four bytes of UTF-8."""
    texts = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in _texts(messages))
    return (texts + _attachment_characters(messages)) // TOKEN_CHARS


def message_count_size(messages: Sequence[object]) -> int:
    """Return the size of a history for `run_sized`, for passes that look at each message and not at each character."""
    return _MESSAGE_CHARS * len(messages)


def _attachment_characters(messages: Sequence[Message]) -> int:
    """Return the estimated number of characters of all attachments."""
    return sum(attachment.estimated_chars for message in messages for attachment in files_of(message))


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the contents of the messages and the arguments of their calls."""
    for message in messages:
        yield message.content
        if message.role == "assistant":
            for call in message.tool_calls:
                yield call.arguments
