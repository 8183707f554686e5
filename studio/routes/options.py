"""The options of a session over HTTP: listed, picked and stopped."""

from __future__ import annotations

from typing import Literal, NotRequired

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

    number: int
    agent_id: str
    turn_id: str
    model: str
    state: Literal["running", "done", "failed", "stopped", "interrupted"]
    files: list[str]
    cost_usd: str | None
    reason: NotRequired[str]


class OptionListResponse(TypedDict):
    """The options of a session, whose numbers count through all of them."""

    options: list[OptionItem]


class OptionStoppedResponse(TypedDict):
    """The option that is being stopped, or had ended."""

    number: int


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
    """Go on with an option that is done; another pick changes it."""
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
