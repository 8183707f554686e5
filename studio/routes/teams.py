"""The configured teams, over HTTP."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.teams.configured.files import ConfiguredTeam, TeamFiles
from agenticx.threads import run_in_thread
from studio.services import services

__all__ = ["TeamListResponse", "teams"]


class ParticipantItem(TypedDict):
    """A participant of a team: an agent (`assistant`), or the user."""

    name: str
    kind: Literal["assistant", "user"]
    description: str | None


class TeamItem(TypedDict):
    """A team; `problem` says what is wrong with its file, `kind` is null then.

    `origin` is `user` for a file in AGX_HOME/teams, else `packaged`.
    """

    name: str
    kind: Literal["round_robin", "selector", "swarm"] | None
    description: str | None
    participants: list[ParticipantItem]
    origin: Literal["user", "packaged"]
    problem: str | None


class TeamListResponse(TypedDict):
    teams: list[TeamItem]


async def teams(request: Request) -> Response:
    files = TeamFiles(services(request).settings.home)
    found = await run_in_thread(files.list_all, name="agx teams")
    return JSONResponse(TeamListResponse(teams=[_team_item(team) for team in found]))


def _team_item(team: ConfiguredTeam) -> TeamItem:
    config = team.config
    return {
        "name": team.name,
        "kind": None if config is None else config.kind,
        "description": None if config is None else config.description,
        "participants": []
        if config is None
        else [
            {"name": participant.name, "kind": participant.kind, "description": participant.description}
            for participant in config.participants
        ],
        "origin": team.origin,
        "problem": team.problem,
    }
