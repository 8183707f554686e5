"""Tables of a configuration file, and the problems in one as sentences."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from agenticx.errors import SettingsError
from agenticx.setting_validators import read_toml

__all__ = [
    "MAX_LISTED",
    "UNKNOWN_KIND",
    "ConfigTable",
    "check_keys",
    "known_names",
    "parse_table",
    "problems",
    "repeated_name",
    "shortened",
    "tags_of",
]

C = TypeVar("C")

UNKNOWN_KIND = "unknown_kind"
"""The type of an error whose message says all but the place."""

MAX_LISTED = 100
"""The largest number of participants, conditions or names in a list of a configuration."""

_MAX_SHOWN_CHARS = 100
_MAX_SHOWN_PROBLEMS = 5
_MAX_SHOWN_NAMES = 20


class ConfigTable(BaseModel):
    """A table whose keys are all known and whose values are of just their types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: object) -> object:
        return check_keys(cls, given)


def check_keys(table: type, given: object) -> object:
    """Return the values of a table for a pydantic class; raise `ValueError` for a key that is none of its fields."""
    known = _fields_of(table)
    keys = cast("Mapping[str, object]", given).keys() if isinstance(given, Mapping) else frozenset[str]()
    if unknown := sorted(keys - known.keys()):
        raise ValueError(f"has the unknown key {shortened(unknown[0])}; known keys: {', '.join(known)}")
    return cast("object", given)


def _fields_of(table: type) -> Mapping[str, Any]:
    """Return the fields of a pydantic class: a model, or a dataclass, which has no public name for them."""
    return cast("Any", table).__pydantic_fields__


def parse_table(
    text: str,
    where: str,
    adapter: TypeAdapter[C],
    *,
    error: type[SettingsError],
    tags: Mapping[str, Iterable[str]] | None = None,
) -> C:
    """Return the TOML `text` as the type of `adapter`; raise `error` for any other text, with `where`, its file.

    `tags` are as in `problems`.
    """
    try:
        values = read_toml(text)
    except ValueError as exc:
        raise error(f"{where} is not TOML: {exc}") from exc
    try:
        return adapter.validate_python(values)
    except ValidationError as exc:
        raise error(f"{where}: {'; '.join(problems(exc, tags or {}))}") from exc


def problems(exc: ValidationError, tags: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a sentence for each of the first problems that names its place, and one that counts the others.

    Places are in a file, and in lists of tables of several kinds; `tags` are the values of the keys that tell these
    apart. Without any the file itself is of one kind.
    """
    found = cast("Sequence[Mapping[str, Any]]", exc.errors(include_url=False))
    shown = [_sentence(error, tags) for error in found[:_MAX_SHOWN_PROBLEMS]]
    return shown if len(shown) == len(found) else [*shown, f"and {len(found) - len(shown)} more problems"]


def _sentence(error: Mapping[str, Any], tags: Mapping[str, Iterable[str]]) -> str:
    place, context = _place(error["loc"] if tags else ("", *error["loc"])), error.get("ctx", {})
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "union_tag_not_found":
            key = context["discriminator"].strip("'")
            return f"{_key(place, key)} is missing; right would be one of {', '.join(map(repr, tags[key]))}"
        case "union_tag_invalid":
            key, tag = _key(place, context["discriminator"]), shortened(context["tag"])
            return f"{key} is {tag}; right would be one of {context['expected_tags']}"
        case "unknown_kind":
            return f"{place} {error['msg']}"
        case "model_type" | "model_attributes_type":
            return f"{place} is {shortened(error['input'])}; right would be a table"
        case "value_error":
            return f"{place} {context['error']}"
        case _:
            problem = str(error["msg"])
            return f"{place} is {shortened(error['input'])}: {problem[:1].lower()}{problem[1:]}"


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


def tags_of(configs: Iterable[type], key: str) -> list[str]:
    """Return the values that `key` has in tables of these pydantic classes."""
    return [tag for config in configs for tag in get_args(_fields_of(config)[key].annotation)]


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that stands in a list for the second time, None if all are different."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def known_names(names: Iterable[str]) -> str:
    """Return the first of the names for the text of an error."""
    listed = list(names)
    return ", ".join([*listed[:_MAX_SHOWN_NAMES], *(["…"] if len(listed) > _MAX_SHOWN_NAMES else [])])


def shortened(value: object) -> str:
    """Return the `repr` of a value, cut to about a line, however large or deeply nested it is."""
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.fillvalue = 4, "…"
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _MAX_SHOWN_CHARS
