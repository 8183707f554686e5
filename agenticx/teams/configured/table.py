"""Tables of a configuration file, and the problems in one as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
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


def problems(exc: ValidationError) -> list[str]:
    """Return a sentence for each problem that names its place, in a file and in lists of tables of several kinds."""
    return [_sentence(cast("Mapping[str, Any]", error)) for error in exc.errors(include_url=False)]


def _sentence(error: Mapping[str, Any]) -> str:
    place, context = _place(error["loc"]), error.get("ctx", {})
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
    """Return a place such as `participants[0].tools`; pydantic names the kind of a table before its keys.

    >>> _place(["swarm", "participants", 0, "assistant", "tools", 1])
    'participants[0].tools[1]'
    """
    keys = [part for before, part in pairwise([0, *parts]) if isinstance(part, int) or not isinstance(before, int)]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in keys)
    return text.removeprefix(".") or "the file"


def _key(place: str, discriminator: str) -> str:
    """Return the place of a key in a table, whose name pydantic quotes."""
    key = discriminator.strip("'")
    return key if place == "the file" else f"{place}.{key}"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"
