"""Ways in: tickets for the page, and whether anybody is home."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from studio.auth import TICKET_SECONDS
from studio.bodies import Body, read_body
from studio.problems import Problem
from studio.services import services

__all__ = ["FreshTicket", "Health", "NewTicket", "Ready", "ServerToken", "Ticket", "health", "issue", "ready", "redeem"]


class Ticket(Body):
    """What stands behind the # of the page's first address."""

    max_bytes = 1024  # anybody may send one

    ticket: str = Field(max_length=200)


class NewTicket(Body):
    """Nothing to say."""


class ServerToken(TypedDict):
    token: str


class FreshTicket(TypedDict):
    ticket: str
    expires_in_seconds: int


class Health(TypedDict):
    status: Literal["ok"]


class Ready(TypedDict):
    """`streams` is how many are open."""

    status: Literal["ready"]
    streams: int


async def redeem(request: Request) -> Response:
    studio, body = services(request), await read_body(request, Ticket)
    if not studio.tickets.redeem(body.ticket):
        raise Problem(401, "bad_ticket", "That ticket was used, has expired or never was; `agx open` gives a new one.")
    return JSONResponse(ServerToken(token=studio.token))


async def issue(request: Request) -> Response:
    await read_body(request, NewTicket)
    ticket = services(request).tickets.issue()
    return JSONResponse(FreshTicket(ticket=ticket, expires_in_seconds=int(TICKET_SECONDS)), 201)


async def health(_request: Request) -> Response:
    return JSONResponse(Health(status="ok"))


async def ready(request: Request) -> Response:
    await services(request).store.check()
    return JSONResponse(Ready(status="ready", streams=services(request).relay.readers))
