"""A conversation up to one of its messages, as a model reads it: cut from what is at hand, else told anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from agenticx.sessions.transcript import Conversation, Entry

__all__ = ["NEVER_RUN", "messages_up_to"]

NEVER_RUN = "Cancelled: the conversation was taken back to a point before this call ran."


def messages_up_to(path: Sequence[Entry], conversation: Conversation, at_hand: Sequence[Message]) -> list[Message]:
    """The messages of `path`; `at_hand` are those of the conversation as it is now, the front of it maybe compacted.

    What is cut from those is what the model said, to the last byte that its provider wants back. What is told anew,
    because it was compacted or rewound away, is plain text and calls, and of attachments only the names.
    """
    if not path:
        return []
    now = {entry.id for entry in conversation.path()}
    cut = _cut(path[-1], at_hand) if path[-1].id in now else None
    return _answered(_told(path) if cut is None else cut)


def _cut(last: Entry, at_hand: Sequence[Message]) -> list[Message] | None:
    for place, message in enumerate(at_hand):
        if _is(message, last.message):
            return list(at_hand[: place + 1])
    return None


def _is(message: Message, told: dict[str, Any]) -> bool:
    match message:
        case UserMessage():
            return message.message_id == told["message_id"]
        case AssistantMessage():
            calls = [call.id for call in message.tool_calls]
            by_call = told["message_id"] == f"calls_{calls[0]}" if calls else False
            return message.message_id == told["message_id"] or by_call
        case ToolMessage():
            return message.tool_call_id == told.get("tool_call_id")
        case _:
            return False


def _told(path: Sequence[Entry]) -> list[Message]:
    return [_message(entry) for entry in path]


def _message(entry: Entry) -> Message:
    told = entry.message
    match told["role"]:
        case "user":
            names = "".join(f"\n[attached: {file['name']}]" for file in told.get("attachments", ()))
            return UserMessage(content=told["content"] + names, message_id=entry.id)
        case "assistant":
            calls = tuple(_call(call) for call in told.get("tool_calls", ()))
            return AssistantMessage(content=told["content"], tool_calls=calls, message_id=entry.id)
        case _:
            result = entry.result or {}
            return ToolMessage(
                tool_call_id=told["tool_call_id"],
                name=result.get("name", ""),
                content=told["content"],
                outcome=result.get("outcome", "error" if result.get("is_error") else "ok"),
                message_id=entry.id,
            )


def _call(call: dict[str, Any]) -> ToolCall:
    given = call["arguments"]
    return ToolCall(id=call["id"], name=call["name"], arguments=given if isinstance(given, str) else json.dumps(given))


def _answered(messages: list[Message]) -> list[Message]:
    """With an answer to each call of the last reply."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            open_calls = (call for call in message.tool_calls if call.id not in answered)
            return messages + [
                ToolMessage(tool_call_id=call.id, name=call.name, content=NEVER_RUN, outcome="cancelled")
                for call in open_calls
            ]
    return messages
