"""Turns over HTTP: begin one, end the one that runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agenticx.sessions.hub import TurnRequest
from studio.bodies import Body, read_body
from studio.problems import Problem
from studio.routes.sessions import check_model
from studio.services import services

__all__ = ["NewTurn", "Stop", "start", "stop"]


class NewTurn(Body):
    """One message of the person. `client_turn_id` makes sending it again harmless."""

    input: str = Field(min_length=1)
    client_turn_id: str | None = Field(None, min_length=1, max_length=200)
    model: str | None = Field(None, max_length=200)
    when_busy: Literal["reject", "queue", "steer", "interrupt"] = "reject"


class Stop(Body):
    """Nothing to say."""


async def start(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, NewTurn)
    if body.when_busy != "reject":
        sentence = f"when_busy {body.when_busy!r} is not available yet; 'reject' is."
        raise Problem(422, "when_busy_unavailable", sentence, field="when_busy")
    check_model(studio, body.model)
    turn = await studio.hub.start(
        session_id, TurnRequest(input=body.input, client_turn_id=body.client_turn_id, model=body.model)
    )
    cursor = studio.relay.cursor(session_id, turn.after_seq or 0)
    if _wants_events(request):
        return studio.relay.respond(session_id, cursor, until_turn=turn.id)
    return JSONResponse({"turn_id": turn.id, "cursor": cursor}, 202)


async def stop(request: Request) -> Response:
    await read_body(request, Stop)
    turn = await services(request).hub.stop(request.path_params["session_id"])
    return JSONResponse({"turn_id": None if turn is None else turn.id}, 202)


def _wants_events(request: Request) -> bool:
    media_types = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(media_type.partition(";")[0].strip() == "text/event-stream" for media_type in media_types)
