"""The OpenAPI document, made from the URL table, the table of problems, and the schemas of all bodies.

A route lists only its own problems; the problems of any request, of a body and of parameters follow from its row.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import is_typeddict

from agenticx import __version__
from agenticx.runtime.events import envelope_adapter
from studio.http.bodies import RequestBody
from studio.http.frames import EventPageResponse, ResetFrame, ServerClosingFrame
from studio.http.problems import PROBLEMS
from studio.http.queries import RequestQuery, find_problem_codes, parameter_schemas

__all__ = [
    "EVENT_STREAM",
    "Handler",
    "HeaderParameter",
    "ResponseSpec",
    "RouteSpec",
    "openapi_document",
    "possible_problems",
]

Handler = Callable[[Request], Awaitable[Response]]

EVENT_STREAM = "text/event-stream"
_JSON = "application/json"

_REQUEST_PROBLEMS = ("two_lengths", "bad_host", "wrong_host", "foreign_origin", "cross_site", "internal", "overloaded")
_BODY_PROBLEMS = ("encoded_body", "not_json", "too_slow", "too_large", "incomplete", "malformed_json", "invalid_body")
_PARAMETER_PROBLEMS = ("unknown_parameter", "repeated_parameter")

_DESCRIPTION = """\
The sessions of one AGX_HOME, their turns, and every event of them.

Every request needs `Authorization: Bearer TOKEN`, except those of operations whose `security` is empty. The token is in
the file `token` of AGX_HOME. A page gets it for a one-use ticket, which `POST /api/tickets` issues: the page at
`/#TICKET` posts it to `POST /api/ticket`. Pages of other origins may call the server if AGX_ALLOWED_ORIGINS names their
origin exactly as the browser sends it, which is `null` for some pages of desktop apps.

An error is a `Problem`, whose `code` is stable; each operation lists its codes by status. A query parameter that an
operation does not declare, or that is given twice, is a 422, unless it begins with an underscore.

A session runs one turn at a time. Its events are typed (`Event`), and each is stored before any client sees it. A turn
ends with exactly one terminal event. While it waits for a confirmation, `GET /api/confirms` lists it; an answer
repeats its `digest`, so that only what was shown is approved.
"""


@dataclass(frozen=True, slots=True, eq=False)
class HeaderParameter:
    """A request header that a route reads."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, eq=False)
class ResponseSpec:
    """A success response of a route: JSON of the type `schema`, text, or no body where `media_type` is None."""

    schema: Any = str
    status: int = 200
    media_type: str | None = _JSON


@dataclass(frozen=True, slots=True, eq=False)
class RouteSpec:
    """A row of the URL table: the handler of a method and path, its parameters, body, success responses and problems.

    `operation_id` is the name of a function in generated clients, so it stays when the handler is renamed. The
    docstring of the handler is the description of the operation. A query parameter that is not in `query` is refused,
    unless it begins with an underscore; with None any is accepted. `problems` are the route's own codes;
    `possible_problems` returns all. Only a `public` route is answered without a token.
    """

    method: str
    path: str
    operation_id: str
    handler: Handler
    summary: str
    responses: Sequence[ResponseSpec]
    body: type[RequestBody] | None = None
    query: type[RequestQuery] | None = RequestQuery
    headers: Sequence[HeaderParameter] = ()
    problems: Sequence[str] = ()
    public: bool = False


def possible_problems(route: RouteSpec) -> list[str]:
    """Return the codes of all problems that the route can answer, in the order of the table of problems."""
    codes = {*_REQUEST_PROBLEMS, *route.problems}
    if not route.public:
        codes.add("unauthorized")
    if "{" in route.path:
        codes.add("not_found")  # a parameter in another than its canonical form
    if route.query is not None:
        codes.update(_PARAMETER_PROBLEMS, find_problem_codes(route.query))
    if route.body is not None:
        codes.update(_BODY_PROBLEMS)
    return [code for code in PROBLEMS if code in codes]


@cache
def openapi_document(routes: Sequence[RouteSpec]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes; the envelope of events is its schema `Event`."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM, "Event": _schema(envelope_adapter())}
    definitions: dict[str, Any] = schemas["Event"].pop("$defs", {})
    for name, schema in _frame_schemas():
        definitions |= schema.pop("$defs", {})
        schemas[name] = schema
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for name, schema in _schemas(route):
            definitions |= schema.pop("$defs", {})
            schemas[name] = schema
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    if (page := schemas.get(EventPageResponse.__name__)) is not None:
        page["properties"]["events"]["items"] = {"$ref": "#/components/schemas/Event"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "AgenticX studio", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {**definitions, **schemas},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


_STREAM = (
    "Server-sent events. The `data` of a frame is a `StreamFrame`: an `Event`, whose cursor is the frame's `id`; or, "
    "without an `id`, a `ResetFrame` where the cursor of the request is not valid, or a `ServerClosingFrame`, the last "
    "frame before a shutdown. Comments are sent as a heartbeat."
)

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "description": "Always `about:blank`: the `code` names the problem."},
        "title": {"type": "string", "description": "The phrase of the status."},
        "status": {"type": "integer", "description": "The status of the response."},
        "code": {"type": "string", "description": "Stable; match on this."},
        "detail": {"type": "string", "description": "A sentence for the user that says what would be right."},
        "field": {"type": "string", "description": "The field or parameter that a 422 is about."},
        "hint": {"type": "string", "description": "The route that helps, for the developer of the application."},
        "server_instance": {"type": "string", "description": "The instance of a server that cannot store turns."},
    },
}


def _frame_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema of each frame of a stream, and their union."""
    for frame in (ResetFrame, ServerClosingFrame):
        yield frame.__name__, _schema(TypeAdapter(frame))
    names = ("Event", ResetFrame.__name__, ServerClosingFrame.__name__)
    yield "StreamFrame", {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


def _schemas(route: RouteSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the named schemas of a route's body and responses."""
    if route.body is not None:
        yield route.body.__name__, _schema(TypeAdapter(route.body))
    for response in route.responses:
        if is_typeddict(response.schema):
            yield response.schema.__name__, _schema(TypeAdapter(response.schema))


class _ClientSchema(GenerateJsonSchema):
    """A JSON Schema for generators of clients.

    1. It has no defaults: openapi-typescript makes a field with a default a required one, although it need not be sent,
       and most defaults are null. A description says what holds without the field.
    2. Fields have no titles, because a title would repeat the name.
    """

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the schema of a type; its references point into the components of the document."""
    return adapter.json_schema(ref_template="#/components/schemas/{model}", schema_generator=_ClientSchema)


def _operation(route: RouteSpec) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "responses": {**_responses(route), **_problem_responses(route)},
    }
    if description := inspect.getdoc(route.handler):
        operation["description"] = description
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        content = {_JSON: {"schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}}}
        operation["requestBody"] = {"required": route.body.is_required(), "content": content}
    if route.public:
        operation["security"] = []
    return operation


def _parameters(route: RouteSpec) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    in_query = [
        {
            "name": name,
            "in": "query",
            "description": schema["description"],
            "schema": {key: value for key, value in schema.items() if key != "description"},
        }
        for name, schema in parameter_schemas(route.query or RequestQuery).items()
    ]
    in_header = [
        {"name": header.name, "in": "header", "description": header.description, "schema": {"type": "string"}}
        for header in route.headers
    ]
    return in_path + in_query + in_header


def _responses(route: RouteSpec) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for spec in route.responses:
        response = responses.setdefault(str(spec.status), {"description": route.summary})
        if spec.media_type is not None:
            response.setdefault("content", {})[spec.media_type] = {"schema": _response_schema(spec)}
    return responses


def _problem_responses(route: RouteSpec) -> dict[str, Any]:
    """Return a response for each status of the route's problems, with its codes, and one for any other problem."""
    codes: dict[str, list[str]] = {}
    for code in possible_problems(route):
        codes.setdefault(str(PROBLEMS[code].status), []).append(code)
    problem = {"$ref": "#/components/schemas/Problem"}
    responses: dict[str, Any] = {}
    for status, of_status in codes.items():
        meanings = "\n".join(f"- `{code}`: {PROBLEMS[code].meaning}" for code in of_status)
        schema = {"allOf": [problem, {"properties": {"code": {"enum": of_status}}}]}
        responses[status] = _problem_response(meanings, schema)
    return {**responses, "default": _problem_response("Any other problem.", problem)}


def _problem_response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


def _response_schema(spec: ResponseSpec) -> dict[str, Any]:
    if spec.media_type == EVENT_STREAM:
        return {"type": "string", "description": _STREAM}
    if is_typeddict(spec.schema):
        return {"$ref": f"#/components/schemas/{spec.schema.__name__}"}
    return TypeAdapter(spec.schema).json_schema()
