"""What a session can be made of: models and tools."""

from __future__ import annotations

from typing import Any, NotRequired, cast, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.llms.catalog import ModelInfo, list_models
from agenticx.llms.facts import Capability, ModelFacts
from studio.services import services

__all__ = ["Models", "Tools", "models", "tools"]


class ModelRates(TypedDict):
    """US dollars per million tokens, as decimals in text."""

    input: str
    output: str
    cached: NotRequired[str]
    cache_write: NotRequired[str]


class LongModelRates(ModelRates):
    """The rates of a call whose input has more than `tokens`."""

    tokens: int


class ModelPrice(ModelRates):
    """A list price as it was `read`, until the day `until`."""

    read: str
    source: str
    until: NotRequired[str]
    over: NotRequired[LongModelRates]


class Model(TypedDict):
    """`why` says why it can be named, `assumed` what is assumed of one that is not known."""

    id: str
    provider: str
    why: str
    context_window: int | None
    max_output_tokens: int | None
    abilities: dict[Capability, bool]
    price: ModelPrice | None
    assumed: str | None


class Models(TypedDict):
    """`default` is the model of sessions that name none."""

    default: str
    models: list[Model]


class Tool(TypedDict):
    """`parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool


class Tools(TypedDict):
    tools: list[Tool]


async def models(request: Request) -> Response:
    studio = services(request)
    found = await list_models(studio.settings)
    return JSONResponse(Models(default=studio.models.default, models=[_row(model) for model in found]))


def _row(model: ModelInfo) -> Model:
    """A model with what is known of it; a number that is not known is null."""
    facts = model.facts
    price = None if facts.price is None else facts.price.model_dump(mode="json", exclude_none=True)
    return {
        "id": model.spec,
        "provider": model.provider,
        "why": model.source,
        "context_window": facts.input_window,
        "max_output_tokens": facts.output,
        "abilities": {ability: facts.supports(ability) for ability in get_args(Capability)},
        "price": cast("ModelPrice | None", price),
        "assumed": None if facts.is_known else ModelFacts.ASSUMPTION,
    }


async def tools(request: Request) -> Response:
    known: list[Tool] = [
        {
            "name": tool.schema.name,
            "description": tool.schema.description,
            "parameters": dict(tool.schema.parameters),
            "read_only": tool.read_only,
        }
        for tool in services(request).toolbox
    ]
    return JSONResponse(Tools(tools=known))
