"""Values that a JSON Schema accepts, for tests: the same one each time, as small as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agenticx.llms.tool_caller.pattern_values import text_of_pattern

__all__ = ["value_of_schema"]

_Schema = Mapping[str, Any]

_MAX_DEPTH = 20
_FORMATS = {
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "a@example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.com/",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "binary": "a",
}


def value_of_schema(schema: _Schema) -> Any:
    """Return a value that `schema` accepts: of an object the required properties, of alternatives the first one.

    Limits of lengths, numbers and items are kept, formats that pydantic writes, and each `pattern` that
    `text_of_pattern` can read. Raises `ValueError` for any other pattern, and for a schema that no finite value fits,
    because it requires itself.

    >>> value_of_schema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]})
    {'n': 3}
    """
    return _Values(schema).value(schema, 0)


class _Values:
    def __init__(self, root: _Schema) -> None:
        self._root = root

    def value(self, schema: _Schema, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("no finite value fits the schema, which requires itself")
        if "$ref" in schema:
            return self.value(
                self._resolved(schema["$ref"]) | {k: v for k, v in schema.items() if k != "$ref"}, depth + 1
            )
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        if "default" in schema:
            return schema["default"]
        if "allOf" in schema:
            merged = {k: v for k, v in schema.items() if k != "allOf"}
            for part in schema["allOf"]:
                merged |= self._resolved(part["$ref"]) if "$ref" in part else part
            return self.value(merged, depth + 1)
        if alternatives := schema.get("anyOf") or schema.get("oneOf"):
            return self._first(alternatives, depth)
        kind: object = schema.get("type")
        kinds = cast("list[object]", kind) if isinstance(kind, list) else [kind]
        return self._typed(kinds[0] if kinds else None, schema, depth)

    def _first(self, alternatives: Sequence[_Schema], depth: int) -> Any:
        """Return a value of the first alternative that has a finite one."""
        for alternative in alternatives[:-1]:
            try:
                return self.value(alternative, depth + 1)
            except ValueError:
                continue
        return self.value(alternatives[-1], depth + 1)

    def _typed(self, kind: object, schema: _Schema, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number":
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return False
            case "null":
                return None
            case "string":
                return _string(schema)
            case _:
                return self._object(schema, depth) if "properties" in schema else "a"

    def _object(self, schema: _Schema, depth: int) -> dict[str, Any]:
        properties: Mapping[str, _Schema] = schema.get("properties", {})
        other = schema.get("additionalProperties")
        rest: _Schema = cast("_Schema", other) if isinstance(other, Mapping) else {}
        return {name: self.value(properties.get(name, rest), depth + 1) for name in schema.get("required", ())}

    def _array(self, schema: _Schema, depth: int) -> list[Any]:
        values = [self.value(item, depth + 1) for item in schema.get("prefixItems", ())]
        items = schema.get("items")
        while len(values) < schema.get("minItems", 0):
            item: _Schema = cast("_Schema", items) if isinstance(items, Mapping) else {}
            if schema.get("uniqueItems") and "pattern" in item and values:
                item = {**item, "minLength": len(values[-1]) + 1}
            value = self.value(item, depth + 1)
            is_same = schema.get("uniqueItems") and "pattern" not in item
            values.append(_other(value, len(values)) if is_same else value)
        return values

    def _resolved(self, reference: str) -> dict[str, Any]:
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            found = found[step.replace("~1", "/").replace("~0", "~")]
        return dict(found)


def _other(value: Any, number: int) -> Any:
    """Return a value of the same type for each number, for items that must differ."""
    if isinstance(value, str):
        return value + "a" * number
    return value + number if isinstance(value, int | float) and not isinstance(value, bool) else value


def _string(schema: _Schema) -> str:
    if "pattern" in schema:
        return _matching(schema)
    if (known := _FORMATS.get(schema.get("format", ""))) is not None:
        return known
    length = max(1, schema.get("minLength", 0))
    return "a" * min(length, schema.get("maxLength", length))


def _matching(schema: _Schema) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    text = text_of_pattern(schema["pattern"], min_length=least)
    if len(text) < least or (most is not None and len(text) > most):
        limits = f"at least {least} characters" if len(text) < least else f"at most {most} characters"
        raise ValueError(f"no text is made for the pattern {schema['pattern']!r} with {limits}")
    return text


def _number(schema: _Schema, *, is_integer: bool) -> int | float:
    """Return the number next to 0 within the limits."""
    step = schema.get("multipleOf", 1 if is_integer else 0.5)
    gap = 1 if is_integer else step
    low, high = schema.get("minimum"), schema.get("maximum")
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = max(above + gap, -float("inf") if low is None else low)
    if (under := schema.get("exclusiveMaximum")) is not None:
        high = min(under - gap, float("inf") if high is None else high)
    number = 0 if low is None or low <= 0 else -(-low // step) * step
    if high is not None and number > high:
        number = high // step * step if low is None or high // step * step >= low else high
    return int(number) if is_integer else number
