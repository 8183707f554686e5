"""Event streams over HTTP: one session's events, and those of all sessions."""

from __future__ import annotations

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from studio.http.openapi import HeaderParameter
from studio.http.queries import RequestQuery, read_query
from studio.services import services

__all__ = ["HEADERS", "EventsQuery", "of_all", "of_session"]

HEADERS = (HeaderParameter("Last-Event-ID", "The same as `cursor`, over which it takes precedence."),)


class EventsQuery(RequestQuery):
    """The query of an event stream."""

    cursor: str | None = Field(
        None, description="Resume after the event with this `id`; an invalid one is answered by a `reset` frame."
    )
    last_event_id: str | None = Field(
        None,
        alias="lastEventId",
        description="The same, for clients that cannot send the header `Last-Event-ID`; precedes `cursor`.",
    )


async def of_session(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    await studio.store.catalog.get(session_id)
    return await studio.relay.respond(session_id, _requested_cursor(request))


async def of_all(request: Request) -> Response:
    return await services(request).relay.respond(None, _requested_cursor(request))


def _requested_cursor(request: Request) -> str | None:
    """Return the cursor that the client resumes from, or None to start at the beginning."""
    query = read_query(request, EventsQuery)
    return request.headers.get("last-event-id") or query.last_event_id or query.cursor
