"""A team whose participants speak in their order."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.team_run import Speaking

__all__ = ["RoundRobinGroupChat"]


class RoundRobinGroupChat(BaseGroupChat):
    """A team whose participants speak in their order, from where the last run ended."""

    def _select_speaker(self, messages: Sequence[Speaking]) -> str:
        names, speaker = [*self._members], self._transcript.speaker
        last = -1 if speaker is None else names.index(speaker)
        return names[(last + 1) % len(names)]
