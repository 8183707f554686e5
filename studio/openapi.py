"""The OpenAPI document: written from the URL table, the body schemas and the schema of events."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agenticx.runtime.events import envelope_schema
from studio.bodies import Body

__all__ = ["Handler", "Row", "openapi_document"]

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the URL table: what answers, what it takes and how it answers when all is well."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[Body] | None = None
    status: int = 200
    streams: bool = False
    public: bool = False


@cache
def openapi_document(rows: Sequence[Row]) -> dict[str, Any]:
    """OpenAPI 3.1; the envelope of events stands in it as the schema `Event`."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM, "Event": _lifted(envelope_schema())}
    definitions: dict[str, Any] = schemas["Event"].pop("$defs", {})
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.body is not None:
            schema = row.body.model_json_schema(ref_template="#/components/schemas/{model}")
            definitions |= schema.pop("$defs", {})
            schemas[row.body.__name__] = schema
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


def _operation(row: Row) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    media = "text/event-stream" if row.streams else "application/json"
    operation: dict[str, Any] = {
        "operationId": f"{row.handler.__module__.rpartition('.')[2]}_{row.handler.__name__}",
        "summary": row.summary,
        "responses": {
            str(row.status): {"description": row.summary, "content": {media: {}}},
            "default": {"description": "What went wrong", "content": problem},
        },
    }
    names = re.findall(r"{(\w+)}", row.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if row.body is not None:
        reference = {"$ref": f"#/components/schemas/{row.body.__name__}"}
        content = {"application/json": {"schema": reference}}
        operation["requestBody"] = {"required": row.body.is_required(), "content": content}
    if row.public:
        operation["security"] = []
    return operation


def _lifted(schema: Any) -> Any:
    """`schema` with its references pointing into the document's components."""
    return json.loads(json.dumps(schema).replace('"#/$defs/', '"#/components/schemas/'))
