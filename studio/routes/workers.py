"""The workers of the store over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from studio.services import services

__all__ = ["index"]


async def index(request: Request) -> Response:
    """Return the workers with what they own, the queue of sessions without an owner, and the state of the database."""
    return JSONResponse(await services(request).store.workers())
