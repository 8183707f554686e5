"""The files of configured teams: the user's in AGX_HOME/teams, then the packaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from agenticx.config_files.named import NamedFile, NamedFiles
from agenticx.teams.configured.config import TeamConfig, parse_team
from agenticx.teams.configured.errors import TeamConfigError, UnknownTeam

__all__ = ["ConfiguredTeam", "TeamFiles", "TeamItem", "team_item"]

ConfiguredTeam = NamedFile[TeamConfig]
"""A team of a file; `problem` says why it cannot be used, `config` is None if that is the file itself."""


class ParticipantItem(TypedDict):
    """A participant of a team: an agent (`assistant`), or the user."""

    name: str
    kind: Literal["assistant", "user"]
    description: str | None


class TeamItem(TypedDict):
    """A team; `problem` says why it cannot be used, `kind` is null if its file cannot be read.

    `origin` is `user` for a file in AGX_HOME/teams, else `packaged`.
    """

    name: str
    kind: Literal["round_robin", "selector", "swarm"] | None
    description: str | None
    participants: list[ParticipantItem]
    origin: Literal["user", "packaged"]
    problem: str | None


def team_item(team: ConfiguredTeam) -> TeamItem:
    """Return a team as clients read it."""
    config = team.config
    participants = () if config is None else config.participants
    return {
        "name": team.name,
        "kind": None if config is None else config.kind,
        "description": None if config is None else config.description,
        "participants": [{"name": one.name, "kind": one.kind, "description": one.description} for one in participants],
        "origin": team.origin,
        "problem": team.problem,
    }


class TeamFiles(NamedFiles[TeamConfig]):
    """The files of the teams; `home` is AGX_HOME."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "teams", noun="team", parse=parse_team, error=TeamConfigError, unknown=UnknownTeam)
