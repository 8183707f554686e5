"""Strategies for histories of every kind, and a validator that is independent of the code under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage

__all__ = [
    "PADDING",
    "assistant",
    "broken_histories",
    "conversation",
    "number",
    "result",
    "system",
    "texts",
    "user",
    "valid_histories",
    "violations",
]


# --- short words for rows -------------------------------------------------------------------------------------------


PADDING = " and what there is to say of it" * 4
"""The end of each question of `conversation`, which makes its summary shorter than its messages."""


def conversation(pairs: int = 15) -> list[Message]:
    """Return that many questions with their answers."""
    rows = [(user(f"question {n}{PADDING}"), assistant(f"answer {n}")) for n in range(pairs)]
    return [row for pair in rows for row in pair]


def user(text: str, **more: Any) -> UserMessage:
    return UserMessage(content=text, **more)


def system(text: str) -> SystemMessage:
    return SystemMessage(content=text)


def assistant(text: str = "", *calls: str, reasoning: str = "") -> AssistantMessage:
    """Return an answer with calls of these ids."""
    return AssistantMessage(
        content=text, reasoning=reasoning, tool_calls=tuple(ToolCall(id=id_, name="look") for id_ in calls)
    )


def result(call_id: str, text: str = "seen") -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, name="look", content=text)


def number(messages: Sequence[Message]) -> list[Message]:
    """Return the rows with ids by position, so that a history means the same each time it is made."""
    return [row.model_copy(update={"message_id": f"msg_{place}"}) for place, row in enumerate(messages)]


# --- the rules ------------------------------------------------------------------------------------------------------


def violations(messages: Sequence[Message]) -> list[str]:
    """Return the errors that a strict Chat Completions server reports for these rows; empty if it accepts them."""
    found: list[str] = []
    roles = [row.role for row in messages]
    body = next((place for place, role in enumerate(roles) if role != "system"), len(roles))
    found += [f"row {place}: system row in the middle" for place in range(body, len(roles)) if roles[place] == "system"]
    place = 0
    while place < len(messages):
        row = messages[place]
        place += 1
        if row.role == "tool":
            found.append(f"row {place - 1}: result of {row.tool_call_id!r} answers no call before it")
        if row.role != "assistant":
            continue
        asked = [call.id for call in row.tool_calls]
        if not asked and not row.content:
            found.append(f"row {place - 1}: assistant row says nothing")
        if "" in asked or len(set(asked)) < len(asked):
            found.append(f"row {place - 1}: call ids {asked} are not distinct")
        answered: list[str] = []
        while place < len(messages) and len(answered) < len(asked):
            following = messages[place]
            if not isinstance(following, ToolMessage):
                break
            answered.append(following.tool_call_id)
            place += 1
        if answered != asked:
            found.append(f"row {place - 1}: calls {asked} are followed by results {answered}")
    return found


# --- strategies -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_filled = texts.map(lambda text: text or "words")
_ids = st.sampled_from(["", "a", "b", "c", "d"])
_rows = st.one_of(
    st.builds(user, texts),
    st.builds(system, _filled),
    st.builds(result, _ids, texts),
    st.tuples(texts, st.lists(_ids, max_size=3)).map(lambda drawn: assistant(drawn[0], *drawn[1])),
    texts.map(lambda text: assistant(reasoning=text)),
)


@st.composite
def valid_histories(draw: st.DrawFn, *, most: int = 12, words: st.SearchStrategy[str] = _filled) -> list[Message]:
    """Draw system rows, then exchanges.

    Ids are unique within a row and may be used again in later ones, as some servers do.
    """
    rows: list[Message] = [system(text) for text in draw(st.lists(words, max_size=2))]
    for kind in draw(st.lists(st.sampled_from(["user", "reminder", "answer", "round", "round"]), max_size=most)):
        if kind == "user":
            rows.append(user(draw(words)))
        elif kind == "reminder":
            rows.append(user(draw(words), injected=True))
        elif kind == "answer":
            rows.append(assistant(draw(words) or "words"))
        else:
            ids = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True))
            rows.append(assistant(draw(words), *ids))
            rows.extend(result(id_, draw(words)) for id_ in ids)
    return number(rows)


@st.composite
def broken_histories(draw: st.DrawFn) -> list[Message]:
    """Draw rows in no order at all, or a valid history with some rows lost, doubled, moved or inserted."""
    if draw(st.booleans()):
        return number(draw(st.lists(_rows, max_size=20)))
    rows = list(draw(valid_histories()))
    for damage in draw(st.lists(st.sampled_from(["lose", "double", "move", "put in"]), max_size=4)):
        if damage == "put in" or not rows:
            rows.insert(draw(st.integers(0, len(rows))), draw(_rows))
            continue
        place = draw(st.integers(0, len(rows) - 1))
        row = rows[place] if damage == "double" else rows.pop(place)
        if damage != "lose":
            rows.insert(draw(st.integers(0, len(rows))), row)
    return number(rows)
