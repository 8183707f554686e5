"""The models and tools that a session can use, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, cast, get_args

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.llms.model_catalog import Capability
from agenticx.llms.providers.resolve import ModelInfo
from agenticx.tools.base import Risk
from studio.http.queries import RequestQuery, read_query
from studio.routes.sessions import check_model
from studio.services import services

__all__ = ["ModelListQuery", "ModelListResponse", "ToolListResponse", "models", "tools"]


class ModelRates(TypedDict):
    """The rates of a model in US dollars per million tokens, as decimal strings."""

    input: Annotated[str, Field(description="The price of a million tokens of the request, in USD.")]
    output: Annotated[str, Field(description="The price of a million tokens of the reply, in USD.")]
    cached: NotRequired[
        Annotated[str, Field(description="The price of a million tokens that the provider has in its cache, in USD.")]
    ]
    cache_write: NotRequired[
        Annotated[
            str, Field(description="The price of a million tokens that the provider stores in its cache, in USD.")
        ]
    ]


class LongModelRates(ModelRates):
    """The rates of a call whose input has more than `tokens`."""

    tokens: Annotated[int, Field(description="The tokens of a request above which these prices hold.")]


class ModelPrice(ModelRates):
    """A list price: the day it was `read`, its `source`, and the last day it is valid, if known."""

    read: Annotated[str, Field(description="The day on which the prices were read.")]
    source: Annotated[str, Field(description="The page with the prices.")]
    until: NotRequired[Annotated[str, Field(description="The last day of these prices.")]]
    over: NotRequired[Annotated[LongModelRates, Field(description="The prices of long requests.")]]


class ModelListQuery(RequestQuery):
    """The query of the list of models."""

    available: bool = Field(False, description="true: only the models that can be used now.")
    name: str | None = Field(None, description="Only this model, also one that no list has; empty: the default.")


class ModelItem(TypedDict):
    """A model; `available` if it can be used now, `why` gives the reason or says what is missing.

    `assumed` states the assumptions about a model without known facts.
    """

    id: Annotated[str, Field(description="The name of the model, with its provider.")]
    provider: Annotated[str, Field(description="The name of the provider.")]
    available: Annotated[bool, Field(description="true: the model can be used now.")]
    why: Annotated[str, Field(description="Why it can be used, or not.")]
    context_window: Annotated[int | None, Field(description="Its context window in tokens; null if it is not known.")]
    max_output_tokens: Annotated[int | None, Field(description="The longest reply in tokens; null if it is not known.")]
    abilities: Annotated[
        dict[Capability, bool], Field(description="What the model can do, by the name of the ability.")
    ]
    price: Annotated[ModelPrice | None, Field(description="Its prices; null if they are not known.")]
    assumed: Annotated[
        str | None, Field(description="The model whose entry in the catalogue is used for this one; null: its own.")
    ]


class ModelListResponse(TypedDict):
    """The known models; `default` is the model of sessions created without one."""

    default: Annotated[str, Field(description="The model of sessions that name none.")]
    models: Annotated[list[ModelItem], Field(description="The models, those of one provider together.")]


class ToolItem(TypedDict):
    """A tool; `parameters` is the JSON Schema of its arguments."""

    name: Annotated[str, Field(description="The name of the tool.")]
    title: Annotated[str, Field(description="The name in words, for the user.")]
    description: Annotated[str, Field(description="What the model reads about the tool.")]
    parameters: Annotated[dict[str, Any], Field(description="The JSON Schema of its arguments.")]
    read_only: Annotated[bool, Field(description="true: the tool changes nothing.")]
    risk: Annotated[Risk, Field(description="What its calls can do at most, as the tool declares it.")]


class ToolListResponse(TypedDict):
    tools: Annotated[list[ToolItem], Field(description="The tools, in the order in which the model gets them.")]


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
            "title": tool.schema.name.replace("__", ": ").replace("_", " ").capitalize(),
            "description": tool.schema.description,
            "parameters": dict(tool.schema.parameters),
            "read_only": tool.read_only,
            "risk": getattr(tool, "risk", "read" if tool.read_only else "execute"),
        }
        for tool in studio.notes.with_tools(studio.toolbox)
    ]
    return JSONResponse(ToolListResponse(tools=items))
