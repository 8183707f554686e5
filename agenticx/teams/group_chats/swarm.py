"""A team whose participants hand over to each other."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.teams.agents.protocols import ChatAgent
from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.team_run import Speaking
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    TextMessage,
)
from agenticx.teams.transcript import TeamTranscript

__all__ = ["Swarm"]


class Swarm(BaseGroupChat):
    """A team of agents in which the target of the last `HandoffMessage` speaks.

    Without a handoff the last speaker goes on; the first agent begins. After a handoff to somebody who is not a
    participant, such as a person, a run needs a task that hands over to a participant, else it raises ValueError. The
    options are as for `BaseGroupChat`; TypeError for a team as participant.
    """

    def check_participants(self, participants: Sequence[object]) -> None:
        for participant in participants:
            if not isinstance(participant, ChatAgent):
                raise TypeError(f"Participant {participant!r} must be a ChatAgent")

    def check_start(self, transcript: TeamTranscript, task: Sequence[BaseChatMessage]) -> None:
        target = _target([*transcript.messages, *task])
        if target is not None and target not in self._members:
            raise ValueError(
                f"the last handoff is to {target!r}, which is no participant; run a HandoffMessage to one of "
                f"{[*self._members]} as the task"
            )

    def task_in_session(self, transcript: TeamTranscript, task: Sequence[BaseChatMessage]) -> Sequence[BaseChatMessage]:
        """Return the user's message as a handoff to the agent that handed over to a person outside of the team."""
        handoff = _last_handoff(transcript.messages)
        if handoff is None or handoff.target in self._members:
            return task
        *earlier, last = task or [TextMessage(content="Continue.")]
        if isinstance(last, MultiModalMessage):
            texts = [part for part in last.content if isinstance(part, str)]
            files = [part for part in last.content if not isinstance(part, str)]
            earlier.append(MultiModalMessage(content=[*files]))
            last = TextMessage(content="\n".join(texts) or "Continue.", id=last.id)
        return [*earlier, HandoffMessage(content=last.to_text(), target=handoff.source, id=last.id)]

    def _select_speaker(self, messages: Sequence[Speaking]) -> str:
        target = _target(messages) or self._transcript.speaker or next(iter(self._members))
        if target not in self._members:
            raise TeamError(f"the last handoff is to {target!r}, which is no participant: {[*self._members]}")
        return target


def _target(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str | None:
    """Return the target of the last handoff."""
    handoff = _last_handoff(messages)
    return None if handoff is None else handoff.target


def _last_handoff(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> HandoffMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, HandoffMessage)), None)
