"""The odd parts of Chat Completions: text in all its wrappings, reasoning details, usage counts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from agenticx.llms.base import Usage
from agenticx.messages import clean_text

__all__ = ["ReasoningDetails", "cleaned", "field_of", "plain_text", "usage_of"]


def plain_text(value: object) -> str:
    """The text in a string, a part, or a list of parts; encrypted and redacted parts have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(plain_text(part) for part in cast("list[object]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        names = ("text", "thinking", "summary", "refusal", "content")
        return next((text for name in names if (text := plain_text(fields.get(name)))), "")
    return ""


class ReasoningDetails:
    """Streamed `reasoning_details`, put together: neighbours of the same type and index are one detail."""

    def __init__(self) -> None:
        self._details: list[tuple[dict[str, Any], dict[str, list[str]]]] = []

    def add(self, pieces: list[object]) -> None:
        """Take in the pieces of one delta."""
        for piece in pieces:
            if isinstance(piece, dict):
                self._add(cast("dict[str, Any]", piece))

    def _add(self, piece: dict[str, Any]) -> None:
        if not self._details or any(self._details[-1][0].get(name) != piece.get(name) for name in ("type", "index")):
            self._details.append(({}, {}))
        fields, texts = self._details[-1]
        for name, value in piece.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif value is not None or name not in fields:
                fields[name] = value

    def joined(self) -> list[dict[str, Any]]:
        """The details, each whole."""
        return [
            {**fields, **{name: "".join(pieces) for name, pieces in texts.items()}} for fields, texts in self._details
        ]


def usage_of(usage: object) -> Usage | None:
    """The counts in a `usage` object, None if it is none."""
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    prompt, completion = field_of(fields, "prompt_tokens_details"), field_of(fields, "completion_tokens_details")
    cached = prompt.get("cached_tokens", fields.get("cached_tokens", fields.get("prompt_cache_hit_tokens")))
    return Usage(
        input_tokens=_count(fields.get("prompt_tokens")),
        output_tokens=_count(fields.get("completion_tokens")),
        cached_tokens=_count(cached),
        reasoning_tokens=_count(completion.get("reasoning_tokens", fields.get("reasoning_tokens"))),
        cost_usd=_cost(fields.get("cost")),
    )


def field_of(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """The object in a field, empty if there is none."""
    value = fields.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e15 else None


def _cost(value: object) -> Decimal | None:
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
