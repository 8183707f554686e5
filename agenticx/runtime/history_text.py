"""The texts of a history: its transcript as the input of a summary, its size, and calls told as text.

A model that sees calls of tools which it does not have imitates them, and some providers refuse the request. So calls
of tools which the reader lacks are told in the user's role, with their results, unless the reader itself made them in
this turn: names do not tell agents apart, and rows of an application need not name who spoke. What the reader can call
stays a call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from agenticx.foreign_text import MATERIAL, frame_lines, one_line
from agenticx.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    files_of,
)

__all__ = [
    "INPUT_CHARS",
    "calls_of_others_as_text",
    "count_attachment_characters",
    "count_characters",
    "message_texts",
    "render_transcript",
    "snippets",
]

_SNIPPET_CHARS = 200
INPUT_CHARS = 400_000
_ARGUMENT_CHARS = 2_000
"""Characters of a call's arguments that are told; results are told whole, as the reader may need them."""


def render_transcript(messages: Sequence[Message], limit: int = INPUT_CHARS) -> str:
    """Return the messages as a transcript; of one of more than `limit` characters only head and tail are rendered."""
    text = "\n\n".join(_first_messages(messages, limit + 1))
    if len(text) <= limit:
        return text
    half = limit // 2
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
            files = "".join(map(_render_file, message.attachments))
            return f"result of {message.name} ({message.outcome}): {message.content}{files}"
        case UserMessage():
            return f"user: {message.content}{''.join(map(_render_file, message.attachments))}"
        case SystemMessage():
            return f"system: {message.content}"


def _render_file(attachment: Attachment) -> str:
    return f"\n{attachment.framed_text if attachment.kind == 'text' else f'[attached {attachment.description}]'}"


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
    return sum(attachment.estimated_chars for message in messages for attachment in files_of(message))


def message_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the contents of the messages and the arguments of their calls."""
    for message in messages:
        yield message.content
        if message.role == "assistant":
            for call in message.tool_calls:
                yield call.arguments


# --- calls of other agents ---


def calls_of_others_as_text(
    tool_names: Collection[str], own_replies: Collection[str], messages: Sequence[Message]
) -> list[Message]:
    """Return valid `messages` as an agent is to read them that has tools of these names.

    `own_replies` are the ids of messages whose calls it has made itself, which stay as they are.
    """
    return list(_rewritten(frozenset(tool_names), own_replies, messages))


def _rewritten(
    tool_names: frozenset[str], own_replies: Collection[str], messages: Sequence[Message]
) -> Iterator[Message]:
    told: dict[str, ToolCall] = {}  # calls whose results follow and are told, by id
    lines: list[str] = []
    files: list[Attachment] = []
    sender: str | None = None
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in told:
            call = told.pop(message.tool_call_id)
            lines.append(_as_text(sender, call, message))
            files += message.attachments
            continue
        if lines and not isinstance(message, ToolMessage):
            yield _note(lines, files)
            lines, files = [], []
        if not isinstance(message, AssistantMessage) or message.message_id in own_replies:
            yield message
            continue
        sender, told = message.sender, {call.id: call for call in message.tool_calls if call.name not in tool_names}
        if not told:
            yield message
        else:
            kept = tuple(call for call in message.tool_calls if call.id not in told)
            if kept or message.content:
                yield message.model_copy(update={"tool_calls": kept, "provider_state": None})
    if lines:
        yield _note(lines, files)


def _note(lines: Sequence[str], files: Sequence[Attachment]) -> UserMessage:
    text = "\n".join(["[history] Earlier work:", *lines])
    return UserMessage(content=text, attachments=tuple(files), injected=True)


def _as_text(sender: str | None, call: ToolCall, result: ToolMessage) -> str:
    arguments = call.arguments
    if len(arguments) > _ARGUMENT_CHARS:
        arguments = f"{arguments[:_ARGUMENT_CHARS]}… ({len(call.arguments)} characters)"
    ending = "" if result.outcome == "ok" else f" ({result.outcome})"
    content = frame_lines(f"result of {call.name}", result.content, MATERIAL)
    separator = "\n" if "\n" in content else " "
    return f"- {sender or 'An agent'} used {call.name} with {one_line(arguments)}{ending}:{separator}{content}"
