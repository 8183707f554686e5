"""Histories that are costly to process: long rows, many rows, many calls and odd ids."""

from __future__ import annotations

import random

from agenticx import UserMessage
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage
from tests.linear.case import Make
from tests.linear.texts import JSON, TEXTS

__all__ = ["HISTORIES", "LONG_HISTORIES"]

_ROW_CHARS = 100  # that one short row counts as


def _said(text: str) -> list[Message]:
    return [UserMessage(content="look"), AssistantMessage(content=text), UserMessage(content=text)]


def _one_call(arguments: str, result: str = "ok") -> list[Message]:
    call = ToolCall(id="call_aaaaaaaaaaaaaaaaaaaaaaaa", name="look", arguments=arguments)
    return [
        UserMessage(content="look"),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage(tool_call_id=call.id, name="look", content=result),
    ]


def _rounds(size: int, id_of: str = "call_{}") -> list[Message]:
    """Return many rounds of one call each."""
    rows: list[Message] = [UserMessage(content="look")]
    for number in range(size // (3 * _ROW_CHARS)):
        call = ToolCall(id=id_of.format(number), name="look", arguments='{"path": "a.py"}')
        rows.append(AssistantMessage(content="I look.", tool_calls=(call,)))
        rows.append(ToolMessage(tool_call_id=call.id, name="look", content="nothing"))
    return rows


def _one_round(size: int, id_of: str = "call_{}") -> list[Message]:
    """Return one row with many calls."""
    count = size // (2 * _ROW_CHARS)
    calls = tuple(ToolCall(id=id_of.format(number), name="look") for number in range(count))
    results = (ToolMessage(tool_call_id=call.id, name="look", content="nothing") for call in calls)
    return [UserMessage(content="look"), AssistantMessage(tool_calls=calls), *results]


def _unanswered(size: int) -> list[Message]:
    return [row for row in _rounds(size) if not isinstance(row, ToolMessage)]


def _unasked(size: int, id_of: str) -> list[Message]:
    """Return results without calls, followed by one call."""
    results = (
        ToolMessage(tool_call_id=id_of.format(number), name="look", content="nothing")
        for number in range(size // _ROW_CHARS)
    )
    return [UserMessage(content="look"), *results, *_one_call("{}")[1:2]]


def _apart(rows: list[Message]) -> list[Message]:
    """Return all calls followed by all results, which have to be paired again."""
    return [
        *(row for row in rows if not isinstance(row, ToolMessage)),
        *(row for row in rows if isinstance(row, ToolMessage)),
    ]


def _shuffled(rows: list[Message]) -> list[Message]:
    """Return the rows shuffled in blocks of 1,000.

    Shuffled over the whole list they would lie far apart in memory, which slows any pass over them.
    """
    order = random.Random(len(rows))
    parts = [rows[start : start + 1_000] for start in range(0, len(rows), 1_000)]
    return [row for part in parts for row in order.sample(part, len(part))]


def _system_rows(size: int) -> list[Message]:
    return [
        row for number in range(size // 200) for row in (UserMessage(content=f"{number}"), SystemMessage(content="a"))
    ]


def _empty_rows(size: int) -> list[Message]:
    return [row for number in range(size // 200) for row in (UserMessage(content=f"{number}"), AssistantMessage())]


def _short_rows(size: int) -> list[Message]:
    """Return nearly empty rows: 20,000 per megabyte."""
    return [
        row
        for number in range(size // _ROW_CHARS)
        for row in (UserMessage(content=f"{number}"), AssistantMessage(content="ok"))
    ]


HISTORIES: dict[str, Make] = {
    **{
        f"text, {name}": (lambda size, make=TEXTS[name]: _said(make(size // 2)))
        for name in ("words", "not ASCII", "mixed")
    },
    **{f"arguments, {name}": (lambda size, make=make: _one_call(make(size))) for name, make in JSON.items()},
    **{f"result, {name}": (lambda size, make=TEXTS[name]: _one_call("{}", make(size))) for name in ("words", "mixed")},
    "rounds": _rounds,
    "calls in one row": _one_round,
    "rounds of odd ids": lambda size: _rounds(size, "né:{}:" + "a" * 60),
    "rounds of the same id": lambda size: _rounds(size, "call_0"),
    "rounds of the same odd id": lambda size: _rounds(size, "né" + "a" * 70),
    "short rows": _short_rows,
}
"""Histories as they reach a wire: each call is followed by its result."""

LONG_HISTORIES: dict[str, Make] = {
    **{name: make for name, make in HISTORIES.items() if not name.startswith("arguments")},
    "arguments": lambda size: _one_call(JSON["a file"](size)),
    "the same id, shuffled": lambda size: _shuffled(_rounds(size, "call_0")),
    "the same id, apart": lambda size: _apart(_rounds(size, "call_0")),
    "the same id in one row": lambda size: _one_round(size, "call_0"),
    "no id in one row": lambda size: _one_round(size, ""),
    "apart": lambda size: _apart(_rounds(size)),
    "shuffled": lambda size: _shuffled(_rounds(size)),
    "unanswered": _unanswered,
    "unasked": lambda size: _unasked(size, "call_{}"),
    "unasked of the same id": lambda size: _unasked(size, "call_aaaaaaaaaaaaaaaaaaaaaaaa"),
    "system rows": _system_rows,
    "empty rows": _empty_rows,
}
"""Histories of any kind, as an application may pass them."""
