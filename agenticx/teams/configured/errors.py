"""The errors of configured teams."""

from __future__ import annotations

from agenticx.errors import SettingsError

__all__ = ["TeamConfigError", "UnknownTeam"]


class TeamConfigError(SettingsError):
    """A configured team that cannot be used; the message names the file, the field and what would be right."""


class UnknownTeam(TeamConfigError):
    """A name that no configured team has; the message names those that there are."""
