"""The endings of sub-agents that agents below the main one were told, among the events of the log.

Such agents are participants of teams, and those of an executor's runs. What they were told is in facts only; here it is
a `steered` event that is `injected`, before the last model call of the turn in which it was told, or after the user's
message where the process died before the first call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from agenticx.runtime.events import EventType
from agenticx.sessions.history.deliveries import EndingDelivery, read_deliveries
from agenticx.sessions.history.turns_on_path import read_events_on_path
from agenticx.sessions.store.base import Log
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.records import Fact, StoredEvent

__all__ = ["read_talk_events", "with_told_endings"]

_STEPS = frozenset({EventType.TURN_STARTED, EventType.ROUND_START})


async def read_talk_events(log: Log, session_id: str, types: Collection[str]) -> list[StoredEvent]:
    """Return what `read_events_on_path` does, and what participants of teams were told; raises `DamagedData`."""
    events = await read_events_on_path(log, session_id, types)
    facts = await log.subagent_facts(session_id)
    return with_told_endings(events, facts)


def with_told_endings(events: Sequence[StoredEvent], facts: Sequence[Fact]) -> list[StoredEvent]:
    """Return the events of turns with what agents below the main one, which are not sub-agents, were told there."""
    told: dict[tuple[str, str], list[EndingDelivery]] = {}
    for one in read_deliveries(facts).values():
        if one.message_id and one.told_to != one.told_in:
            told.setdefault((one.told_to, one.message_id), []).append(one)
    found = [*events]
    for (turn_id, message_id), endings in told.items():
        steps = [index for index, event in enumerate(found) if event.turn_id == turn_id and event.type in _STEPS]
        if steps:
            text = "\n\n".join(one.ending.to_model_text() for one in endings)
            sources = [*dict.fromkeys(source for one in endings for source in one.ending.sources)]
            has_no_call = found[steps[-1]].type == EventType.TURN_STARTED
            with map_decode_errors("the log of a session"):
                steered = _steered(found[steps[-1]], {"message_id": message_id, "text": text, "sources": sources})
            found.insert(steps[-1] + has_no_call, steered)
    return found


def _steered(before: StoredEvent, data: dict[str, Any]) -> StoredEvent:
    """Return the event of a message of the engine, which the model got in the call that begins with another event."""
    envelope = {**json.loads(before.frame_json), "type": "steered", "data": {**data, "injected": True}}
    return before._replace(type=EventType.STEERED, frame_json=json.dumps(envelope).encode())
