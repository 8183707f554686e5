"""A conversation of several agents as one of them reads it.

A model that sees calls of tools which it does not have imitates them, and some providers refuse the request. So calls
that another agent made of tools which the reader lacks are told in the user's role, with their results. What both
agents can call stays a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

__all__ = ["calls_of_others_as_text"]

_ARGUMENT_CHARS = 2_000
"""Characters of a call's arguments that are told; results are told whole, as the reader may need them."""


def calls_of_others_as_text(reader: str, tool_names: Sequence[str], messages: Sequence[Message]) -> list[Message]:
    """Return valid `messages` as the agent `reader`, which has tools of these names, is to read them."""
    return list(_rewritten(reader, frozenset(tool_names), messages))


def _rewritten(reader: str, tool_names: frozenset[str], messages: Sequence[Message]) -> Iterator[Message]:
    told: dict[str, ToolCall] = {}  # calls whose results follow and are told, by id
    lines: list[str] = []
    sender = ""
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in told:
            call = told.pop(message.tool_call_id)
            lines.append(_as_text(sender, call, message))
            continue
        if lines and not isinstance(message, ToolMessage):
            yield _note(lines)
            lines = []
        if not isinstance(message, AssistantMessage) or message.sender in (None, reader):
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
        yield _note(lines)


def _note(lines: Sequence[str]) -> UserMessage:
    return UserMessage(content="\n".join(["[history] Earlier work of another agent:", *lines]), injected=True)


def _as_text(sender: str, call: ToolCall, result: ToolMessage) -> str:
    arguments = call.arguments
    if len(arguments) > _ARGUMENT_CHARS:
        arguments = f"{arguments[:_ARGUMENT_CHARS]}… ({len(call.arguments)} characters)"
    ending = "" if result.outcome == "ok" else f" ({result.outcome})"
    return f"- {sender} used {call.name} with {arguments}{ending}: {result.content}"
