"""The errors of configured teams."""

from __future__ import annotations

from agenticx.errors import SettingsError, WorkFailed

__all__ = ["TeamConfigError", "TeamUnavailable", "UnknownTeam"]


class TeamConfigError(SettingsError):
    """A configured team that cannot be used; the message names the file, the field and what would be right."""


class UnknownTeam(TeamConfigError):
    """A name that no configured team has; the message names those that there are."""


class TeamUnavailable(WorkFailed):
    """A turn whose team cannot run now, because its file is gone, has a problem, or does not fit the session."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="team_unavailable")
