"""Event streams over HTTP: one session's events, and those of all sessions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from studio.http.openapi import Parameter
from studio.relay import requested_cursor
from studio.services import services

__all__ = ["QUERY", "of_all", "of_session"]

QUERY = (
    Parameter("cursor", "Resume after the event with this `id`; an invalid one is answered by a `reset` frame."),
    Parameter("Last-Event-ID", "The same; takes precedence over `cursor`.", location="header"),
    Parameter("lastEventId", "The same, for clients that cannot send that header; takes precedence over `cursor`."),
)


async def of_session(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    await studio.store.catalog.get(session_id)
    return await studio.relay.respond(session_id, requested_cursor(request))


async def of_all(request: Request) -> Response:
    return await services(request).relay.respond(None, requested_cursor(request))
