"""The answer of a participant that was stored just before its process died."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agenticx.runtime.events import EVENT_CLASSES, Event, EventType

if TYPE_CHECKING:
    from agenticx.sessions.store.records import StoredEvent

__all__ = ["unreported_turn"]


def unreported_turn(events: Sequence[StoredEvent], agent_id: str) -> Sequence[Event] | None:
    """Return the last turn of the agent if it ended with an answer that is not in the log as `team_message`, else None.

    A speech is stored after the turn in which it was made, so a process can die between the two.
    """
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    turn_id: str | None = None
    is_unreported = False
    with map_decode_errors("the log of a session"):
        for event in events:
            if event.type not in ("turn_started", "final", "team_message"):
                continue
            envelope: dict[str, Any] = json.loads(event.frame_json)
            if event.type == "team_message":
                is_unreported = is_unreported and envelope["data"]["message"]["source"] != agent_id
            elif event.type == "turn_started" and envelope["agent_id"] == agent_id:
                turn_id, is_unreported = event.turn_id, False
            elif event.turn_id == turn_id:  # the last event, of the agent or of one that has taken over
                is_unreported = True
        if not is_unreported:
            return None
        return [_decoded(event) for event in events if event.turn_id == turn_id]


def _decoded(event: StoredEvent) -> Event:
    envelope: dict[str, Any] = json.loads(event.frame_json)
    type_ = EventType(envelope["type"])
    return EVENT_CLASSES[type_](type_, envelope["data"], envelope["agent_id"], event.turn_id)
