"""Lossless conversion of numbers in arguments to the type that a tool's JSON Schema accepts.

1. A string that is exactly a JSON number (`"12"`, `"-0.5"`, `"1e3"`, no spaces) becomes that number where the schema
   accepts numbers and not this string. Where it accepts both, as `int | str` does, the string stays.
2. A float with an integral value below 2**53 becomes an integer where the schema accepts integers and no other numbers.
   From 2**53 on, several integers have the same float.
3. Both may apply: `"3.0"` becomes the integer 3. Nothing else is converted: no words to booleans, no numbers to
   strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

__all__ = ["coerce_numbers"]

_NUMERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<more>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_MAX_NUMERAL_CHARS = 400
"""Maximum number of characters; longer numerals are of no use, and parsing them takes more than linear time."""

_EXACT_BELOW = 2**53
"""Each smaller integer has a float of its own."""

_Schema = Mapping[str, Any]


def coerce_numbers(schema: _Schema, value: Any) -> tuple[Any, bool]:
    """Return parsed JSON with its numbers converted as `schema` requires, and whether any was converted.

    Where several schemas may apply to a value (`anyOf`), a value is converted only if none of them accepts it. Never
    raises, for any `value`; parts that the schema does not describe, or that do not match it, stay unchanged.
    """
    coercion = _NumberCoercion(schema)
    return coercion.coerce(value, coercion.alternatives([schema])), coercion.changed


class _NumberCoercion:
    """One conversion of one value; its time is linear in the size of the value times the alternatives per position."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self.changed = False

    def alternatives(self, schemas: Iterable[object]) -> list[_Schema]:
        """Return all schemas that may apply where `schemas` do: references and unions resolved, each schema once."""
        resolved: list[_Schema] = []
        seen: set[int] = set()
        remaining = list(schemas)
        while remaining:
            schema = remaining.pop()
            if not isinstance(schema, Mapping) or id(cast("object", schema)) in seen:
                continue
            subschema = cast(_Schema, schema)
            seen.add(id(subschema))
            resolved.append(subschema)
            if "$ref" in subschema:
                remaining.append(self._resolve_reference(subschema["$ref"]))
            for union in ("anyOf", "oneOf", "allOf"):
                remaining += _items(subschema.get(union))
        return resolved

    def coerce(self, value: Any, schemas: Sequence[_Schema]) -> Any:
        """Return the value with its numbers converted; `schemas` are the alternatives for its position."""
        if isinstance(value, dict):
            return self._coerce_members(cast("dict[str, Any]", value), schemas)
        if isinstance(value, list):
            return self._coerce_items(cast("list[Any]", value), schemas)
        if not isinstance(value, str | float):
            return value
        number = _number_for(value, schemas)
        if number is None:
            return value
        self.changed = True
        return number

    def _coerce_members(self, value: dict[str, Any], schemas: Sequence[_Schema]) -> dict[str, Any]:
        defaults = self.alternatives(schema.get("additionalProperties") for schema in schemas)
        members = [schema["properties"] for schema in schemas if isinstance(schema.get("properties"), Mapping)]
        coerced: dict[str, Any] = {}
        for name, member in value.items():
            named = [properties[name] for properties in members if name in properties]
            coerced[name] = self.coerce(member, self.alternatives(named) if named else defaults)
        return coerced

    def _coerce_items(self, value: list[Any], schemas: Sequence[_Schema]) -> list[Any]:
        defaults = self.alternatives(schema.get("items") for schema in schemas)
        prefixes = [_items(schema.get("prefixItems")) for schema in schemas]
        prefix_length = max(map(len, prefixes), default=0)
        coerced: list[Any] = []
        for index, entry in enumerate(value):
            item_schemas = (
                [prefix[index] for prefix in prefixes if index < len(prefix)] if index < prefix_length else []
            )
            coerced.append(self.coerce(entry, self.alternatives(item_schemas) if item_schemas else defaults))
        return coerced

    def _resolve_reference(self, reference: object) -> object:
        """Return the schema at a reference like `#/$defs/Point`, or None if it does not exist."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            if not isinstance(found, Mapping):
                return None
            found = cast(_Schema, found).get(step.replace("~1", "/").replace("~0", "~"))
        return found


def _number_for(value: str | float, schemas: Sequence[_Schema]) -> int | float | None:
    """Return the number that `value` represents, or None unless `schemas` accept that number and not the value."""
    accepted = _accepted_types(schemas, value)
    if isinstance(value, str):
        if "string" in accepted or not accepted & {"integer", "number"}:
            return None
        number = _read_numeral(value)
        if isinstance(number, float) and "number" not in accepted:
            return _as_integer(number, Decimal(value))
        if isinstance(number, int) and "integer" not in accepted and not _is_exact_float(number):
            return None
        return number
    return _as_integer(value, Decimal(value)) if "integer" in accepted and "number" not in accepted else None


def _accepted_types(schemas: Sequence[_Schema], value: str | float) -> set[str]:
    """Return the JSON types that the schemas accept.

    With `enum` or `const`, "string" is included only if `value` is one of the choices. A schema without a type accepts
    "string" and "number".
    """
    types: set[str] = set()
    for schema in schemas:
        if "enum" in schema or "const" in schema:
            choices = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
            types.update(_json_type(choice) for choice in choices if not isinstance(choice, str) or choice == value)
        elif isinstance(type_ := schema.get("type"), str):
            types.add(type_)
        elif isinstance(type_, list):
            types.update(map(str, cast("list[object]", type_)))
        elif not schema.keys() & _COMPOSITES:
            types |= {"string", "number"}
    return types


_COMPOSITES = frozenset({"$ref", "anyOf", "oneOf", "allOf"})


def _json_type(choice: object) -> str:
    match choice:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "other"


def _read_numeral(text: str) -> int | float | None:
    """Return the number that a JSON parser would return, or None for other texts and for digits a float would lose."""
    if len(text) > _MAX_NUMERAL_CHARS or (numeral := _NUMERAL.fullmatch(text)) is None:
        return None
    if not numeral["more"]:
        return int(text)
    number = float(text)
    if abs(number) == float("inf") or Decimal(repr(number)) != Decimal(text):
        return None
    return number


def _is_exact_float(number: int) -> bool:
    """Return whether a float represents the integer exactly."""
    return abs(number) < _EXACT_BELOW or (abs(number) < 2**1023 and int(float(number)) == number)


def _as_integer(number: float, exact: Decimal) -> int | None:
    """Return `number` as an integer if it is integral and below 2**53, else None."""
    if not abs(number) < _EXACT_BELOW or exact != int(number):
        return None
    return int(number)


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
