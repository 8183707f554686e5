"""Conversion of JSON Schemas to the strict subset of OpenAI and Anthropic.

The subset has closed objects and few keywords. OpenAI and Anthropic publish the keywords that they enforce; this keeps
the keywords of both. Other keywords are written into the description instead and checked in the answer. Every property
becomes required, as OpenAI wants: that narrows the model's output, and never beyond the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_json

from agenticx.llms.base import OutputSchema

__all__ = ["schema_fields", "strict_schema"]

_COPIED_KEYWORDS = ("description", "title", "type")
_HANDLED_KEYWORDS = frozenset({"$ref", "$defs", "additionalProperties", "anyOf", "const", "enum", "items", "oneOf"}) | {
    *("properties", "required", "allOf", "default", "examples", "discriminator", *_COPIED_KEYWORDS)
}
_UNSUPPORTED_KEYWORDS = frozenset(
    {"patternProperties", "propertyNames", "prefixItems", "not", "if", "dependentSchemas"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


class _UnsupportedSchema(Exception):
    """Raised for a schema that the strict subset cannot express."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `schema` in the strict subset, None if it cannot be expressed (open objects, tuples, untyped values).

    >>> strict_schema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})["properties"]
    {'n': {'type': 'integer', 'description': '{"minimum":1}'}}
    """
    try:
        return _strict(schema)
    except _UnsupportedSchema:
        return None


def schema_fields(output: OutputSchema) -> dict[str, Any]:
    """Return the fields of a schema in OpenAI's format: strict if it can be expressed so, else as it is."""
    strict = strict_schema(output.schema)
    schema = dict(output.schema) if strict is None else strict
    return {"name": output.name, "schema": schema, "strict": strict is not None}


def _strict(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise _UnsupportedSchema
    schema = cast("dict[str, Any]", schema)
    if schema.keys() & _UNSUPPORTED_KEYWORDS:
        raise _UnsupportedSchema
    definitions = {"$defs": _strict_values(schema["$defs"])} if "$defs" in schema else {}
    if "$ref" in schema:  # no other keyword is allowed with it
        return {"$ref": schema["$ref"], **definitions}
    if "allOf" in schema:
        if len(schema["allOf"]) != 1:
            raise _UnsupportedSchema
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        return _strict({**schema["allOf"][0], **rest})
    options = schema.get("anyOf") or schema.get("oneOf")
    strict: dict[str, Any] = {
        name: schema[name] for name in _COPIED_KEYWORDS if name in schema and name != "description"
    }
    if options:
        strict["anyOf"] = [_strict(option) for option in options]
    elif not isinstance(schema.get("type"), str):
        raise _UnsupportedSchema
    strict |= _enumeration(schema) | _members(schema)
    if schema.get("format") in _FORMATS:
        strict["format"] = schema["format"]
    if description := _description(schema, strict):
        strict["description"] = description
    return strict | definitions


def _strict_values(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _strict(inner) for name, inner in schemas.items()}


def _enumeration(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return {"enum": values} if values else {}


def _members(schema: Mapping[str, Any]) -> dict[str, Any]:
    match schema.get("type"):
        case "object":
            if "properties" not in schema:
                raise _UnsupportedSchema
            properties = _strict_values(schema["properties"])
            return {"properties": properties, "required": list(properties), "additionalProperties": False}
        case "array":
            return {"items": _strict(schema.get("items"))}
        case _:
            return {}


def _description(schema: Mapping[str, Any], strict: Mapping[str, Any]) -> str:
    """Return the description, followed by the keywords that the strict schema cannot express."""
    unsupported = {
        name: value for name, value in schema.items() if name not in _HANDLED_KEYWORDS and name not in strict
    }
    return "\n\n".join(
        filter(None, [schema.get("description"), to_json(unsupported).decode() if unsupported else None])
    )
