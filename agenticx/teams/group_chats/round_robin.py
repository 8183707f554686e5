"""A team whose participants speak in their order."""

from __future__ import annotations

from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.team_run import TeamRun
from agenticx.teams.group_chats.transcript import TeamTranscript

__all__ = ["RoundRobinGroupChat"]


class RoundRobinGroupChat(BaseGroupChat):
    """A team whose participants speak in their order, from where the last run ended."""

    async def select_speaker(self, transcript: TeamTranscript, run: TeamRun) -> str:
        names = [*self._participants]
        last = -1 if transcript.speaker is None else names.index(transcript.speaker)
        return names[(last + 1) % len(names)]
