"""Access to the server over HTTP: tickets for the page, health and readiness."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx import __version__
from agenticx.cli.client.studio_file import API_VERSION
from agenticx.errors import StoreError
from studio.access import TICKET_SECONDS
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.services import services

__all__ = [
    "HealthResponse",
    "IssueTicketBody",
    "ReadyResponse",
    "RedeemTicketBody",
    "TicketResponse",
    "TokenResponse",
    "health",
    "issue",
    "ready",
    "redeem",
]


class RedeemTicketBody(RequestBody):
    """The ticket in the fragment of the page's URL."""

    max_bytes = 1024  # needs no token: any client may send one

    ticket: str = Field(max_length=200)


class IssueTicketBody(RequestBody):
    """An empty object."""


class TokenResponse(TypedDict):
    token: str


class TicketResponse(TypedDict):
    ticket: str
    expires_in_seconds: int


class HealthResponse(TypedDict):
    """The server accepts turns.

    `api` is the version of the HTTP API, `instance` identifies this run of the server, as in AGX_HOME/studio.json.
    """

    status: Literal["ok"]
    version: str
    api: int
    instance: str


class ReadyResponse(TypedDict):
    """The server can store turns; `streams` is the number of open event streams."""

    status: Literal["ready"]
    streams: int


async def redeem(request: Request) -> Response:
    """Exchange a ticket for the token; a ticket works once, within ten minutes."""
    studio, body = services(request), await read_body(request, RedeemTicketBody)
    try:
        is_valid = await studio.tickets.redeem(body.ticket)
    except StoreError as exc:  # whose message names the database, to anyone
        raise Problem("storage", "No ticket can be exchanged, as the database cannot be used; try again.") from exc
    if not is_valid:
        raise Problem("bad_ticket", "The ticket is unknown, expired or already used; `agx open` gives a new one.")
    return JSONResponse(TokenResponse(token=studio.access.token))


async def issue(request: Request) -> Response:
    await read_body(request, IssueTicketBody)
    ticket = await services(request).tickets.issue()
    return JSONResponse(TicketResponse(ticket=ticket, expires_in_seconds=int(TICKET_SECONDS)), 201)


async def health(request: Request) -> Response:
    """Return the versions and the instance; an old `studio.json` has another instance.

    503 while turns cannot be stored; the problem has the instance too.
    """
    studio = services(request)
    instance = studio.instance
    try:
        await studio.store.check()
    except StoreError as exc:  # whose message names the database, to anyone
        text = "Turns cannot be stored now; GET /api/ready says why."
        raise Problem("storage", text, server_instance=instance) from exc
    return JSONResponse(HealthResponse(status="ok", version=__version__, api=API_VERSION, instance=instance))


async def ready(request: Request) -> Response:
    """Return 200 if turns can be stored, 503 with the reason while they cannot."""
    await services(request).store.check()
    return JSONResponse(ReadyResponse(status="ready", streams=services(request).relay.readers))
