"""What a session can be made of: models and tools."""

from __future__ import annotations

from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agenticx.llms.catalog import ModelInfo, list_models
from agenticx.llms.facts import Ability, ModelFacts
from studio.services import services

__all__ = ["models", "tools"]


async def models(request: Request) -> Response:
    studio = services(request)
    found = await list_models(studio.settings)
    return JSONResponse({"default": studio.models.default, "models": [_row(model) for model in found]})


def _row(model: ModelInfo) -> dict[str, Any]:
    """A model with what is known of it; a number that is not known is null."""
    facts = model.facts
    return {
        "id": model.spec,
        "provider": model.provider,
        "why": model.why,
        "context_window": facts.input_window,
        "max_output_tokens": facts.output,
        "abilities": {ability: facts.can(ability) for ability in get_args(Ability)},
        "price": None if facts.price is None else facts.price.model_dump(mode="json", exclude_none=True),
        "assumed": None if facts.is_known else ModelFacts.ASSUMPTION,
    }


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
