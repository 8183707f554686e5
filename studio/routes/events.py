"""Event streams over HTTP: the events of one session, and of all sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from agenticx.runtime.events import EventType
from studio.http.openapi import HeaderParameter
from studio.http.queries import RequestQuery, read_query
from studio.services import services

__all__ = ["HEADERS", "EventsQuery", "of_all", "of_session"]

HEADERS = (HeaderParameter("Last-Event-ID", "The same as `cursor`, over which it takes precedence."),)


def _check_types(text: object) -> object:
    if isinstance(text, str) and set(text.split(",")) - set(EventType):
        raise ValueError("no list of types")
    return text


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

    types: Annotated[str | None, BeforeValidator(_check_types)] = Field(
        None,
        description="Only events of these types, separated by commas, such as `final,confirm_required`.",
        json_schema_extra={"format": "event-types"},
    )


async def of_session(request: Request) -> Response:
    """Stream a session from its first event on, to any number of readers.

    A client that was disconnected sends the last `id` that it received as `cursor` or `Last-Event-ID`, also after a
    restart of the server, and gets the events after it, each exactly once. If the cursor is not one of this log, the
    first frame is a `reset`: drop what you have, since the stream begins at the first event. Comments (one every
    10 seconds without events) and the field `retry` carry no data; skip them if a client library reports them as
    events. `server_closing` is the last frame before a shutdown.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    await studio.store.catalog.get(session_id)
    return await studio.relay.respond(session_id, _requested_cursor(request), types=_requested_types(request))


async def of_all(request: Request) -> Response:
    """Stream the events of all sessions that are stored from now on, or after `cursor`; else as for one session.

    Events that a fork has copied from another session are not streamed again. With `types`, a frame with an `id` and
    without data follows each heartbeat: resume after it.
    """
    types = _requested_types(request)
    return await services(request).relay.respond(None, _requested_cursor(request), types=types)


def _requested_types(request: Request) -> frozenset[str] | None:
    """Return the types of the events that the client asks for, None for all."""
    types = read_query(request, EventsQuery).types
    return None if types is None else frozenset(types.split(","))


def _requested_cursor(request: Request) -> str | None:
    """Return the cursor that the client resumes from, or None to start at the beginning."""
    query = read_query(request, EventsQuery)
    return request.headers.get("last-event-id") or query.last_event_id or query.cursor
