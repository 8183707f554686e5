"""The user's memory over HTTP: listed, and entries removed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.threads import run_in_thread
from studio.services import services

__all__ = ["MemoryEntryItem", "MemoryResponse", "delete", "index"]


class MemoryEntryItem(TypedDict):
    """A text that the user agreed to keep; the session `session_id` saved it."""

    id: Annotated[str, Field(description="The id of the entry.")]
    text: Annotated[str, Field(description="What is remembered.")]
    saved_at: Annotated[str, Field(description="The time at which it was saved, in RFC 3339, UTC.")]
    session_id: Annotated[str, Field(description="The session in which it was saved.")]


class MemoryResponse(TypedDict):
    """The entries, oldest first."""

    entries: Annotated[list[MemoryEntryItem], Field(description="The entries, oldest first.")]


async def index(request: Request) -> Response:
    found = await run_in_thread(services(request).notes.memory.list, name="agx memory")
    items = [
        MemoryEntryItem(id=entry.id, text=entry.text, saved_at=entry.saved_at, session_id=entry.session_id)
        for entry in found
    ]
    return JSONResponse(MemoryResponse(entries=items))


async def delete(request: Request) -> Response:
    """Remove an entry; no later turn is given it."""
    remove = partial(services(request).notes.memory.remove, request.path_params["entry_id"])
    await run_in_thread(remove, name="agx memory")
    return Response(status_code=204)
