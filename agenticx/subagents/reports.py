"""The events that report on sub-agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agenticx.runtime import EventType
from agenticx.runtime.events import EVENT_CLASSES, Event
from agenticx.subagents.records import Subagent

__all__ = ["report_above"]


def report_above(agent: Subagent, type_: EventType, data: dict[str, Any]) -> Sequence[Event]:
    """Emit an event of a sub-agent in the turn above it; if that is over, return the event, which has no turn then."""
    turn, tree = agent.above, {"parent_agent_id": agent.run.parent_id, "depth": agent.depth}
    in_turn = turn is not None and turn.accepts_children
    event = EVENT_CLASSES[type_](type_, data | tree, agent.id, turn.id if turn is not None and in_turn else "")
    if turn is None or not in_turn:
        return [event]
    turn.channel.put(event)
    return ()
