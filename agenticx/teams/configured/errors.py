"""The errors of configured teams."""

from __future__ import annotations

from agenticx.errors import SettingsError, WorkFailed

__all__ = ["TeamConfigError", "TeamUnavailable", "UnknownTeam"]


class TeamConfigError(SettingsError):
    """Raised for a configured team that cannot be used; the message names the file, the field and a correct value."""


class UnknownTeam(TeamConfigError):
    """Raised for a name that no configured team has; the message lists the existing teams."""


class TeamUnavailable(WorkFailed):
    """Raised for a turn whose team cannot run, as its file is gone, has a problem, or does not fit the session."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="team_unavailable")
