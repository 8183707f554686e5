"""The arguments of a call: read exactly once finished, shown while they grow, repaired for harmless calls alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

from agenticx.errors import InvalidArguments
from agenticx.llms._limits import MAX_VALUES
from agenticx.messages import clean_text
from agenticx.strict_json import clean_json, excess_in, holds_more, read_json

__all__ = ["check_value_count", "parse_arguments", "preview_arguments", "repair_arguments"]

_MAX_REPAIRED_CHARS = 64 * 1024
_MAX_DEPTH = 100
"""Far more than any schema has, and far less than what recursion over the value can take."""

_MAX_DIGITS = 1_300
"""A number of 4,096 bits, as keys have. Reading and writing one takes as long as the square of its digits."""


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the object that `text` is; empty text is `{}`, as providers use it.

    Raises `InvalidArguments` for anything that is not exactly one JSON object: duplicate keys and non-finite numbers
    included, because two readers may take them for different calls; for numbers of more than 1,300 digits and for more
    than 10,000 values, which no model writes on purpose and which every later step would take long over.
    """
    if not text.strip():
        return {}
    try:
        value = read_json(text, max_depth=_MAX_DEPTH, max_digits=_MAX_DIGITS, max_values=MAX_VALUES)
    except ValueError as exc:
        raise InvalidArguments(f"the arguments are not valid JSON: {exc}") from exc
    return _as_object(value)


def check_value_count(arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidArguments` for more values than `parse_arguments` takes: arguments that came in another way."""
    if holds_more(dict(arguments), MAX_VALUES):
        raise InvalidArguments(f"they hold more than {MAX_VALUES} values; make several calls, each with some of them")


def preview_arguments(text: str) -> dict[str, Any] | None:
    """What the arguments say so far, to be shown and never acted on; None if `text` does not begin one object.

    `text` is every `arguments_delta` of one call, joined. What is shown only grows: the last string may be cut; names,
    numbers and words appear once they are whole. Every preview of a text that `parse_arguments` reads agrees with what
    it reads; one it refuses for what it cannot see (duplicate keys, text behind the object) may have previews all the
    same. A freeform call's text, a JSON string, has none. Keep what you showed when None comes: `tool_call` tells more.

    >>> preview_arguments('{"path": "notes.txt", "line": 1'), preview_arguments('{"path": "notes.txt", "line": 12}')
    ({'path': 'notes.txt'}, {'path': 'notes.txt', 'line': 12})

    Each call reads all of `text` again (3 µs per kB of strings, 35 µs per kB of numbers, measured on one slow core), so
    call it on a tick, ten times a second, and not for each delta. More values than `parse_arguments` takes are None.
    """
    if excess_in(text, max_depth=_MAX_DEPTH, max_values=MAX_VALUES) is not None:
        return None
    complete_part = _without_trailing_number(clean_text(text))
    if not complete_part.strip():
        return {}
    try:
        value = clean_json(_parse_partial(complete_part), max_depth=_MAX_DEPTH)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def repair_arguments(text: str) -> dict[str, Any]:
    """What a complete but malformed text most likely means: a fence, single quotes, trailing commas.

    A guess: only for calls without side effects, validated by their schema and marked as repaired. Raises
    `InvalidArguments` for what is not one whole object (cut, followed by another, surrounded by prose), for duplicate
    keys, for more than 64 kB, which would take seconds, and if no object comes out.
    """
    from json_repair import repair_json

    if len(text) > _MAX_REPAIRED_CHARS:
        raise InvalidArguments(f"the arguments are not valid JSON, and too long to be repaired: {len(text)} characters")
    body = _FENCE.sub(r"\1", text.strip())
    _check_single_object(body)
    try:
        value = clean_json(repair_json(body, return_objects=True, skip_json_loads=True), max_depth=_MAX_DEPTH)
    except (RecursionError, ValueError) as exc:
        raise InvalidArguments(f"the arguments are not valid JSON and cannot be repaired: {exc}") from exc
    return _as_object(value)


# --- while they grow --------------------------------------------------------------------------------------------------

_OUTSIDE_STRINGS = re.compile(r'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_ESCAPES = re.compile(
    r"""(?: \\(?: [^u] | u(?![dD][89a-fA-F]) ) [^\\]*+ )++
    | \\(?:
        u[dD][89abAB][0-9a-fA-F]{2}
            (?: \\u[dD][c-fC-F][0-9a-fA-F]{2} | (?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z )
        | (?P<half> u[dD][89a-fA-F][0-9a-fA-F]{2} )
        | .
    )""",
    re.DOTALL | re.VERBOSE,
)
"""Escapes of anything else, or one escape; `half` is a surrogate that stands alone and will never be joined."""


def _parse_partial(text: str) -> Any:
    """The value that `text` begins, halves of characters replaced as in a finished text; raises `ValueError`."""
    try:
        return from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return from_json(_ESCAPES.sub(_replace_lone_surrogate, text), allow_partial="trailing-strings")


def _without_trailing_number(text: str) -> str:
    """`text` without a number at its end that may go on; the parser would take 1 for what becomes 15."""
    if not text[-1:].isdigit():
        return text
    before = text.rstrip("0123456789+-.eE")
    if before[-1:] in (":", ",", "[", " ", "\t", "\r", "\n") and _OUTSIDE_STRINGS.fullmatch(before):
        return before
    return text


def _replace_lone_surrogate(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape["half"] else escape[0]


# --- repaired ---------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\Z", re.DOTALL)
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\],:]|[^\s{}\[\],:"']+)\s*""", re.DOTALL)
_CLOSES = {"}": "{", "]": "["}


def _check_single_object(text: str) -> None:
    """Raises `InvalidArguments` unless `text` is one closed object whose strings end and whose keys differ."""
    opened: list[tuple[str, set[str]]] = []
    position, previous = 0, ""
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or not (opened or (position == 0 and token[1] == "{")):
            raise InvalidArguments("the arguments are not one whole JSON object")
        token_text, position = token[1], token.end()
        if token_text in ("{", "["):
            opened.append((token_text, set()))
        elif token_text in _CLOSES and opened.pop()[0] != _CLOSES[token_text]:
            raise InvalidArguments("the brackets of the arguments do not match")
        elif token_text == ":" and opened[-1][0] == "{":
            key, keys = previous.strip("\"'"), opened[-1][1]
            if key in keys:
                raise InvalidArguments(f"the key {key!r} appears twice in the arguments")
            keys.add(key)
        previous = token_text
    if opened:
        raise InvalidArguments("the arguments are cut off")


def _as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be a JSON object, not {_json_kind(value)}")
    return cast("dict[str, Any]", value)


def _json_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case _:
            return "an array"
