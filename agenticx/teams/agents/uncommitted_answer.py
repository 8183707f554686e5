"""The answer of a participant that was stored just before its process died."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agenticx.runtime.events import Event, FinalEvent, TeamMessageEvent, TurnStartedEvent

if TYPE_CHECKING:
    from agenticx.sessions.store.entries import SessionEvent

__all__ = ["uncommitted_answer"]


def uncommitted_answer(events: Sequence[SessionEvent], agent_id: str) -> Sequence[Event] | None:
    """Return the last turn of the agent if it ended with an answer that is not in the log as `team_message`, else None.

    A speech is stored after the turn in which it was made, so a process can die between the two.
    """
    turn_id: str | None = None
    is_unreported = False
    for entry in events:
        match entry.event:
            case TeamMessageEvent(data=data):
                is_unreported = is_unreported and data["message"]["source"] != agent_id
            case TurnStartedEvent(agent_id=name) if name == agent_id:
                turn_id, is_unreported = entry.turn_id, False
            case TurnStartedEvent() | FinalEvent() if entry.turn_id == turn_id:
                is_unreported = True  # the last event, of the agent or of one that has taken over
            case _:
                pass
    return [entry.event for entry in events if entry.turn_id == turn_id] if is_unreported else None
