"""Query parameters, validated by a schema; problems and the OpenAPI document are derived from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.requests import Request

from studio.http.problems import Problem

__all__ = [
    "ErrorCode",
    "RequestQuery",
    "WholeNumber",
    "find_problem_codes",
    "newest_page",
    "parameter_schemas",
    "parse_digits",
    "read_query",
]

_ANY_OTHER_VALUE = "be another value"
_MAX_DIGITS = 15  # what a double has exactly, and any database


class RequestQuery(BaseModel):
    """The query parameters of a route; each has a default, and may be given once."""

    model_config = ConfigDict(frozen=True)


Q = TypeVar("Q", bound=RequestQuery)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """An annotation of a parameter: the code of the problem for an invalid value, instead of `bad_` and the name."""

    code: str


def parse_digits(text: object) -> int:
    """Return the number that the digits of a parameter mean; raise `ValueError` for anything else."""
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    raise ValueError(f"no number of at most {_MAX_DIGITS} digits")


WholeNumber = Annotated[int, BeforeValidator(parse_digits)]
"""A number in digits. In a union pydantic makes a schema of limits only if they stand before the validator:
`Annotated[int, Field(ge=1), BeforeValidator(parse_digits)] | None`."""


@cache
def parameter_schemas(query: type[RequestQuery]) -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON schema of each parameter by its name, with its description."""
    properties = query.model_json_schema().get("properties", {})
    return {name: _without_null(schema) for name, schema in properties.items()}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that is sent: None only stands for a parameter that is not."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "anyOf")}
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            kept |= choice
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def find_problem_codes(query: type[RequestQuery]) -> list[str]:
    """Return the codes of the problems for invalid values; a parameter that takes any text has none."""
    schemas = parameter_schemas(query)
    return [_problem_code(query, name) for name, schema in schemas.items() if _requirement(schema) != _ANY_OTHER_VALUE]


def read_query(request: Request, schema: type[Q]) -> Q:
    """Return the request's query parameters; raise `Problem` 422 for the first invalid one."""
    try:
        return schema.model_validate(dict(request.query_params))
    except ValidationError as exc:
        name = str(exc.errors(include_url=False, include_input=False, include_context=False)[0]["loc"][0])
    sentence = f"{name!r} must {_requirement(parameter_schemas(schema)[name])}."
    raise Problem(_problem_code(schema, name), sentence, field=name)


def newest_page(
    items: Sequence[T], *, before: str | None, limit: int, id_of: Callable[[T], str], listed_as: str
) -> tuple[Sequence[T], bool]:
    """Return the last `limit` items before the one with the id `before`, and True if there are more before.

    Without `before` the page ends at the last item. Raise `Problem` for an unknown id; its message names `listed_as`.
    """
    end: int | None = None
    if before is not None:
        end = next((index for index, item in enumerate(items) if id_of(item) == before), None)
        if end is None:
            raise Problem("bad_before", f"'before' must be the id of {listed_as}.", field="before")
    earlier = items[:end]
    page = earlier[-limit:]
    return page, len(page) < len(earlier)


def _problem_code(query: type[RequestQuery], name: str) -> str:
    field = next(field for key, field in query.model_fields.items() if name in (key, field.alias))
    return next((note.code for note in field.metadata if isinstance(note, ErrorCode)), f"bad_{name}")


def _requirement(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": [*most, last]}:
            return f"be {', '.join(map(repr, most))} or {last!r}"
        case {"type": "integer", "minimum": minimum, "maximum": maximum}:
            return f"be a whole number from {minimum} to {maximum}"
        case {"type": "integer", "minimum": minimum}:
            return f"be a whole number of at least {minimum}"
        case {"type": "boolean"}:
            return "be 'true' or 'false'"
        case {"format": "date"}:
            return "be a date such as '2026-11-21'"
        case {"format": "event-types"}:
            return "be types of events, separated by commas, such as 'final,confirm_required'"
        case {"maxLength": most}:
            return f"have at most {most} characters"
        case _:
            return _ANY_OTHER_VALUE
