"""Event streams over HTTP, of one session and of all sessions, and pages of the events of a session."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from agenticx.runtime.events import EventType
from studio.http.openapi import HeaderParameter
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, parse_digits, read_query
from studio.relay import InvalidCursor
from studio.services import Services, services

__all__ = ["HEADERS", "EventsQuery", "SessionEventsQuery", "of_all", "of_session"]

_PAGE_EVENTS = 500

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


class SessionEventsQuery(EventsQuery):
    """The query of the events of a session."""

    from_: str | None = Field(
        None, alias="from", description="As JSON, without a stream: the events after the one with this cursor."
    )
    until: str | None = Field(
        None,
        description="As JSON: the events up to the one with this cursor; without `from` the last of them.",
    )
    limit: Annotated[int, Field(ge=1, le=_PAGE_EVENTS), BeforeValidator(parse_digits)] | None = Field(
        None,
        description="As JSON: the maximum number of events, by default 500. Alone it gives the last events.",
    )

    @property
    def is_page(self) -> bool:
        """True if the request is for a page of stored events."""
        return any(value is not None for value in (self.from_, self.until, self.limit))


async def of_session(request: Request) -> Response:
    """Stream a session from its first event on, to any number of readers; or return a page of its events as JSON.

    A client that was disconnected sends the last `id` that it received as `cursor` or `Last-Event-ID`, also after a
    restart of the server, and gets the events after it, each exactly once. If the cursor is not one of this log, the
    first frame is a `reset`: drop what you have, since the stream begins at the first event. Comments (one every
    10 seconds without events) and the field `retry` carry no data; skip them if a client library reports them as
    events. `server_closing` is the last frame before a shutdown.

    With `from`, `until` or `limit` the answer is a page of stored events: `limit=200` has the last 200, and with
    `until` the `before` of that page those before them. `types` leaves events out of a page, which `limit` counts.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    await studio.store.catalog.get(session_id)
    query = read_query(request, SessionEventsQuery)
    if query.is_page:
        return await _page(studio, session_id, query)
    return await studio.relay.respond(session_id, _requested_cursor(request), types=_requested_types(request))


async def _page(studio: Services, session_id: str, query: SessionEventsQuery) -> Response:
    try:
        page = await studio.relay.read_page(session_id, query.from_, query.until, query.limit or _PAGE_EVENTS)
    except InvalidCursor as exc:
        sentence = "'from' and 'until' must be cursors of this session, such as the `id` of a frame of its stream."
        raise Problem("bad_cursor", sentence) from exc
    types = None if query.types is None else query.types.split(",")
    events = b",".join([event.frame_json for event in page.events if types is None or event.type in types])
    rest = json.dumps({"before": page.before, "cursor": page.cursor, "has_more": page.has_more})
    return Response(b'{"events":[%b],%b' % (events, rest[1:].encode()), media_type="application/json")


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
