"""Reading of providers' JSON: a value of the wrong type counts as missing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

from agenticx.messages import clean_text

__all__ = [
    "arguments_json",
    "cleaned",
    "cost_in",
    "count_in",
    "fields_in",
    "first_count_in",
    "items_in",
    "json_string_fragment",
    "json_text",
    "object_from_pairs",
    "text_in",
]

MAX_DEPTH = 200
"""The limit of the fast JSON parser too; a message that is nested more deeply could not be stored."""


def text_in(fields: dict[str, Any], name: str) -> str:
    """Return the string at `name`, else `""`."""
    value = fields.get(name)
    return value if type(value) is str else ""


def fields_in(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the object at `name`, else an empty one."""
    value = fields.get(name)
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def items_in(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in the list at `name`, else an empty list."""
    value = fields.get(name)
    if type(value) is not list:
        return []
    return [cast("dict[str, Any]", item) for item in cast("list[object]", value) if type(item) is dict]


def count_in(fields: dict[str, Any], name: str) -> int | None:
    """Return the count at `name`, None if there is none."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e15 else None


def first_count_in(*candidates: tuple[dict[str, Any], str]) -> int | None:
    """Return the first count that is present at one of these names, None if there is none."""
    return next((count for fields, name in candidates if (count := count_in(fields, name)) is not None), None)


def cost_in(fields: dict[str, Any], name: str) -> Decimal | None:
    """Return the amount of money at `name`, None if there is none."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(str(value)) if 0 <= value < 1e9 else None


def cleaned(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return parsed JSON with U+FFFD for lone surrogates; raise `RecursionError` if nested deeper than `levels`."""
    if levels < 0:
        raise RecursionError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(item, levels - 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return object_from_pairs([(clean_text(name), cleaned(item, levels - 1)) for name, item in items])
    return value


class _DuplicateKeyObject(dict[str, Any]):
    """An object with duplicate keys: a lookup returns the last value, serialising writes all of them."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


def object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; it is no plain `dict` if a key occurs twice."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else _DuplicateKeyObject(pairs)


def arguments_json(value: object) -> str:
    """Return arguments given as an object or text as text; missing arguments are an empty object."""
    return value if isinstance(value, str) else json_text(value or {})


def json_text(value: object) -> str:
    """Return `value` as JSON, duplicate keys included, so that the reader of the arguments refuses them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_string_fragment(text: str, *, first: bool) -> str:
    """Return a fragment of a text, escaped as in the JSON string of the whole; the first has the opening quote.

    >>> json_string_fragment("one ", first=True) + json_string_fragment("two", first=False) + '"'
    '"one two"'
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted[:-1] if first else quoted[1:-1]
