"""The error of a team's run."""

from __future__ import annotations

from agenticx.errors import AgenticXError

__all__ = ["TeamError"]


class TeamError(AgenticXError, RuntimeError):
    """A run that ended because a participant, a condition or a selector failed; its cause is what was raised."""
