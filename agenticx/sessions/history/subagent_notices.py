"""The notices of sub-agents' endings in a conversation: the delivered ones and the due ones.

A rewind and a fork have notices by their own path. The notices that child turns of the main agent got, such as speeches
in a team and the runs of an executor, are in facts only. `with_subagent_notices` puts them among the events of the log,
as `steered` events that are `injected`: before the last model call of the turn that got the notice, or after the user's
message where the process died before the first call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agenticx.runtime.events import TEAM_REPLAY_EVENTS, EventType, SteeredEvent
from agenticx.runtime.session import Notice
from agenticx.sessions.history.transcript import Conversation
from agenticx.sessions.history.turns_on_path import TurnsOnPath, read_events_on_path
from agenticx.sessions.log.events import SessionEvent
from agenticx.sessions.log.records import Fact, SubagentDelivered, SubagentFact
from agenticx.sessions.log.subagent_runs import SubagentRuns
from agenticx.sessions.store.base import Log
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = [
    "HistoryWithSubagents",
    "RewoundDeliveries",
    "deliveries_of_fork",
    "read_talk_events",
    "rewound_deliveries",
    "with_subagent_notices",
]

_STEPS = frozenset({EventType.TURN_STARTED, EventType.ROUND_START})


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryWithSubagents:
    """The sub-agents of a conversation, and where it can have their notices.

    `agents` are the sub-agents that were started on its path, and their own sub-agents; `turn_ids` the turns of the
    session without a parent; `message_ids` the messages of the conversation.
    """

    agents: Collection[str]
    turn_ids: Collection[str | None]
    message_ids: Collection[str]

    @classmethod
    def on_path(
        cls, turns: TurnsOnPath, conversation: Conversation, message_ids: Collection[str]
    ) -> HistoryWithSubagents:
        """Return what the log says of the path with these turns and messages."""
        turn_ids = {entry.turn_id for entry in conversation.entries.values()}
        return cls(agents=turns.subagents(), turn_ids=turn_ids, message_ids=message_ids)

    def delivery(self, one: SubagentDelivered) -> SubagentDelivered:
        """Return a delivery as it is for this conversation."""
        if one.recipient_turn_id and one.recipient_turn_id not in self.turn_ids:  # it is for a sub-agent
            return one
        if one.message_id in self.message_ids and one.ending.agent_id in self.agents:
            return one
        return SubagentDelivered(key=one.key, ending=one.ending, is_due=one.ending.agent_id in self.agents)


@dataclass(frozen=True, slots=True)
class RewoundDeliveries:
    """The facts that change with a rewind, the notices that are `due` after it, and the keys of all that it regards."""

    facts: Sequence[Fact]
    due: Sequence[Notice]
    keys: Collection[str]

    def notices(self, current: Iterable[Notice]) -> list[Notice]:
        """Return the notices of the conversation after the rewind by the current ones."""
        later = (notice for notice in current if notice.key not in self.keys)
        return [*self.due, *later]


def rewound_deliveries(facts: Sequence[Fact], history: HistoryWithSubagents) -> RewoundDeliveries:
    """Return the deliveries of these facts after a rewind to this conversation."""
    runs = SubagentRuns.of(facts)
    before = runs.deliveries
    after = {key: history.delivery(one) for key, one in before.items()}
    changed = [one for key, one in after.items() if one != before[key]]
    return RewoundDeliveries(changed, runs.notices(after.values()), before.keys())


def deliveries_of_fork(facts: Sequence[Fact], history: HistoryWithSubagents) -> Iterator[SubagentDelivered]:
    """Yield the deliveries that a fork with this conversation has.

    Its sub-agents stay with the conversation that it was forked from. The fork gets the
    missing notices of endings, and for each sub-agent at work or paused a notice that it stays there.
    """
    runs = SubagentRuns.of(facts)
    deliveries, at_work = dict(runs.deliveries), {run.agent_id for run in runs.unended}
    for run in runs.runs.values():
        one = deliveries.setdefault(run.turn_id, SubagentDelivered(key=run.turn_id, ending=_stays(run), is_due=True))
        if not at_work.isdisjoint(run.parent_path):  # it is for one that stays there too
            deliveries[run.turn_id] = replace(
                one, is_due=False, recipient_turn_id=one.recipient_turn_id or run.parent_turn_id
            )
    for before in deliveries.values():
        if before.ending.agent_id not in history.agents:
            continue
        after = history.delivery(before)
        if after.is_due and after.ending.state == "paused":
            after = replace(after, ending=replace(after.ending, state="error", code="forked"))
        yield after


def _stays(run: SubagentRun) -> SubagentEnding:
    text = "This conversation was forked from that one, which gets its result."
    return SubagentEnding(turn_id=run.turn_id, agent_id=run.agent_id, state="error", code="forked", text=text)


async def read_talk_events(log: Log, session_id: str) -> list[SessionEvent]:
    """Return the events of teams on the path, with the notices that participants got; raises `DamagedData`."""
    events = await read_events_on_path(log, session_id, TEAM_REPLAY_EVENTS)
    facts = await log.facts(session_id, SubagentFact)
    return with_subagent_notices(events, facts)


def with_subagent_notices(events: Iterable[SessionEvent], facts: Sequence[Fact]) -> list[SessionEvent]:
    """Return the events with the notices that child turns of the main agent or of a sub-agent got."""
    delivered: dict[tuple[str, str], list[SubagentDelivered]] = {}
    for one in SubagentRuns.of(facts).deliveries.values():
        if one.message_id and one.message_turn_id != one.recipient_turn_id:
            delivered.setdefault((one.message_turn_id, one.message_id), []).append(one)
    found = [*events]
    for (turn_id, message_id), endings in delivered.items():
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
