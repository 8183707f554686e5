"""The endings of sub-agents that agents below the main one were told, among the events of the log.

Such agents are participants of teams, and those of an executor's runs. What they were told is in facts only; here it is
a `steered` event that is `injected`, before the last model call of the turn in which it was told, or after the user's
message where the process died before the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agenticx.runtime.events import TEAM_REPLAY_EVENTS, EventType, SteeredEvent
from agenticx.sessions.history.turns_on_path import read_events_on_path
from agenticx.sessions.store.base import Log
from agenticx.sessions.store.entries import Fact, SessionEvent, SubagentDelivered, SubagentFact, decode
from agenticx.sessions.subagent_runs import SubagentRuns

__all__ = ["read_talk_events", "with_subagent_notices"]

_STEPS = frozenset({EventType.TURN_STARTED, EventType.ROUND_START})


async def read_talk_events(log: Log, session_id: str) -> list[SessionEvent]:
    """Return the events of teams on the path, and what participants were told; raises `DamagedData`."""
    events = await read_events_on_path(log, session_id, TEAM_REPLAY_EVENTS)
    facts = await log.facts(session_id, SubagentFact)
    return with_subagent_notices(map(decode, events), facts)


def with_subagent_notices(events: Iterable[SessionEvent], facts: Sequence[Fact]) -> list[SessionEvent]:
    """Return the events of turns with what agents below the main one, which are not sub-agents, were told there."""
    told: dict[tuple[str, str], list[SubagentDelivered]] = {}
    for one in SubagentRuns.of(facts).deliveries.values():
        if one.message_id and one.told_to != one.told_in:
            told.setdefault((one.told_to, one.message_id), []).append(one)
    found = [*events]
    for (turn_id, message_id), endings in told.items():
        steps = [index for index, one in enumerate(found) if one.turn_id == turn_id and one.event.type in _STEPS]
        if steps:
            text = "\n\n".join(one.ending.to_model_text() for one in endings)
            sources = [*dict.fromkeys(source for one in endings for source in one.ending.sources)]
            last = found[steps[-1]]
            has_no_call = last.event.type == EventType.TURN_STARTED
            data = {"message_id": message_id, "text": text, "sources": sources, "injected": True}
            steered = SteeredEvent(EventType.STEERED, data, last.event.agent_id, turn_id)
            found.insert(steps[-1] + has_no_call, last._replace(event=steered))
    return found
