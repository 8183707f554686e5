"""History repair: pure passes that turn any list of messages into one that every provider accepts.

Apart from compaction a turn only appends to the history, and it may end at any point: by a stop, by an error, with the
process. No step has to undo what it appended, because each request is made from a repaired copy.

The order matters. Empty messages are dropped first, so that none is between a call and its result. System messages are
converted next, for the same reason. Pairing comes last and produces the strict sequence: each assistant message with
calls is followed at once by exactly one result per call, in call order, and there are no other results.

1. Other libraries drop a call without a result. We answer it: the model must know that the call was made and that its
   effect is unknown, or it will make it again.
2. Other libraries move system messages from the middle to the front and so change the prefix that prompt caches are
   keyed on. We leave them in place and send them in the user's role.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from agenticx.llms.openai_rows import in_given_shape, messages_from_rows
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["OUTCOME_UNKNOWN", "is_valid", "sanitize"]

OUTCOME_UNKNOWN = (
    "[interrupted] This call has no recorded result: the turn was interrupted. Whether it took effect is unknown; "
    "check before you repeat it."
)


@overload
def sanitize(messages: Sequence[Message]) -> list[Message]: ...
@overload
def sanitize(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]: ...
def sanitize(messages: Sequence[Message] | Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the same conversation in a valid order; that of dict rows of Chat Completions as rows.

    Deterministic and idempotent; a valid history is returned unchanged. Raises `TypeError` for what is neither a
    message nor a row.
    """
    history = messages_from_rows(messages)
    if is_valid(history):
        return list(messages)
    result = history
    for repair in _PASSES:
        result = repair(result)
    return in_given_shape(messages, history, result)


def is_valid(messages: Sequence[Message]) -> bool:
    """Return whether the messages already obey the Chat Completions sequence rules, in one cheap scan."""
    awaited: list[str] = []  # results that must follow, last one first
    leading = True
    for message in messages:
        if message.role == "tool":
            if not awaited or message.tool_call_id != awaited.pop():
                return False
        elif awaited:
            return False
        elif message.role == "system":
            if not leading:
                return False
        else:
            leading = False
            if message.role == "assistant":
                if not _is_well_formed(message):
                    return False
                if message.tool_calls:
                    awaited = [call.id for call in reversed(message.tool_calls)]
    return not awaited


def _is_well_formed(message: AssistantMessage) -> bool:
    """Return whether the message has content or calls, and its calls have distinct ids."""
    if not message.tool_calls:
        return bool(message.content)
    ids = {call.id for call in message.tool_calls}
    return len(ids) == len(message.tool_calls) and "" not in ids


def _drop_empty(messages: list[Message]) -> list[Message]:
    return [
        message
        for message in messages
        if not (isinstance(message, AssistantMessage) and not message.content and not message.tool_calls)
    ]


def _convert_system_messages(messages: list[Message]) -> list[Message]:
    result: list[Message] = []
    leading = True
    for message in messages:
        if isinstance(message, SystemMessage) and not leading:
            text = f"[system note] {message.content}"
            result.append(UserMessage(content=text, message_id=message.message_id, injected=True))
            continue
        leading = leading and isinstance(message, SystemMessage)
        result.append(message)
    return result


def _pair(messages: list[Message]) -> list[Message]:
    """Move each call's result to its place after the call; answer calls that have none; drop results without a call."""
    results = _Results(messages)
    paired: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            answers = [results.claim(call.id, index) for call in message.tool_calls]
            unique = _unique_ids(message.tool_calls)
            paired.append(
                message if unique == message.tool_calls else message.model_copy(update={"tool_calls": unique})
            )
            paired.extend(_answer(call, answer) for call, answer in zip(unique, answers, strict=True))
        elif not isinstance(message, ToolMessage):
            paired.append(message)
    return paired


@dataclass(slots=True)
class _SameId:
    """The calls and the results of one id, by their indexes in the history."""

    call_indexes: list[int] = field(default_factory=list[int])
    result_indexes: list[int] = field(default_factory=list[int])
    results: list[ToolMessage] = field(default_factory=list[ToolMessage])
    claimed: set[int] = field(default_factory=set[int])
    earliest: int = 0  # index of the first result that may be unclaimed; all before it are claimed
    latest: int = -1  # index of the last result that was claimed by a call before it

    def claim(self, caller: int) -> ToolMessage | None:
        """Return a result between the call at index `caller` and the next one of this id, else the first before it."""
        first_after = bisect_right(self.result_indexes, caller)
        following = bisect_right(self.call_indexes, caller)
        next_caller = self.call_indexes[following] if following < len(self.call_indexes) else None
        chosen = max(first_after, self.latest + 1)
        if chosen < len(self.result_indexes) and (next_caller is None or self.result_indexes[chosen] < next_caller):
            self.latest = chosen
        else:
            while self.earliest in self.claimed:
                self.earliest += 1
            if self.earliest >= first_after:
                return None
            chosen = self.earliest
        self.claimed.add(chosen)
        return self.results[chosen]


class _Results:
    """The results of a history, each to be claimed by one call.

    Ids may repeat in histories from other programs, so a call claims a result between itself and the next call of the
    same id, and only if there is none an earlier one. Calls claim in the order of the history.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._by_id: dict[str, _SameId] = defaultdict(_SameId)
        for index, message in enumerate(messages):
            if isinstance(message, ToolMessage):
                pending = self._by_id[message.tool_call_id]
                pending.result_indexes.append(index)
                pending.results.append(message)
            elif isinstance(message, AssistantMessage):
                for call in message.tool_calls:
                    self._by_id[call.id].call_indexes.append(index)

    def claim(self, call_id: str, caller: int) -> ToolMessage | None:
        """Return the result of the call at index `caller`, or None."""
        return self._by_id[call_id].claim(caller)


def _unique_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are not empty and differ within the message; valid ids stay as they are."""
    used_ids = {call.id for call in calls}
    seen: set[str] = set()
    result: list[ToolCall] = []
    for position, call in enumerate(calls):
        if call.id == "" or call.id in seen:
            new_id = f"{call.id or 'call'}_{position}"
            while new_id in used_ids:
                new_id += "_"
            used_ids.add(new_id)
            call = call.model_copy(update={"id": new_id})
        seen.add(call.id)
        result.append(call)
    return tuple(result)


def _answer(call: ToolCall, answer: ToolMessage | None) -> ToolMessage:
    if answer is None:
        return ToolMessage(
            tool_call_id=call.id,
            name=call.name,
            content=OUTCOME_UNKNOWN,
            outcome="unknown",
            message_id=f"msg_unknown_{call.id}",
        )
    return answer if answer.tool_call_id == call.id else answer.model_copy(update={"tool_call_id": call.id})


_PASSES: tuple[Callable[[list[Message]], list[Message]], ...] = (_drop_empty, _convert_system_messages, _pair)
