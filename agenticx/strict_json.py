"""Strict parsing of JSON from outside: duplicate keys, NaN and oversized input are refused.

Two parsers may read a text with duplicate keys or NaN as different values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from agenticx.messages import clean_text

__all__ = ["clean_json", "find_excess", "has_more_values", "is_nested_deeper", "read_json"]

_PYTHON_DIGITS = 4300  # the default limit of `int()`
_MAX_SHOWN_CHARS = 80  # of a name from the input, in an error message


_TOKEN = re.compile(r'[^"\[\]{},]{0,65536}(["\[\]{},]?)')
_STRING_PIECE = re.compile(r'(?:[^"\\]{1,4096}|\\.){1,1024}', re.DOTALL)
_TOKENS_PER_VALUE = 5  # `,"key":"value"` has three, `[[],` four


def is_nested_deeper(text: str, levels: int) -> bool:
    """Return whether `text` opens more than `levels` objects and lists inside each other; call it before parsing.

    `json` detects this only by running into the recursion limit, where a garbage collection may fail as well.
    """
    return find_excess(text, max_depth=levels) is not None


def _tokens(text: str) -> Iterator[str]:
    """Yield each bracket, brace and comma of the JSON in `text`, and a quotation mark for each string.

    No single regex match reads much, so that a thread that counts the values of a long text lets others run.
    """
    position = 0
    while position < len(text):
        found = cast("re.Match[str]", _TOKEN.match(text, position))
        position = found.end()
        if found[1] == '"':
            while (string_part := _STRING_PIECE.match(text, position)) is not None:
                position = string_part.end()
            position += 1
        if found[1]:
            yield found[1]


def find_excess(text: str, *, max_depth: int, max_values: int | None = None) -> str | None:
    """Return a clause that says why the JSON in `text` is too large to be parsed; None if it is not.

    Reads no further than the limits, so that a megabyte of brackets costs little more than a few kilobytes.
    """
    opened = text.count("[") + text.count("{")
    if opened <= max_depth and (max_values is None or opened + text.count(",") < max_values):
        return None
    max_tokens = math.inf if max_values is None else _TOKENS_PER_VALUE * max_values
    depth, values = 0, 1
    for index, token in enumerate(_tokens(text)):
        if token in "[{":
            depth += 1
            values += 1
            if depth > max_depth:
                return f"it is nested deeper than {max_depth} levels"
        elif token == ",":
            values += 1
        elif token != '"':
            depth -= 1
        if max_values is not None and (values > max_values or index > max_tokens):
            return f"it holds more than {max_values} values"
    return None


def has_more_values(value: object, values: int) -> bool:
    """Return whether a JSON value holds more than so many values inside it, keys not counted.

    Reads no further than the limit. The value of a text in which `find_excess` finds no excess never exceeds the same
    limit.
    """
    count, remaining = 0, [value]
    while remaining and count <= values:
        entries = remaining.pop()
        if isinstance(entries, dict):
            entries = list(cast("dict[str, object]", entries).values())
        if isinstance(entries, list):
            count += len(cast("list[object]", entries))
            remaining += cast("list[object]", entries)
    return count > values


def read_json(
    text: str | bytes,
    *,
    max_depth: int,
    max_entries: int | None = None,
    max_digits: int = _PYTHON_DIGITS,
    max_values: int | None = None,
) -> Any:
    """Parse `text` and return its value as `clean_json` does; bytes are UTF-8.

    Raises `ValueError`, its message a clause such as "the key 'a' appears twice", for text that is not exactly one
    value, a key that appears twice in one object, an integer of more than `max_digits`, more than `max_values` values
    in all, and everything that `clean_json` refuses.
    """

    def whole(digits: str) -> int:
        if len(digits) > max_digits:
            raise ValueError(f"a number in it has more than {max_digits} digits")
        return int(digits)

    try:
        decoded = text if isinstance(text, str) else text.decode()
        if (excess := find_excess(decoded, max_depth=max_depth, max_values=max_values)) is not None:
            raise ValueError(excess)
        value = json.loads(decoded, object_pairs_hook=_to_object, parse_int=whole)
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8") from exc
    except json.JSONDecodeError as exc:
        raise ValueError(f"{exc.msg} at line {exc.lineno}, column {exc.colno}") from exc
    return clean_json(value, max_depth=max_depth, max_entries=max_entries)


def clean_json(value: Any, *, max_depth: int, max_entries: int | None = None) -> Any:
    """Return parsed JSON with lone surrogates replaced by U+FFFD.

    Raises `ValueError` with such a clause for numbers that are not finite, for more than `max_depth` objects and lists
    inside each other, for more than `max_entries` in one of them, and where two keys become equal.
    """

    def clean(value: Any, levels: int) -> Any:
        if isinstance(value, str):
            return value if value.isascii() else clean_text(value)
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
        return _to_object([(clean(str(name), levels), clean(item, levels - 1)) for name, item in items])

    return clean(value, max_depth)


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        repeated_key = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the key {clean_text(repeated_key)[:_MAX_SHOWN_CHARS]!r} appears twice")
    return members
