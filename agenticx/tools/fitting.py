"""Numbers that a model wrote in another form, made what a tool's JSON Schema asks for, where nothing is lost.

1. A string that is exactly a JSON number (`"12"`, `"-0.5"`, `"1e3"`, no spaces) becomes that number where the schema
   takes numbers and no such string. Where it takes both, as `int | str` does, the string stays.
2. A float with an integral value below 2**53 becomes an integer where the schema takes integers and no other numbers.
   Beyond that a float does not tell which integer was meant.
3. Both may apply: `"3.0"` fits an integer. Nothing else is converted: no words to booleans, no numbers to strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

__all__ = ["coerce_numbers"]

_NUMERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<more>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_MAX_NUMERAL_CHARS = 400
"""Characters; longer ones are no number that anybody works with, and reading them takes more than linear time."""

_EXACT_BELOW = 2**53
"""Below it each integer is a float of its own."""

_Schema = Mapping[str, Any]


def coerce_numbers(schema: _Schema, value: Any) -> tuple[Any, bool]:
    """Return parsed JSON with its numbers as `schema` asks for them, and whether any was converted.

    Where several schemas may apply to a value (`anyOf`), only what none of them takes is converted. Never raises for
    what `value` holds; parts that the schema says nothing of, or that do not fit it, are left as they are.
    """
    coercion = _NumberCoercion(schema)
    return coercion.coerce(value, coercion.alternatives([schema])), coercion.changed


class _NumberCoercion:
    """One pass over one value. Time is linear in the value, times the alternatives that the schema has for a place."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self.changed = False

    def alternatives(self, schemas: Iterable[object]) -> list[_Schema]:
        """All schemas that may apply where `schemas` do: references followed, unions opened, each once."""
        found: list[_Schema] = []
        seen: set[int] = set()
        left = list(schemas)
        while left:
            schema = left.pop()
            if not isinstance(schema, Mapping) or id(cast("object", schema)) in seen:
                continue
            known = cast(_Schema, schema)
            seen.add(id(known))
            found.append(known)
            if "$ref" in known:
                left.append(self._resolve_reference(known["$ref"]))
            for union in ("anyOf", "oneOf", "allOf"):
                left += _items(known.get(union))
        return found

    def coerce(self, value: Any, schemas: Sequence[_Schema]) -> Any:
        """The value with its numbers converted; `schemas` are the alternatives of its place."""
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
        others = self.alternatives(schema.get("additionalProperties") for schema in schemas)
        members = [schema["properties"] for schema in schemas if isinstance(schema.get("properties"), Mapping)]
        coerced: dict[str, Any] = {}
        for name, member in value.items():
            named = [properties[name] for properties in members if name in properties]
            coerced[name] = self.coerce(member, self.alternatives(named) if named else others)
        return coerced

    def _coerce_items(self, value: list[Any], schemas: Sequence[_Schema]) -> list[Any]:
        others = self.alternatives(schema.get("items") for schema in schemas)
        prefixes = [_items(schema.get("prefixItems")) for schema in schemas]
        prefix_length = max(map(len, prefixes), default=0)
        coerced: list[Any] = []
        for index, entry in enumerate(value):
            item_schemas = (
                [prefix[index] for prefix in prefixes if index < len(prefix)] if index < prefix_length else []
            )
            coerced.append(self.coerce(entry, self.alternatives(item_schemas) if item_schemas else others))
        return coerced

    def _resolve_reference(self, reference: object) -> object:
        """The schema at a reference such as `#/$defs/Point`; None if there is none."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            if not isinstance(found, Mapping):
                return None
            found = cast(_Schema, found).get(step.replace("~1", "/").replace("~0", "~"))
        return found


def _number_for(value: str | float, schemas: Sequence[_Schema]) -> int | float | None:
    """The number that `value` stands for, if the schemas of its place take that and not the value itself."""
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
    """The JSON types that a place takes, "string" only if it may take this one; both where a schema does not say."""
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
    """Return the number that JSON would read; None for any other text and for digits that a float would lose."""
    if len(text) > _MAX_NUMERAL_CHARS or (numeral := _NUMERAL.fullmatch(text)) is None:
        return None
    if not numeral["more"]:
        return int(text)
    number = float(text)
    if abs(number) == float("inf") or Decimal(repr(number)) != Decimal(text):
        return None
    return number


def _is_exact_float(number: int) -> bool:
    """Return whether a float holds the integer to its last digit."""
    return abs(number) < _EXACT_BELOW or (abs(number) < 2**1023 and int(float(number)) == number)


def _as_integer(number: float, exact: Decimal) -> int | None:
    """The integer that `number` is, if it is one that a float can tell from its neighbours."""
    if not abs(number) < _EXACT_BELOW or exact != int(number):
        return None
    return int(number)


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
