"""The streams: one session's events, and those of all sessions on one connection."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from studio.openapi import Parameter
from studio.relay import asked_cursor
from studio.services import services

__all__ = ["QUERY", "of_all", "of_session"]

QUERY = (
    Parameter("cursor", "Go on behind the event with this `id`; one of no use here is answered by a `reset` frame."),
    Parameter("Last-Event-ID", "The same; wins over `cursor`.", place="header"),
    Parameter("lastEventId", "The same, from clients that cannot send that header; wins over `cursor`."),
)


async def of_session(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    await studio.store.get(session_id)
    return await studio.relay.respond(session_id, asked_cursor(request))


async def of_all(request: Request) -> Response:
    return await services(request).relay.respond(None, asked_cursor(request))
