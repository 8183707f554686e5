"""JSON from outside, read so that no two readers can take it for different things."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from agenticx.messages import clean_text

__all__ = ["clean_json", "excess_in", "holds_more", "nested_deeper", "read_json"]

_PYTHON_DIGITS = 4300  # as many as Python reads by default
_SHOWN = 80  # characters of a name that somebody else made up


_MARK = re.compile(r'[^"\[\]{},]{0,65536}(["\[\]{},]?)')
_STRING_PIECE = re.compile(r'(?:[^"\\]{1,4096}|\\.){1,1024}', re.DOTALL)
_TOKENS_PER_VALUE = 5  # `,"key":"value"` has three, `[[],` four


def nested_deeper(text: str, levels: int) -> bool:
    """Return whether `text` opens more than `levels` objects and lists inside each other; ask before it is parsed.

    `json` finds out by running into the recursion limit, and whatever the collector ends just then fails there.
    """
    return excess_in(text, max_depth=levels) is not None


def _marks(text: str) -> Iterator[str]:
    """Yield each bracket, brace and comma of the JSON in `text`, and a quotation mark for each string.

    No single search reads much, so that a thread that counts the values of a long text lets others run.
    """
    at = 0
    while at < len(text):
        found = cast("re.Match[str]", _MARK.match(text, at))
        at = found.end()
        if found[1] == '"':
            while (piece := _STRING_PIECE.match(text, at)) is not None:
                at = piece.end()
            at += 1
        if found[1]:
            yield found[1]


def excess_in(text: str, *, max_depth: int, max_values: int | None = None) -> str | None:
    """Return a clause that says in which respect the JSON in `text` is too large to be parsed; None if it is not.

    Reads no further than the limits, so that a megabyte of brackets costs little more than a few kilobytes.
    """
    opened = text.count("[") + text.count("{")
    if opened <= max_depth and (max_values is None or opened + text.count(",") < max_values):
        return None
    room = math.inf if max_values is None else _TOKENS_PER_VALUE * max_values
    depth, values = 0, 1
    for place, mark in enumerate(_marks(text)):
        if mark in "[{":
            depth += 1
            values += 1
            if depth > max_depth:
                return f"it is nested deeper than {max_depth} levels"
        elif mark == ",":
            values += 1
        elif mark != '"':
            depth -= 1
        if max_values is not None and (values > max_values or place > room):
            return f"it holds more than {max_values} values"
    return None


def holds_more(value: object, values: int) -> bool:
    """Return whether a JSON value holds more than so many values inside it, keys not counted.

    Reads no further than the limit. What `excess_in` finds no excess in, for the same limit, never holds more.
    """
    count, left = 0, [value]
    while left and count <= values:
        entries = left.pop()
        if isinstance(entries, dict):
            entries = list(cast("dict[str, object]", entries).values())
        if isinstance(entries, list):
            count += len(cast("list[object]", entries))
            left += cast("list[object]", entries)
    return count > values


def read_json(
    text: str | bytes,
    *,
    max_depth: int,
    max_entries: int | None = None,
    max_digits: int = _PYTHON_DIGITS,
    max_values: int | None = None,
) -> Any:
    """Return the value of `text`, as `clean_json` leaves it; bytes are UTF-8.

    Raises `ValueError`, its message a clause such as "the key 'a' appears twice", for what is not exactly one value,
    a key that appears twice in one object, an integer of more than `max_digits`, more than `max_values` values in all,
    and what `clean_json` refuses.
    """

    def whole(digits: str) -> int:
        if len(digits) > max_digits:
            raise ValueError(f"a number in it has more than {max_digits} digits")
        return int(digits)

    try:
        said = text if isinstance(text, str) else text.decode()
        if (excess := excess_in(said, max_depth=max_depth, max_values=max_values)) is not None:
            raise ValueError(excess)
        value = json.loads(said, object_pairs_hook=_members, parse_int=whole)
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8") from exc
    except json.JSONDecodeError as exc:
        raise ValueError(f"{exc.msg} at line {exc.lineno}, column {exc.colno}") from exc
    return clean_json(value, max_depth=max_depth, max_entries=max_entries)


def clean_json(value: Any, *, max_depth: int, max_entries: int | None = None) -> Any:
    """Parsed JSON with lone surrogates replaced by U+FFFD.

    Raises `ValueError` likewise for numbers that are not finite, for more than `max_depth` objects and lists inside
    each other, for more than `max_entries` in one of them, and where two keys become one.
    """

    def clean(value: Any, levels: int) -> Any:
        if isinstance(value, str):
            return clean_text(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("NaN is not a JSON number" if math.isnan(value) else "a number in it is not finite")
        if not isinstance(value, dict | list):
            return value
        if levels == 0:
            raise ValueError(f"it is nested deeper than {max_depth} levels")
        if max_entries is not None and len(cast("list[Any]", value)) > max_entries:
            raise ValueError(f"an object or a list in it has more than {max_entries} entries")
        if isinstance(value, list):
            return [clean(item, levels - 1) for item in cast("list[Any]", value)]
        items = cast("dict[str, Any]", value).items()
        return _members([(clean_text(str(name)), clean(item, levels - 1)) for name, item in items])

    return clean(value, max_depth)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the key {clean_text(twice)[:_SHOWN]!r} appears twice")
    return members
