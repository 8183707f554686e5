"""JSON Schema as both OpenAI's and Anthropic's strict mode accept it, apart from the code."""

from __future__ import annotations

from typing import Any

__all__ = ["schema_violations"]

_KEYWORDS = {
    *("type", "title", "description", "enum", "properties", "required", "additionalProperties", "items"),
    *("anyOf", "format", "$ref", "$defs"),
}
_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}


def schema_violations(schema: dict[str, Any], *, recursive: bool = True) -> list[str]:
    """Return the violations of an output schema; empty if it is accepted."""
    found = [] if schema.get("type") == "object" else ["the output is no object"]
    definitions = schema.get("$defs", {})
    found += _inside(schema, definitions)
    if not recursive:
        found += [f"{name} contains itself" for name in definitions if name in _reached(name, definitions)]
    return found


def _inside(schema: Any, definitions: dict[str, Any]) -> list[str]:
    if not isinstance(schema, dict):
        return [f"{schema!r} is no schema"]
    found = [f"unknown keyword {name}" for name in schema.keys() - _KEYWORDS]
    inner = [*schema.get("anyOf", []), *schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    if "$ref" in schema:
        found += [] if schema.keys() <= {"$ref", "$defs"} else ["keywords beside $ref"]
        found += [] if schema["$ref"].removeprefix("#/$defs/") in definitions else [f"{schema['$ref']} is not there"]
    elif "anyOf" not in schema and schema.get("type") not in _TYPES:
        found.append(f"type {schema.get('type')!r}")
    if schema.get("type") == "object":
        found += [] if schema.get("additionalProperties") is False else ["an open object"]
        found += [] if schema.get("required") == list(schema["properties"]) else ["a property that is not required"]
    if schema.get("type") == "array":
        inner.append(schema.get("items"))
    return [*found, *(fault for part in inner for fault in _inside(part, definitions))]


def _reached(name: str, definitions: dict[str, Any]) -> set[str]:
    reached: set[str] = set()
    waiting = [definitions[name]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            target = part.get("$ref")
            if isinstance(target, str) and (further := target.removeprefix("#/$defs/")) not in reached:
                reached.add(further)
                waiting.append(definitions[further])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return reached
