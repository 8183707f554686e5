"""A conversation up to one of its messages, as a model reads it: cut from what is at hand, else told anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from agenticx.sessions.transcript import Conversation, Entry

__all__ = ["NEVER_RUN", "AtHand", "messages_up_to"]

NEVER_RUN = "Cancelled: the conversation was taken back to a point before this call ran."


@dataclass(frozen=True, slots=True)
class AtHand:
    """The conversation as it is now; its first `front` messages stand for `compacted`."""

    messages: Sequence[Message]
    front: int = 0
    compacted: Sequence[Message] = ()

    def up_to(self, last: Entry) -> list[Message] | None:
        """Return the messages up to that one, without summaries if it was compacted; None if it is not here."""
        for place in range(self.front, len(self.messages)):
            if _is(self.messages[place], last.message):
                return list(self.messages[: place + 1])
        for place, message in enumerate(self.compacted):
            if _is(message, last.message):
                return list(self.compacted[: place + 1])
        return None


def messages_up_to(path: Sequence[Entry], conversation: Conversation, at_hand: AtHand) -> list[Message]:
    """Return the messages of `path`.

    Those `at_hand`, compacted ones too, are what the model said, to the last byte that its provider wants back. What is
    told anew from the log, because it was rewound away or compacted by an earlier release, is plain text and calls, and
    of attachments only the names.
    """
    if not path:
        return []
    now = {entry.id for entry in conversation.path()}
    cut = at_hand.up_to(path[-1]) if path[-1].id in now else None
    return _answered(_told(path) if cut is None else cut)


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
