"""The methods of a hub for teams of an application's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from agenticx.sessions.hub.commands import Command, ResetTeam

__all__ = ["TeamMethods"]


class TeamMethods(ABC):
    """A base class of hubs with what a team does in its session besides its runs."""

    @abstractmethod
    async def _perform(self, session_id: str, command: Command) -> Any: ...

    async def reset_team(self, session_id: str, team: str) -> None:
        """Append an event behind which a team of that name begins anew.

        Raises `SessionNotFound`, `SessionBusy` while a turn runs (nothing was written), and `StoreError`.
        """
        await self._perform(session_id, ResetTeam(team=team))
