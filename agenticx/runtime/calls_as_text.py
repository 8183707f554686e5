"""The calls of other agents, as text in an agent's history.

A model that sees calls of tools that it does not have imitates them, and some providers refuse the request. So these
calls and their results are sent as text in the user's role, unless the agent itself made them in this turn: tool names
do not tell agents apart, and dict rows of an application need not name their agent. Calls of the agent's own tools stay
calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from agenticx.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agenticx.untrusted_text import MATERIAL, frame_lines, one_line

__all__ = ["calls_of_others_as_text"]

_ARGUMENT_CHARS = 2_000
"""Characters of a call's arguments in the text; results are whole, because the agent may need them."""


def calls_of_others_as_text(
    tool_names: Collection[str], own_replies: Collection[str], messages: Sequence[Message]
) -> list[Message]:
    """Return the valid `messages` for an agent with tools of these names.

    `own_replies` are the ids of messages with calls that the agent has made itself; these calls stay calls.
    """
    return list(_rewritten(frozenset(tool_names), own_replies, messages))


def _rewritten(
    tool_names: frozenset[str], own_replies: Collection[str], messages: Sequence[Message]
) -> Iterator[Message]:
    as_text: dict[str, ToolCall] = {}  # the calls that become text with their results, by id
    lines: list[str] = []
    files: list[Attachment] = []
    sender: str | None = None
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in as_text:
            call = as_text.pop(message.tool_call_id)
            lines.append(_as_text(sender, call, message))
            files += message.attachments
            continue
        if lines and not isinstance(message, ToolMessage):
            yield _note(lines, files)
            lines, files = [], []
        if not isinstance(message, AssistantMessage) or message.message_id in own_replies:
            yield message
            continue
        sender, as_text = message.sender, {call.id: call for call in message.tool_calls if call.name not in tool_names}
        if not as_text:
            yield message
        else:
            kept = tuple(call for call in message.tool_calls if call.id not in as_text)
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
