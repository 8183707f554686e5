"""Checks of JSON values against an application's JSON Schema for the output of a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from agenticx.errors import InvalidArguments

__all__ = ["check_output_schema", "schema_check"]

_MAX_PROBLEMS = 10
_MAX_PROBLEM_CHARS = 300


def check_output_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless this is a JSON Schema (draft 2020-12) that refers to nothing outside of itself."""
    from jsonschema import Draft202012Validator  # on first use: a large import
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import NoSuchResource, Unresolvable
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        raise ValueError(f"the schema is not a valid JSON Schema: {_describe(exc)}") from exc
    resource = DRAFT202012.create_resource(schema)
    uri = resource.id() or ""
    resolver = EMPTY_REGISTRY.with_resource(uri, resource).resolver(uri)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except (NoSuchResource, Unresolvable) as exc:
            raise ValueError(
                f"the schema refers to {reference!r}, which is not in it; put it under '$defs', and refer to it as "
                "'#/$defs/NAME'"
            ) from exc


def schema_check(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function that raises `InvalidArguments` with the problems of a JSON value that does not fit the schema.

    Raises `ValueError` as `check_output_schema` does.
    """
    from jsonschema import Draft202012Validator
    from referencing.jsonschema import EMPTY_REGISTRY

    check_output_schema(schema)
    validator: Any = Draft202012Validator(schema, registry=EMPTY_REGISTRY)  # nothing is fetched

    def check(value: Any) -> None:
        if problems := [_describe(error) for error in islice(validator.iter_errors(value), _MAX_PROBLEMS)]:
            raise InvalidArguments("; ".join(problems))

    return check


def _describe(error: Any) -> str:
    where = ".".join(str(step) for step in error.absolute_path) or "it"
    return f"{where}: {error.message}"[:_MAX_PROBLEM_CHARS]


def _references(schema: Any) -> Iterator[str]:
    """Yield each `$ref` in a schema."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        if isinstance(reference := fields.get("$ref"), str):
            yield reference
        for value in fields.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in cast("list[Any]", schema):
            yield from _references(value)
