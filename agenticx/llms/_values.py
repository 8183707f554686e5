"""Foreign JSON, value by value: what has the wrong type counts as missing, and no text holds a lone surrogate."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from agenticx.messages import clean_text

__all__ = ["cleaned", "cost_in", "count_in", "fields_in", "items_in", "text_in"]


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


def cleaned(value: Any) -> Any:
    """Parsed JSON with lone surrogates in its texts replaced by U+FFFD."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {clean_text(name): cleaned(item) for name, item in cast("dict[str, Any]", value).items()}
    return value
