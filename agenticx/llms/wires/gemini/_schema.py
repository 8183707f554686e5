"""A tool's JSON Schema without the keywords that Gemini refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["accepted_schema"]

_COPIED_KEYWORDS = frozenset(
    {
        "type",
        "title",
        "description",
        "default",
        "required",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
    }
)
_SCHEMA_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
_SCHEMA_MAPS = {"properties": "properties", "$defs": "$defs", "definitions": "$defs"}
_FORMATS = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})


def accepted_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without the keywords that Gemini does not support, so it may allow more.

    Nothing is lost: the schema only guides the model, and its arguments are checked against the whole schema.
    """
    if isinstance(target := schema.get("$ref"), str):  # only other $-keywords are allowed with it
        return {"$ref": target.replace("#/definitions/", "#/$defs/"), **_schema_maps(schema, ("$defs", "definitions"))}
    accepted = {name: value for name, value in schema.items() if name in _COPIED_KEYWORDS}
    accepted |= _schema_maps(schema, _SCHEMA_MAPS)
    for name, accepted_name in _SCHEMA_LISTS.items():
        if isinstance(options := schema.get(name), list):
            accepted.setdefault(accepted_name, [_inner_schema(option) for option in cast("list[object]", options)])
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            accepted[name] = accepted_schema(cast("dict[str, Any]", inner))
        elif isinstance(inner, bool) and name == "additionalProperties":
            accepted[name] = inner
    if schema.get("format") in _FORMATS:
        accepted["format"] = schema["format"]
    if choices := _enumeration(schema):
        accepted["enum"] = choices
    return _merge_single_all_of(accepted, schema.get("allOf"))


def _schema_maps(schema: Mapping[str, Any], names: Mapping[str, str] | tuple[str, ...]) -> dict[str, Any]:
    """Return the keywords whose values are schemas by name."""
    return {
        _SCHEMA_MAPS[name]: {key: _inner_schema(value) for key, value in cast("dict[str, object]", table).items()}
        for name in names
        if isinstance(table := schema.get(name), dict)
    }


def _inner_schema(schema: object) -> dict[str, Any]:
    """Return a nested schema in accepted form; `true` becomes an empty one."""
    return accepted_schema(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else {}


def _enumeration(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of an enumeration if all are texts or numbers, else an empty list."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return []
    choices = cast("list[object]", values)
    all_scalars = all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in choices)
    return choices if all_scalars else []


def _merge_single_all_of(accepted: dict[str, Any], parts: object) -> dict[str, Any]:
    """Merge an `allOf` of one schema, as generators write around a reference; leave out an `allOf` of several."""
    if not isinstance(parts, list) or len(cast("list[object]", parts)) != 1:
        return accepted
    part = _inner_schema(cast("list[object]", parts)[0])
    return part if "$ref" in part else {**part, **accepted}
