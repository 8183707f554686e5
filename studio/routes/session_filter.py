"""The query of a list of what is open in all sessions or in one."""

from __future__ import annotations

from pydantic import Field
from starlette.requests import Request

from studio.http.queries import RequestQuery, read_query
from studio.services import services

__all__ = ["SessionFilter", "read_session_filter"]


class SessionFilter(RequestQuery):
    """The query of a list that can be limited to one session."""

    session_id: str | None = Field(None, description="Only questions of this session.")


async def read_session_filter(request: Request) -> str | None:
    """Return the id of the session that the request names, None for all; raise `SessionNotFound` if there is none."""
    session_id = read_query(request, SessionFilter).session_id
    if session_id is not None:
        await services(request).store.catalog.get(session_id)
    return session_id
