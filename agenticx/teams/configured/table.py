"""Tables of a configuration file, and the problems in one as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

__all__ = ["UNKNOWN_KIND", "ConfigTable", "problems"]

UNKNOWN_KIND = "unknown_kind"
"""The type of an error whose message says all but the place."""

_MAX_SHOWN_CHARS = 100


class ConfigTable(BaseModel):
    """A table whose keys are all known and whose values are of just their types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: object) -> object:
        keys = cast("Mapping[str, object]", given).keys() if isinstance(given, Mapping) else frozenset[str]()
        if unknown := sorted(keys - cls.model_fields.keys()):
            raise ValueError(f"has the unknown key {unknown[0]!r}; known keys: {', '.join(cls.model_fields)}")
        return cast("object", given)


def problems(exc: ValidationError, tags: Iterable[str]) -> list[str]:
    """Return a sentence for each problem that names its place; `tags` are the values that select a kind of table."""
    known = frozenset(tags)
    return [_sentence(cast("Mapping[str, Any]", error), known) for error in exc.errors(include_url=False)]


def _sentence(error: Mapping[str, Any], tags: frozenset[str]) -> str:
    place, context = _place([part for part in error["loc"] if part not in tags]), error.get("ctx", {})
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "union_tag_not_found":
            return f"{_key(place, context['discriminator'])} is missing"
        case "union_tag_invalid":
            key, tag = _key(place, context["discriminator"]), _shortened(context["tag"])
            return f"{key} is {tag}; right would be one of {context['expected_tags']}"
        case "unknown_kind":
            return f"{place} {error['msg']}"
        case "value_error":
            return f"{place} {context['error']}"
        case _:
            problem = str(error["msg"])
            return f"{place} is {_shortened(error['input'])}: {problem[:1].lower()}{problem[1:]}"


def _place(parts: Sequence[int | str]) -> str:
    """Return a place such as `participants[0].tools`.

    >>> _place(["participants", 0, "tools"])
    'participants[0].tools'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "the file"


def _key(place: str, discriminator: str) -> str:
    """Return the place of a key in a table, whose name pydantic quotes."""
    key = discriminator.strip("'")
    return key if place == "the file" else f"{place}.{key}"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"
