"""The files of configured teams: the user's in AGX_HOME/teams, then the packaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from agenticx.config_files.named import NamedFile, NamedFiles
from agenticx.teams.configured.config import TeamConfig, parse_team
from agenticx.teams.configured.errors import TeamConfigError, UnknownTeam

__all__ = ["ConfiguredTeam", "TeamFiles", "TeamItem", "team_item"]

ConfiguredTeam = NamedFile[TeamConfig]
"""A team of a file; `problem` says why it cannot be used, `config` is None if the file cannot be read."""


class ParticipantItem(TypedDict):
    """A participant of a team: an agent (`assistant`), or the user."""

    name: Annotated[str, Field(description="The name of the participant.")]
    kind: Annotated[Literal["assistant", "user"], Field(description="`user`: the user speaks for it.")]
    description: Annotated[str | None, Field(description="What it is for; null if the file does not say.")]


class TeamItem(TypedDict):
    """A team; `problem` says why it cannot be used, `kind` is null if its file cannot be read.

    `origin` is `user` for a file in AGX_HOME/teams, else `packaged`.
    """

    name: Annotated[str, Field(description="The name of the file without its ending.")]
    kind: Annotated[
        Literal["round_robin", "selector", "swarm"] | None,
        Field(description="How the next speaker is chosen; null if the file cannot be used."),
    ]
    description: Annotated[str | None, Field(description="What the team is for; null if the file does not say.")]
    participants: Annotated[list[ParticipantItem], Field(description="The participants, in the order of the file.")]
    origin: Annotated[
        Literal["user", "packaged"], Field(description="Where the file is: in the home folder, or in the package.")
    ]
    problem: Annotated[str | None, Field(description="Why the file cannot be used; null if it can.")]


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
