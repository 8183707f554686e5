"""What a session can be made of: models and tools."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agenticx.llms.catalog import list_models
from studio.services import services

__all__ = ["models", "tools"]


async def models(request: Request) -> Response:
    studio = services(request)
    found = await list_models(studio.settings)
    rows = [{"id": model.spec, "provider": model.provider, "why": model.why} for model in found]
    return JSONResponse({"default": studio.models.default, "models": rows})


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
