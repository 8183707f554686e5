"""The URL table."""

from __future__ import annotations

from itertools import groupby

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from studio.openapi import Handler, Row, openapi_document
from studio.routes import catalogue, confirms, conversations, doors, events, page, sessions, turns, usage

__all__ = ["TABLE", "routes"]


async def openapi(_request: Request) -> Response:
    return JSONResponse(openapi_document(TABLE))


TABLE: tuple[Row, ...] = (
    Row("POST", "/api/sessions", sessions.create, "Create a session", body=sessions.NewSession, status=201),
    Row("GET", "/api/sessions", sessions.index, "Sessions, newest first: ?q=, ?limit=, ?before=, ?archived="),
    Row("GET", "/api/sessions/{session_id}", sessions.show, "One session"),
    Row("PATCH", "/api/sessions/{session_id}", sessions.change, "Change a session", body=sessions.SessionChanges),
    Row("DELETE", "/api/sessions/{session_id}", sessions.delete, "Stop and forget a session", status=204),
    Row("GET", "/api/sessions/{session_id}/messages", conversations.messages, "What was said"),
    Row("GET", "/api/sessions/{session_id}/export", conversations.export, "As a file: ?format=jsonl or markdown"),
    Row("POST", "/api/sessions/{session_id}/fork", conversations.fork, "Fork", body=conversations.Fork, status=201),
    Row("POST", "/api/sessions/{session_id}/rewind", conversations.rewind, "Take back", body=conversations.Rewind),
    Row("POST", "/api/sessions/{session_id}/turns", turns.start, "Begin a turn", body=turns.NewTurn, status=202),
    Row("POST", "/api/sessions/{session_id}/stop", turns.stop, "End the running turn", body=turns.Stop, status=202),
    Row("GET", "/api/sessions/{session_id}/events", events.of_session, "A session's events", streams=True),
    Row("GET", "/api/events", events.of_all, "Events of all sessions", streams=True),
    Row("GET", "/api/confirms", confirms.index, "Questions that wait: ?session_id="),
    Row("POST", "/api/confirms/{request_id}", confirms.answer, "Answer a question", body=confirms.Answer),
    Row("GET", "/api/models", catalogue.models, "Models that can be named"),
    Row("GET", "/api/usage", usage.index, "What was used: ?session_id=, ?since=, ?until="),
    Row("GET", "/api/tools", catalogue.tools, "Tools that sessions can have"),
    Row("POST", "/api/ticket", doors.redeem, "Trade a one-use ticket for the token", body=doors.Ticket, public=True),
    Row("POST", "/api/tickets", doors.issue, "A fresh one-use ticket", body=doors.NewTicket, status=201),
    Row("GET", "/api/health", doors.health, "Turns are accepted", public=True),
    Row("GET", "/api/ready", doors.ready, "The same, and what is said is kept: 503 where the disk takes nothing"),
    Row("GET", "/openapi.json", openapi, "This table, for machines"),
    Row("GET", "/", page.index, "The page", public=True),
)


def routes() -> list[BaseRoute]:
    """The table as Starlette's routes, one per path, and the page's assets."""
    paths = groupby(sorted(TABLE, key=lambda row: row.path), key=lambda row: row.path)
    assets = Mount("/assets", page.assets())
    return [*(_route(path, {row.method: row.handler for row in rows}) for path, rows in paths), assets]


def _route(path: str, handlers: dict[str, Handler]) -> Route:
    async def endpoint(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(handlers))
