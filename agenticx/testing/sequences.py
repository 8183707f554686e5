"""Event sequences in tests: collecting, outlining, and matching against a pattern."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import EllipsisType
from typing import Any, Literal, cast

from agenticx.runtime.events import DELTAS, RuntimeEvent
from agenticx.testing._views import AnyEvent, View, label, views

__all__ = ["Pattern", "assert_sequence", "collect", "outline"]

_STREAMED = DELTAS | {"tool_progress"}

PatternItem = str | EllipsisType | Mapping[str, Any] | tuple[str, Mapping[str, Any]]
Pattern = Sequence[PatternItem]
"""A pattern of events; `assert_sequence` describes its items."""


async def collect(events: AsyncIterator[RuntimeEvent]) -> list[RuntimeEvent]:
    """Return all events of a turn: iterate over `run_turn(...)` to its end."""
    return [event async for event in events]


def outline(
    events: Iterable[AnyEvent],
    *,
    state: bool = False,
    usage: bool = False,
    tokens: Literal["merge", "each"] = "merge",
    detail: bool = False,
) -> list[str]:
    """Return the events' types in order, short enough to compare as a whole.

    `state` and `usage` events are left out unless requested. Adjacent events of one stream (token, thinking,
    tool_call_delta, tool_progress) count once, or each with `tokens="each"`. With `detail` events are written as
    `tool_result:denied`, `error:stopped` and the like; a `state` event always has its word.
    """
    lines: list[str] = []
    for event in _selected(views(events), state=state, usage=usage):
        line = label(event) if detail or event.type == "state" else event.type
        if tokens == "merge" and event.type in _STREAMED and lines and lines[-1] == line:
            continue
        lines.append(line)
    return lines


def assert_sequence(events: Iterable[AnyEvent], pattern: Pattern, *, state: bool = False, usage: bool = False) -> None:
    """Raise `AssertionError` unless all the events, in order, match all of `pattern`.

    `state` and `usage` events are left out unless requested or named in the pattern. The items of a pattern:

    - `"token"` one event of that type; `"tool_result:denied"` its type and word, as `outline(…, detail=True)` writes it
    - `"final|error"` one of several
    - `"usage?"`, `"token*"`, `"token+"` optional, any number, at least one
    - `"..."` or `...` any events, also none
    - `("tool_result", {"outcome": "denied"})` its data has at least these values; `{"outcome": "denied"}` of any type
    - as a value: a mapping asks for a subset, `...` for any value, a compiled regular expression for a match

    >>> from agenticx import AgentRuntime
    >>> events = AgentRuntime("demo").run_sync("say one two").events
    >>> assert_sequence(events, ["turn_started", "round_start", "token+", ("final", {"text": "one two"})])
    """
    items = [_item(written) for written in pattern]
    named = {alternative.partition(":")[0] for item in items for alternative in item.types}
    shown = _selected(views(events), state=state or "state" in named, usage=usage or "usage" in named)
    reached = _match(shown, items)
    if len(items) not in reached[-1] or len(reached) <= len(shown):
        raise AssertionError(_difference(shown, items, reached))


def _selected(events: Sequence[View], *, state: bool, usage: bool) -> list[View]:
    hidden = {type_ for type_, included in (("state", state), ("usage", usage)) if not included}
    return [event for event in events if event.type not in hidden]


# --- patterns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    written: str
    types: tuple[str, ...]
    data: Mapping[str, Any] | None
    at_least: int
    repeated: bool

    def accepts(self, event: View) -> bool:
        of_type = not self.types or event.type in self.types or label(event) in self.types
        return of_type and (self.data is None or _fits(event.data, self.data))


def _item(written: PatternItem) -> _Item:
    if written is ... or written == "...":
        return _Item("...", (), None, 0, True)
    if isinstance(written, str):
        return _typed(written, None)
    if isinstance(written, tuple):
        type_, data = written
        return _typed(type_, data)
    return _Item(repr(written), (), written, 1, False)


def _typed(type_: str, data: Mapping[str, Any] | None) -> _Item:
    sign = type_[-1:] if type_[-1:] in {"?", "*", "+"} else ""
    types = tuple(type_.removesuffix(sign).split("|"))
    text = f"{type_} {dict(data)!r}" if data is not None else type_
    return _Item(text, types, data, 0 if sign in {"?", "*"} else 1, sign in {"*", "+"})


def _fits(actual: object, expected: object) -> bool:
    if expected is ...:
        return True
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            return False
        values = cast("Mapping[object, object]", actual)
        fields = cast("Mapping[object, object]", expected)
        return all(key in values and _fits(values[key], value) for key, value in fields.items())
    if isinstance(expected, re.Pattern):
        return isinstance(actual, str) and cast("re.Pattern[str]", expected).search(actual) is not None
    return actual == expected


def _match(events: Sequence[View], items: Sequence[_Item]) -> list[set[int]]:
    """Return, for each number of matched events, how many items may be completed then.

    The list ends at the first event that no item accepts.
    """
    reached = [_skip({0}, items)]
    for event in events:
        after: set[int] = set()
        for done in reached[-1]:
            if done < len(items) and items[done].accepts(event):
                after.add(done + 1)
            if done and items[done - 1].repeated and items[done - 1].accepts(event):
                after.add(done)
        if not after:
            break
        reached.append(_skip(after, items))
    return reached


def _skip(done: set[int], items: Sequence[_Item]) -> set[int]:
    """Return `done` and all counts reached from it by skipping optional items."""
    reached = set(done)
    for position, item in enumerate(items):
        if position in reached and item.at_least == 0:
            reached.add(position + 1)
    return reached


def _difference(events: Sequence[View], items: Sequence[_Item], reached: Sequence[set[int]]) -> str:
    matched = len(reached) - 1
    expected = [items[done].written if done < len(items) else "nothing more" for done in sorted(reached[-1])]
    found = f"event {matched + 1} is {label(events[matched])}" if matched < len(events) else "the events end"
    patterns = [item.written for item in items]
    labels = [
        ("= " if index < matched else "! " if index == matched else "  ") + label(e) for index, e in enumerate(events)
    ]
    width = max((len(line) for line in patterns), default=0)
    table = (
        f"    {pattern:<{width}}    {label_}".rstrip()
        for pattern, label_ in zip_longest(patterns, labels, fillvalue="")
    )
    lines = [f"{found}, expected {' or '.join(dict.fromkeys(expected))}"]
    if matched < len(events):
        lines.append(f"  its data: {dict(events[matched].data)!r}")
    return "\n".join([*lines, f"    {'pattern':<{width}}      events", *table])
