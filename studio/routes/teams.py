"""The configured teams, over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.teams.configured.build import with_problems
from agenticx.teams.configured.files import TeamFiles, TeamItem, team_item
from agenticx.threads import run_in_thread
from studio.services import services

__all__ = ["TeamListResponse", "teams"]


class TeamListResponse(TypedDict):
    teams: Annotated[list[TeamItem], Field(description="The teams, by their names.")]


async def teams(request: Request) -> Response:
    """List the configured teams, with the problems of those that cannot be used in sessions with all tools."""
    studio = services(request)
    await studio.models.refresh()
    found = await run_in_thread(TeamFiles(studio.settings.home).list_all, name="agx teams")
    found = with_problems(found, studio.models.get, studio.toolbox)
    return JSONResponse(TeamListResponse(teams=[team_item(team) for team in found]))
