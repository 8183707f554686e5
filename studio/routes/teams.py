"""The configured teams, over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.teams.configured.files import TeamFiles, TeamItem
from agenticx.threads import run_in_thread
from studio.services import services

__all__ = ["TeamListResponse", "teams"]


class TeamListResponse(TypedDict):
    teams: list[TeamItem]


async def teams(request: Request) -> Response:
    files = TeamFiles(services(request).settings.home)
    found = await run_in_thread(files.list_all, name="agx teams")
    return JSONResponse(TeamListResponse(teams=[team.to_json() for team in found]))
