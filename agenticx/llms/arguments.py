"""The arguments of a call: one strict reading of the finished text, and one repair that only harmless calls may use."""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from agenticx.errors import InvalidArguments
from agenticx.messages import clean_text

__all__ = ["parse_arguments", "repair_arguments"]

_MAX_DEPTH = 100
"""Far more than any schema has, and far less than what recursion over the value can take."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The object that `text` is; empty text is `{}`, as providers use it.

    Raises `InvalidArguments` for anything that is not exactly one JSON object: duplicate keys and non-finite numbers
    included, because two readers may take them for different calls.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as exc:
        raise InvalidArguments("the arguments are nested too deeply") from exc
    except ValueError as exc:
        raise InvalidArguments(f"the arguments are not valid JSON: {exc}") from exc
    return _as_object(value)


def repair_arguments(text: str) -> dict[str, Any]:
    """What a complete but malformed text most likely means: a fence, single quotes, trailing commas.

    A guess: only for calls without side effects, validated by their schema and marked as repaired. Raises
    `InvalidArguments` for what is not one whole object (cut, followed by another, surrounded by prose), for duplicate
    keys, and if no object comes out.
    """
    from json_repair import repair_json

    body = _FENCE.sub(r"\1", text.strip())
    _check_whole(body)
    try:
        value = repair_json(body, return_objects=True, skip_json_loads=True)
    except (RecursionError, ValueError) as exc:
        raise InvalidArguments(f"the arguments are not valid JSON and cannot be repaired: {exc}") from exc
    return _as_object(value)


_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\Z", re.DOTALL)
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\],:]|[^\s{}\[\],:"']+)\s*""", re.DOTALL)
_CLOSES = {"}": "{", "]": "["}


def _check_whole(text: str) -> None:
    """Raises `InvalidArguments` unless `text` is one closed object whose strings end and whose keys differ."""
    opened: list[tuple[str, set[str]]] = []
    at, before = 0, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or not (opened or (at == 0 and token[1] == "{")):
            raise InvalidArguments("the arguments are not one whole JSON object")
        word, at = token[1], token.end()
        if word in ("{", "["):
            opened.append((word, set()))
        elif word in _CLOSES and opened.pop()[0] != _CLOSES[word]:
            raise InvalidArguments("the brackets of the arguments do not match")
        elif word == ":" and opened[-1][0] == "{":
            key, keys = before.strip("\"'"), opened[-1][1]
            if key in keys:
                raise InvalidArguments(f"the key {key!r} appears twice in the arguments")
            keys.add(key)
        before = word
    if opened:
        raise InvalidArguments("the arguments are cut off")


def _as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArguments(f"the arguments must be a JSON object, not {_json_kind(value)}")
    return _clean(value, _MAX_DEPTH)


def _clean(value: Any, levels: int) -> Any:
    """`value` without lone surrogates; raises `InvalidArguments` below `levels` and where two keys become one."""
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        raise InvalidArguments(f"the arguments are nested too deeply; {_MAX_DEPTH} levels are the most")
    if isinstance(value, list):
        return [_clean(item, levels - 1) for item in cast("list[Any]", value)]
    items = cast("dict[Any, Any]", value)
    cleaned = {clean_text(str(key)): _clean(item, levels - 1) for key, item in items.items()}
    if len(cleaned) != len(items):
        raise InvalidArguments("two keys of the arguments differ only in characters that are not text")
    return cleaned


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise InvalidArguments(f"the key {twice!r} appears twice in the arguments")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidArguments(f"the number {text} is too large")
    return value


def _refuse_constant(name: str) -> Any:
    raise InvalidArguments(f"{name} is not a JSON number")


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
