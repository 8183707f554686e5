"""Foreign JSON, value by value: what has the wrong type counts as missing, and no text holds a lone surrogate."""

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
    "items_in",
    "json_text",
    "object_from_pairs",
    "text_in",
]

MAX_DEPTH = 200
"""What the fast JSON parser takes too; a message that holds more could not be stored."""


def text_in(fields: dict[str, Any], name: str) -> str:
    """The string at `name`, else `""`."""
    value = fields.get(name)
    return value if type(value) is str else ""


def fields_in(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """The object at `name`, else an empty one."""
    value = fields.get(name)
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def items_in(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in the list at `name`, else none."""
    value = fields.get(name)
    if type(value) is not list:
        return []
    return [cast("dict[str, Any]", item) for item in cast("list[object]", value) if type(item) is dict]


def count_in(fields: dict[str, Any], name: str) -> int | None:
    """The count at `name`, None where there is none."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e15 else None


def cost_in(fields: dict[str, Any], name: str) -> Decimal | None:
    """The amount of money at `name`, None where there is none."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(str(value)) if 0 <= value < 1e9 else None


def cleaned(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Parsed JSON with lone surrogates in its texts replaced by U+FFFD; raises `RecursionError` below `levels`."""
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
    """An object that names a key twice: who looks a key up gets the last one, who writes it out writes all of them."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


def object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; it is no plain `dict` where a key is among them twice."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else _DuplicateKeyObject(pairs)


def arguments_json(value: object) -> str:
    """Arguments that come as an object, or as text already, as text; none are an empty object."""
    return value if isinstance(value, str) else json_text(value or {})


def json_text(value: object) -> str:
    """`value` as JSON, with the keys that it names twice: whoever reads it then has to refuse it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
