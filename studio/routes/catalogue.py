"""What a session can be made of: models and tools."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from studio.services import services

__all__ = ["models", "tools"]


async def models(request: Request) -> Response:
    known = services(request).models
    return JSONResponse({"default": known.default, "models": [{"id": "demo"}]})


async def tools(request: Request) -> Response:
    return JSONResponse(
        {
            "tools": [
                {
                    "name": tool.schema.name,
                    "description": tool.schema.description,
                    "parameters": dict(tool.schema.parameters),
                    "read_only": tool.read_only,
                }
                for tool in services(request).toolbox
            ]
        }
    )
