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
from agenticx.sessions.history.deliveries import EndingDelivery, read_deliveries, read_runs
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
    """Return the events of turns, and of those above them, with what agents were told by the facts."""
    if not facts:
        return list(events)
    runs, paths = read_runs(facts), _agent_paths(events)
    told: dict[tuple[str | None, str], list[EndingDelivery]] = {}
    for key, one in read_deliveries(facts).items():
        starter = () if (run := runs.get(key)) is None else run.starter_path
        turns = [turn_id for turn_id, (root, path) in paths.items() if path == starter and root == one.told_in]
        if one.message_id and turns:
            told.setdefault((turns[-1], one.message_id), []).append(one)
    found = [*events]
    for (turn_id, message_id), endings in told.items():
        steps = [index for index, event in enumerate(found) if event.turn_id == turn_id and event.type in _STEPS]
        if steps:
            text = "\n\n".join(one.ending.to_model_text() for one in endings)
            has_no_call = found[steps[-1]].type == EventType.TURN_STARTED
            steered = _steered(found[steps[-1]], {"message_id": message_id, "text": text})
            found.insert(steps[-1] + has_no_call, steered)
    return found


def _agent_paths(events: Sequence[StoredEvent]) -> dict[str | None, tuple[str, tuple[str, ...]]]:
    """Return, for each turn, the one at its top and the ids of the agents from there."""
    paths: dict[str | None, tuple[str, tuple[str, ...]]] = {}
    with map_decode_errors("the log of a session"):
        for event in events:
            if event.type == "turn_started":
                envelope = json.loads(event.frame_json)
                root, path = paths.get(envelope["data"].get("parent_turn_id"), (event.turn_id or "", ()))
                paths[event.turn_id] = root, (*path, envelope["agent_id"])
    return paths


def _steered(before: StoredEvent, data: dict[str, Any]) -> StoredEvent:
    """Return the event of a message of the engine, which the model got in the call that begins with another event."""
    envelope = {**json.loads(before.frame_json), "type": "steered", "data": {**data, "injected": True}}
    return before._replace(type=EventType.STEERED, frame_json=json.dumps(envelope).encode())
