"""Access to the server over HTTP: tickets for the page, health and readiness."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx import __version__
from agenticx.cli.client.identity import identity_proof
from agenticx.cli.client.studio_file import API_VERSION
from agenticx.errors import StoreError
from studio.access import TICKET_SECONDS
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import ErrorCode, RequestQuery, read_query
from studio.services import services

__all__ = [
    "HealthResponse",
    "IdentityQuery",
    "IdentityResponse",
    "IssueTicketBody",
    "ReadyResponse",
    "RedeemTicketBody",
    "TicketResponse",
    "TokenResponse",
    "health",
    "identity",
    "issue",
    "ready",
    "redeem",
]


class RedeemTicketBody(RequestBody):
    """The ticket in the fragment of the page's URL."""

    max_bytes = 1024  # needs no token: any client may send one

    ticket: str = Field(max_length=200, description="The ticket, as `agx serve` or `POST /api/tickets` gave it.")


class IssueTicketBody(RequestBody):
    """An empty object."""


class TokenResponse(TypedDict):
    token: Annotated[str, Field(description="The token, for the header `Authorization: Bearer …`.")]


class TicketResponse(TypedDict):
    ticket: Annotated[str, Field(description="The ticket, for the fragment of the page's URL.")]
    expires_in_seconds: Annotated[int, Field(description="The seconds for which it can be redeemed.")]


class HealthResponse(TypedDict):
    """The server accepts turns.

    `api` is the version of the HTTP API, `instance` identifies this run of the server, as in AGX_HOME/studio.json.
    """

    status: Annotated[Literal["ok"], Field(description="Turns are accepted.")]
    version: Annotated[str, Field(description="The version of AgenticX.")]
    api: Annotated[int, Field(description="The version of this API.")]
    instance: Annotated[str, Field(description="An id of the process.")]


class IdentityQuery(RequestQuery):
    """The query of the proof that a server has the token."""

    challenge: Annotated[str, ErrorCode("bad_query")] = Field(
        pattern=r"^[0-9a-f]{32,128}$",
        description="A random number, 32 to 128 hexadecimal digits, new for each request.",
    )


class IdentityResponse(TypedDict):
    """The proof that this server has the token."""

    proof: Annotated[
        str,
        Field(
            description="HMAC-SHA256 with the token as the key, of `agenticx HOST CHALLENGE`, in hexadecimal digits."
        ),
    ]


class ReadyResponse(TypedDict):
    """The server can store turns; `streams` is the number of open event streams."""

    status: Annotated[Literal["ready"], Field(description="Turns are accepted and can be stored.")]
    streams: Annotated[int, Field(description="The number of open event streams.")]


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


async def identity(request: Request) -> Response:
    """Prove that this server has the token, to a client that is about to send it to whatever answers at its address.

    After the end of a studio, another program may listen on its port. `HOST` is the Host of the request, which is that
    of this server, so that the proof of a server at another address is of no use to such a program.
    """
    query = read_query(request, IdentityQuery)
    proof = identity_proof(services(request).access.token, request.headers["host"], query.challenge)
    return JSONResponse(IdentityResponse(proof=proof))


async def ready(request: Request) -> Response:
    """Return 200 if turns can be stored, 503 with the reason while they cannot."""
    await services(request).store.check()
    return JSONResponse(ReadyResponse(status="ready", streams=services(request).relay.readers))
