"""A JSON Schema as those providers take it that hold a model to one: closed objects, few keywords.

OpenAI and Anthropic publish the keywords that they can hold a model to; this keeps those that both have. What they
lack is told in the description instead and checked in the answer. Every property becomes required, as OpenAI wants:
that narrows what the model may write, and never beyond the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_json

__all__ = ["strict_schema"]

_TOLD = ("description", "title", "type")
_SAID_OTHERWISE = frozenset({"$ref", "$defs", "additionalProperties", "anyOf", "const", "enum", "items", "oneOf"}) | {
    *("properties", "required", "allOf", "default", "examples", "discriminator", *_TOLD)
}
_OUT_OF_REACH = frozenset({"patternProperties", "propertyNames", "prefixItems", "not", "if", "dependentSchemas"})
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


class _OutOfReach(Exception):
    """No schema of theirs says this."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` in their words, None if they have none for it (open objects, tuples, values of any type).

    >>> strict_schema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})["properties"]
    {'n': {'type': 'integer', 'description': '{"minimum":1}'}}
    """
    try:
        return _strict(schema)
    except _OutOfReach:
        return None


def _strict(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise _OutOfReach
    schema = cast("dict[str, Any]", schema)
    if schema.keys() & _OUT_OF_REACH:
        raise _OutOfReach
    definitions = {"$defs": _table(schema["$defs"])} if "$defs" in schema else {}
    if "$ref" in schema:  # nothing else may stand beside it
        return {"$ref": schema["$ref"], **definitions}
    if "allOf" in schema:
        if len(schema["allOf"]) != 1:
            raise _OutOfReach
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        return _strict({**schema["allOf"][0], **rest})
    options = schema.get("anyOf") or schema.get("oneOf")
    strict: dict[str, Any] = {name: schema[name] for name in _TOLD if name in schema and name != "description"}
    if options:
        strict["anyOf"] = [_strict(option) for option in options]
    elif not isinstance(schema.get("type"), str):
        raise _OutOfReach
    strict |= _choices(schema) | _insides(schema)
    if schema.get("format") in _FORMATS:
        strict["format"] = schema["format"]
    if told := _told(schema, strict):
        strict["description"] = told
    return strict | definitions


def _table(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _strict(inner) for name, inner in schemas.items()}


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return {"enum": values} if values else {}


def _insides(schema: Mapping[str, Any]) -> dict[str, Any]:
    match schema.get("type"):
        case "object":
            if "properties" not in schema:
                raise _OutOfReach
            properties = _table(schema["properties"])
            return {"properties": properties, "required": list(properties), "additionalProperties": False}
        case "array":
            return {"items": _strict(schema.get("items"))}
        case _:
            return {}


def _told(schema: Mapping[str, Any], strict: Mapping[str, Any]) -> str:
    """The description, and what the schema asks for beyond what could be said."""
    left = {name: value for name, value in schema.items() if name not in _SAID_OTHERWISE and name not in strict}
    return "\n\n".join(filter(None, [schema.get("description"), to_json(left).decode() if left else None]))
