"""The models and tools that a session can use, over HTTP."""

from __future__ import annotations

from typing import Any, NotRequired, cast, get_args

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.llms.catalog.resolve import ModelInfo
from agenticx.llms.model_catalog import Capability
from studio.http.queries import RequestQuery, read_query
from studio.routes.sessions import check_model
from studio.services import services

__all__ = ["ModelListQuery", "ModelListResponse", "ToolListResponse", "models", "tools"]


class ModelRates(TypedDict):
    """The rates of a model in US dollars per million tokens, as decimal strings."""

    input: str
    output: str
    cached: NotRequired[str]
    cache_write: NotRequired[str]


class LongModelRates(ModelRates):
    """The rates of a call whose input has more than `tokens`."""

    tokens: int


class ModelPrice(ModelRates):
    """A list price: the day it was `read`, its `source`, and the last day it is valid, if known."""

    read: str
    source: str
    until: NotRequired[str]
    over: NotRequired[LongModelRates]


class ModelListQuery(RequestQuery):
    """The query of the list of models."""

    available: bool = Field(False, description="true: only the models that can be used now.")
    name: str | None = Field(None, description="Only this model, also one that no list has; empty: the default.")


class ModelItem(TypedDict):
    """A model; `available` if it can be used now, `why` gives the reason or says what is missing.

    `assumed` states the assumptions about a model without known facts.
    """

    id: str
    provider: str
    available: bool
    why: str
    context_window: int | None
    max_output_tokens: int | None
    abilities: dict[Capability, bool]
    price: ModelPrice | None
    assumed: str | None


class ModelListResponse(TypedDict):
    """The known models; `default` is the model of sessions created without one."""

    default: str
    models: list[ModelItem]


class ToolItem(TypedDict):
    """A tool; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool


class ToolListResponse(TypedDict):
    tools: list[ToolItem]


async def models(request: Request) -> Response:
    """List the models; with a `name` that one alone: a problem says why it cannot be used."""
    studio, query = services(request), read_query(request, ModelListQuery)
    await studio.models.refresh()
    if query.name is not None:
        name = query.name or studio.models.default
        await check_model(studio, name, field="name")
        named = [_model_item(studio.models.info(name))]
        return JSONResponse(ModelListResponse(default=studio.models.default, models=named))
    known = await studio.models.list_all(studio.settings, available_only=query.available)
    return JSONResponse(
        ModelListResponse(default=studio.models.default, models=[_model_item(model) for model in known])
    )


def _model_item(model: ModelInfo) -> ModelItem:
    """Return a model with its facts; an unknown number is null."""
    facts = model.facts
    price = None if facts.price is None else facts.price.model_dump(mode="json", exclude_none=True)
    return {
        "id": model.spec,
        "provider": model.provider,
        "available": model.available,
        "why": model.source,
        "context_window": facts.input_window,
        "max_output_tokens": facts.output,
        "abilities": {capability: facts.supports(capability) for capability in get_args(Capability)},
        "price": cast("ModelPrice | None", price),
        "assumed": None if facts.is_known else facts.assumption,
    }


async def tools(request: Request) -> Response:
    studio = services(request)
    items: list[ToolItem] = [
        {
            "name": tool.schema.name,
            "description": tool.schema.description,
            "parameters": dict(tool.schema.parameters),
            "read_only": tool.read_only,
        }
        for tool in studio.notes.with_tools(studio.toolbox)
    ]
    return JSONResponse(ToolListResponse(tools=items))
