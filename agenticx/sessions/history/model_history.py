"""The messages of a conversation as the model gets them, up to one of them: from memory or the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from agenticx.sessions.history.transcript import Conversation, TranscriptEntry
from agenticx.sessions.log.events import SessionEvent
from agenticx.sessions.log.turn_tree import result_message

__all__ = ["CurrentHistory", "messages_of_agent", "not_run_result", "rebuild_history"]

NOT_RUN_RESULT = "Cancelled: the conversation was taken back to a point before this call ran."


@dataclass(frozen=True, slots=True)
class CurrentHistory:
    """The conversation as it is now; its first `summary_count` messages replace `compacted`."""

    messages: Sequence[Message]
    summary_count: int = 0
    compacted: Sequence[Message] = ()

    def messages_until(self, last: TranscriptEntry) -> list[Message] | None:
        """Return the messages up to that one, the originals if it was compacted; None if it is in neither list."""
        for index in range(self.summary_count, len(self.messages)):
            if _is_same_message(self.messages[index], last.message):
                return list(self.messages[: index + 1])
        for index, message in enumerate(self.compacted):
            if _is_same_message(message, last.message):
                return list(self.compacted[: index + 1])
        return None

    def keeps_summaries(self, messages: Sequence[Message]) -> bool:
        """Return whether a rebuilt history begins with the messages that replace `compacted`."""
        count = self.summary_count
        return 0 < count <= len(messages) and all(map(is_, messages, self.messages[:count]))

    def ids_of(self, messages: Sequence[Message]) -> set[str]:
        """Return the ids of the messages of a rebuilt history, with those that its summaries replace."""
        replaced = self.compacted if self.keeps_summaries(messages) else ()
        return {message.message_id for message in (*replaced, *messages)}


def rebuild_history(
    path: Sequence[TranscriptEntry], conversation: Conversation, current: CurrentHistory
) -> list[Message]:
    """Return the messages of `path`.

    The `current` ones, compacted ones too, have exactly the bytes that the provider expects back. Messages behind them
    that are rebuilt from the log, because they were rewound away, have plain text and calls, and only the names of
    attachments.
    """
    if not path:
        return []
    current_ids = {entry.id for entry in conversation.path()}
    common = sum(entry.id in current_ids for entry in path)  # at the start: both are paths of one tree
    history = current.messages_until(path[common - 1]) if common else None
    rest = path if history is None else path[common:]
    return _with_missing_results([*(history or ()), *_messages_from_log(rest)])


def messages_of_agent(events: Iterable[SessionEvent], agent_id: str) -> list[Message]:
    """Return the messages of the turns of an agent other than the main one, as the log has them."""
    conversation = Conversation(agent_id)
    conversation.feed_decoded(events)
    return _with_missing_results(_messages_from_log(conversation.path()))


def _is_same_message(message: Message, logged: dict[str, Any]) -> bool:
    match message:
        case UserMessage():
            return message.message_id == logged["message_id"]
        case AssistantMessage():
            calls = [call.id for call in message.tool_calls]
            by_call = logged["message_id"] == f"calls_{calls[0]}" if calls else False
            return message.message_id == logged["message_id"] or by_call
        case ToolMessage():
            return message.tool_call_id == logged.get("tool_call_id")
        case _:
            return False


def _messages_from_log(path: Sequence[TranscriptEntry]) -> list[Message]:
    return [_to_message(entry) for entry in path]


def _to_message(entry: TranscriptEntry) -> Message:
    logged = entry.message
    match logged["role"]:
        case "user":
            names = "".join(f"\n[attached: {file['name']}]" for file in logged.get("attachments", ()))
            injected = logged.get("injected", False)
            sources = tuple(logged.get("sources", ()))
            return UserMessage(
                content=logged["content"] + names, message_id=entry.id, injected=injected, sources=sources
            )
        case "assistant":
            calls = tuple(_to_tool_call(call) for call in logged.get("tool_calls", ()))
            return AssistantMessage(content=logged["content"], tool_calls=calls, message_id=entry.id)
        case _:
            assert entry.result is not None
            return result_message(entry.result, message_id=entry.id)


def _to_tool_call(call: dict[str, Any]) -> ToolCall:
    given = call["arguments"]
    return ToolCall(id=call["id"], name=call["name"], arguments=given if isinstance(given, str) else json.dumps(given))


def _with_missing_results(messages: list[Message]) -> list[Message]:
    """Return the messages with a result for each call of the last reply."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            open_calls = (call for call in message.tool_calls if call.id not in answered)
            return messages + [not_run_result(call.id, call.name) for call in open_calls]
    return messages


def not_run_result(call_id: str, name: str) -> ToolMessage:
    """Return the result of a call that had not run at the point to which its conversation was taken back."""
    return ToolMessage(tool_call_id=call_id, name=name, content=NOT_RUN_RESULT, outcome="cancelled")
