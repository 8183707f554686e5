"""History repair: pure passes that make any list of messages one that every provider accepts.

The order matters. Empty rows go first, so that they cannot stand between a call and its result. System rows are
settled next, for the same reason. Pairing comes last and leaves the strict sequence: each assistant row with calls
is followed at once by exactly one result per call, in call order, and no result stands anywhere else.

1. Peers drop a call without a result. We answer it: the model must learn that the call was made and that nobody
   knows whether it took effect, or it will make it again.
2. Peers move system rows from the middle to the front, which changes the prefix that prompt caches are keyed on.
   We leave them where they are and say them in the user's role.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["OUTCOME_UNKNOWN", "is_valid", "sanitize"]

OUTCOME_UNKNOWN = (
    "[interrupted] This call has no recorded result: the turn was interrupted. Whether it took effect is unknown; "
    "check before you repeat it."
)


def sanitize(messages: Sequence[Message]) -> list[Message]:
    """The same conversation in a valid order. Deterministic and idempotent; a valid history comes back unchanged."""
    if is_valid(messages):
        return list(messages)
    result = list(messages)
    for repair in _PASSES:
        result = repair(result)
    return result


def is_valid(messages: Sequence[Message]) -> bool:
    """Whether the rows already obey the Chat Completions sequence rules. One scan, no allocation per row."""
    awaited: deque[str] = deque()
    leading = True
    for message in messages:
        match message:
            case ToolMessage():
                if not awaited or message.tool_call_id != awaited.popleft():
                    return False
                continue
            case SystemMessage():
                if not leading:
                    return False
            case AssistantMessage():
                leading = False
                if awaited or not (message.content or message.tool_calls):
                    return False
                if message.tool_calls:
                    awaited.extend(call.id for call in message.tool_calls)
                    if len(awaited) > 1 and len(set(awaited)) != len(awaited):
                        return False
                    if "" in awaited:
                        return False
            case UserMessage():
                leading = False
        if awaited and not isinstance(message, AssistantMessage):
            return False
    return not awaited


def _drop_empty(messages: list[Message]) -> list[Message]:
    return [
        message
        for message in messages
        if not (isinstance(message, AssistantMessage) and not message.content and not message.tool_calls)
    ]


def _settle_system_rows(messages: list[Message]) -> list[Message]:
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
    """Put each call's result behind it; answer calls that have none; drop results that nobody asked for.

    Ids may repeat in histories that are not ours, so a call first takes a result between itself and the next call of
    the same id, and only then one that came too early.
    """
    results: dict[str, deque[tuple[int, ToolMessage]]] = defaultdict(deque)
    calls: dict[str, deque[int]] = defaultdict(deque)
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id].append((index, message))
        elif isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                calls[call.id].append(index)
    used: set[int] = set()

    def claim(call_id: str, after: int) -> ToolMessage | None:
        calls[call_id].popleft()
        before = next((index for index in calls[call_id] if index > after), len(messages))
        candidates = [row for row in results[call_id] if row[0] not in used]
        chosen = next((row for row in candidates if after < row[0] < before), None) or next(
            (row for row in candidates if row[0] < after), None
        )
        if chosen is None:
            return None
        used.add(chosen[0])
        return chosen[1]

    paired: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if not (isinstance(message, AssistantMessage) and message.tool_calls):
            paired.append(message)
            continue
        answers = [claim(call.id, index) for call in message.tool_calls]
        unique = _unique_ids(message.tool_calls)
        if unique != message.tool_calls:
            message = message.model_copy(update={"tool_calls": unique})
        paired.append(message)
        paired.extend(_answer(call, answer) for call, answer in zip(unique, answers, strict=True))
    return paired


def _unique_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls with ids that are not empty and differ within the row; valid ids stay as they are."""
    taken = {call.id for call in calls}
    seen: set[str] = set()
    result: list[ToolCall] = []
    for position, call in enumerate(calls):
        if call.id == "" or call.id in seen:
            fresh = f"{call.id or 'call'}_{position}"
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            call = call.model_copy(update={"id": fresh})
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


_PASSES: tuple[Callable[[list[Message]], list[Message]], ...] = (_drop_empty, _settle_system_rows, _pair)
