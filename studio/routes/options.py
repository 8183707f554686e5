"""The options of a session over HTTP: listed, picked and stopped."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.sessions.files.options import UnknownOption
from studio.http.bodies import RequestBody, read_body
from studio.routes.sessions import session_json, session_status
from studio.services import services

__all__ = ["OptionBody", "OptionListResponse", "OptionStoppedResponse", "index", "pick", "stop"]


class OptionBody(RequestBody):
    """An empty object."""


class OptionItem(TypedDict):
    """An answer to choose from; `files` are the paths of its files, `reason` says why it is not done."""

    number: Annotated[int, Field(description="The number of the option, unique in the session.")]
    agent_id: Annotated[str, Field(description="The agent whose events are those of the option.")]
    turn_id: Annotated[str, Field(description="The turn that makes it.")]
    model: Annotated[str, Field(description="The model that makes it.")]
    state: Annotated[
        Literal["running", "done", "failed", "stopped", "interrupted"], Field(description="How it stands.")
    ]
    files: Annotated[list[str], Field(description="The paths of its files.")]
    cost_usd: Annotated[str | None, Field(description="What its model calls cost in USD; null if that is not known.")]
    reason: NotRequired[Annotated[str, Field(description="Why it failed.")]]


class OptionListResponse(TypedDict):
    """The options of a session, whose numbers count through all of them."""

    options: Annotated[list[OptionItem], Field(description="The options, by their numbers.")]


class OptionStoppedResponse(TypedDict):
    """The option that is being stopped, or had ended."""

    number: Annotated[int, Field(description="The option that is being stopped.")]


async def index(request: Request) -> Response:
    items: list[OptionItem] = []
    for option, state in await services(request).hub.options(request.path_params["session_id"]):
        item = OptionItem(
            number=option.number,
            agent_id=option.agent_id,
            turn_id=option.turn_id,
            model=option.model,
            state=state.state,
            files=sorted(option.artifacts.current),
            cost_usd=None if state.cost_usd is None else str(state.cost_usd),
        )
        if state.reason:
            item["reason"] = state.reason
        items.append(item)
    return JSONResponse(OptionListResponse(options=items))


async def pick(request: Request) -> Response:
    """Go on with an option that is done; another pick changes it, and those that still run are stopped."""
    await read_body(request, OptionBody)
    studio = services(request)
    record = await studio.hub.pick(request.path_params["session_id"], _number(request))
    return JSONResponse(session_json(record, await session_status(studio, record)))


async def stop(request: Request) -> Response:
    """Stop an option; the others go on."""
    await read_body(request, OptionBody)
    number = _number(request)
    await services(request).hub.stop_option(request.path_params["session_id"], number)
    return JSONResponse(OptionStoppedResponse(number=number), 202)


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UnknownOption(f"{text[:20]!r} is not the number of an option")
    return int(text)
