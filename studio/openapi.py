"""The OpenAPI document: written from the URL table, the schemas of bodies and answers, and that of events."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import is_typeddict

from agenticx.runtime.events import envelope_schema
from studio.bodies import Body

__all__ = ["EVENT_STREAM", "Answer", "Handler", "Parameter", "Row", "openapi_document"]

Handler = Callable[[Request], Awaitable[Response]]

EVENT_STREAM = "text/event-stream"
_JSON = "application/json"
_REFERENCES = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """What a client may add to a route's path, or say in a header."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """How a route answers when all is well: in JSON, of the type `schema`; as text; or, without media, not at all."""

    schema: Any = str
    status: int = 200
    media: str | None = _JSON


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One line of the URL table: what answers, what it takes and how it answers when all is well.

    A parameter that is not in `query` is refused; None takes any.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Sequence[Answer]
    body: type[Body] | None = None
    query: Sequence[Parameter] | None = ()
    public: bool = False


@cache
def openapi_document(rows: Sequence[Row]) -> dict[str, Any]:
    """OpenAPI 3.1; the envelope of events stands in it as the schema `Event`."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM, "Event": _lifted(envelope_schema())}
    definitions: dict[str, Any] = schemas["Event"].pop("$defs", {})
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        for name, schema in _schemas(row):
            definitions |= schema.pop("$defs", {})
            schemas[name] = schema
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "AgenticX studio", "version": version("agenticx")},
        "paths": paths,
        "components": {
            "schemas": {**definitions, **schemas},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable; match on this."},
        "detail": {"type": "string", "description": "A sentence that says what would be right."},
        "field": {"type": "string", "description": "What a 422 is about."},
    },
}


def _schemas(row: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas by which a row's body and answers are known, each with those that it refers to."""
    if row.body is not None:
        yield row.body.__name__, row.body.model_json_schema(ref_template=_REFERENCES)
    for answer in row.answers:
        if is_typeddict(answer.schema):
            schema = TypeAdapter(answer.schema).json_schema(ref_template=_REFERENCES, mode="serialization")
            yield answer.schema.__name__, schema


def _operation(row: Row) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation: dict[str, Any] = {
        "operationId": f"{row.handler.__module__.rpartition('.')[2]}_{row.handler.__name__}",
        "summary": row.summary,
        "responses": {**_responses(row), "default": {"description": "What went wrong", "content": problem}},
    }
    if parameters := _parameters(row):
        operation["parameters"] = parameters
    if row.body is not None:
        content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{row.body.__name__}"}}}
        operation["requestBody"] = {"required": row.body.is_required(), "content": content}
    if row.public:
        operation["security"] = []
    return operation


def _parameters(row: Row) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", row.path)
    ]
    asked = [
        {"name": one.name, "in": one.place, "description": one.description, "schema": dict(one.schema)}
        for one in row.query or ()
    ]
    return in_path + asked


def _responses(row: Row) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in row.answers:
        response = responses.setdefault(str(answer.status), {"description": row.summary})
        if answer.media is not None:
            response.setdefault("content", {})[answer.media] = {"schema": _answer_schema(answer)}
    return responses


def _answer_schema(answer: Answer) -> dict[str, Any]:
    if answer.media == EVENT_STREAM:
        return {"type": "string", "description": "Frames whose `data` is an `Event`, and whose `id` is a cursor."}
    if is_typeddict(answer.schema):
        return {"$ref": f"#/components/schemas/{answer.schema.__name__}"}
    return TypeAdapter(answer.schema).json_schema()


def _lifted(schema: Any) -> Any:
    """`schema` with its references pointing into the document's components."""
    return json.loads(json.dumps(schema).replace('"#/$defs/', '"#/components/schemas/'))
