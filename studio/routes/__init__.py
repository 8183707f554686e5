"""The URL table."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from studio.openapi import EVENT_STREAM, Answer, Row, openapi_document
from studio.problems import Problem
from studio.routes import catalogue, confirms, conversations, doors, events, page, sessions, turns, usage

__all__ = ["TABLE", "routes"]

_SHOWN = 80  # characters of a name that a client made up


async def openapi(_request: Request) -> Response:
    return JSONResponse(openapi_document(TABLE))


def _json(schema: Any, status: int = 200) -> tuple[Answer, ...]:
    return (Answer(schema, status),)


_NOTHING = (Answer(status=204, media=None),)
_EVENTS = (Answer(media=EVENT_STREAM),)
_PAGE = (Answer(media="text/html"),)
_FILE = (Answer(media="application/jsonl"), Answer(media="text/markdown"))
_TURN = (*_json(turns.Accepted, 202), *_EVENTS)  # the latter to whoever accepts it
_DOCUMENT = _json(dict[str, Any])

TABLE: tuple[Row, ...] = (
    Row(
        "POST",
        "/api/sessions",
        sessions.create,
        "Create a session",
        _json(sessions.Session, 201),
        body=sessions.NewSession,
    ),
    Row(
        "GET",
        "/api/sessions",
        sessions.index,
        "Sessions, newest first",
        _json(sessions.Sessions),
        query=sessions.QUERY,
    ),
    Row("GET", "/api/sessions/{session_id}", sessions.show, "One session", _json(sessions.Session)),
    Row(
        "PATCH",
        "/api/sessions/{session_id}",
        sessions.change,
        "Change a session",
        _json(sessions.Session),
        body=sessions.SessionChanges,
    ),
    Row("DELETE", "/api/sessions/{session_id}", sessions.delete, "Stop and forget a session", _NOTHING),
    Row(
        "GET",
        "/api/sessions/{session_id}/messages",
        conversations.messages,
        "What was said",
        _json(conversations.Messages),
    ),
    Row(
        "GET",
        "/api/sessions/{session_id}/export",
        conversations.export,
        "A session as a file",
        _FILE,
        query=conversations.QUERY,
    ),
    Row(
        "POST",
        "/api/sessions/{session_id}/fork",
        conversations.fork,
        "Fork",
        _json(sessions.Session, 201),
        body=conversations.Fork,
    ),
    Row(
        "POST",
        "/api/sessions/{session_id}/rewind",
        conversations.rewind,
        "Take back",
        _json(conversations.Rewound),
        body=conversations.Rewind,
    ),
    Row(
        "POST",
        "/api/sessions/{session_id}/turns",
        turns.start,
        "Begin a turn; with `Accept: text/event-stream` answered by its events",
        _TURN,
        body=turns.NewTurn,
    ),
    Row(
        "POST",
        "/api/sessions/{session_id}/stop",
        turns.stop,
        "End the running turn",
        _json(turns.Stopped, 202),
        body=turns.Stop,
    ),
    Row(
        "GET",
        "/api/sessions/{session_id}/events",
        events.of_session,
        "A session's events",
        _EVENTS,
        query=events.QUERY,
    ),
    Row("GET", "/api/events", events.of_all, "Events of all sessions", _EVENTS, query=events.QUERY),
    Row(
        "GET",
        "/api/confirms",
        confirms.index,
        "Questions that wait",
        _json(confirms.Questions),
        query=confirms.QUERY,
    ),
    Row(
        "POST",
        "/api/confirms/{request_id}",
        confirms.answer,
        "Answer a question",
        _json(confirms.Decision),
        body=confirms.Answer,
    ),
    Row("GET", "/api/models", catalogue.models, "Models that can be named", _json(catalogue.Models)),
    Row("GET", "/api/usage", usage.index, "What was used", _json(usage.UsageReport), query=usage.QUERY),
    Row("GET", "/api/tools", catalogue.tools, "Tools that sessions can have", _json(catalogue.Tools)),
    Row(
        "POST",
        "/api/ticket",
        doors.redeem,
        "Trade a one-use ticket for the token",
        _json(doors.ServerToken),
        body=doors.Ticket,
        public=True,
    ),
    Row(
        "POST",
        "/api/tickets",
        doors.issue,
        "A fresh one-use ticket",
        _json(doors.FreshTicket, 201),
        body=doors.NewTicket,
    ),
    Row("GET", "/api/health", doors.health, "Turns are accepted", _json(doors.Health), public=True),
    Row(
        "GET",
        "/api/ready",
        doors.ready,
        "The same, and what is said is kept: 503 where the disk takes nothing",
        _json(doors.Ready),
    ),
    Row("GET", "/openapi.json", openapi, "This table, for machines", _DOCUMENT),
    Row("GET", "/", page.index, "The page", _PAGE, query=None, public=True),
)


def routes() -> list[BaseRoute]:
    """The table as Starlette's routes, one per path, and the page's assets."""
    paths = groupby(sorted(TABLE, key=lambda row: row.path), key=lambda row: row.path)
    assets = Route("/assets/{name}", page.asset, methods=["GET"])
    return [*(_route(path, {row.method: row for row in rows}) for path, rows in paths), assets]


def _route(path: str, rows: dict[str, Row]) -> Route:
    async def endpoint(request: Request) -> Response:
        row = rows["GET" if request.method == "HEAD" else request.method]
        _check_query(request, row)
        return await row.handler(request)

    return Route(path, endpoint, methods=list(rows))


def _check_query(request: Request, row: Row) -> None:
    """Raises `Problem` for a parameter that the route does not know: a misspelt one would do nothing, in silence."""
    if row.query is None:
        return
    known = [parameter.name for parameter in row.query if parameter.place == "query"]
    for name in request.query_params:
        if name not in known:
            told = ", ".join(known) or "no parameters at all"
            sentence = f"{name[:_SHOWN]!r} is no parameter of {row.method} {row.path}; known are: {told}."
            raise Problem(422, "unknown_parameter", sentence, field=name[:_SHOWN])
