"""The runs of a session's sub-agents and their endings, as facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agenticx.messages import UserMessage
from agenticx.runtime.session import Notice
from agenticx.sessions.history.deliveries import ending_notices, read_deliveries, read_runs
from agenticx.sessions.store.entries import Fact, SubagentEnded, SubagentMessaged, SubagentUnannounced
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = ["RunRecords", "ended_facts", "message_fact"]


@dataclass(slots=True)
class RunRecords:
    """The runs in order, and their endings, by turn id; those `undelivered` are to be told in the main conversation.

    The others have no text. `unread` messages are by the ids of their agents, in the order of their coming.
    """

    runs: dict[str, SubagentRun] = field(default_factory=dict[str, SubagentRun])
    endings: dict[str, SubagentEnding] = field(default_factory=dict[str, SubagentEnding])
    undelivered: dict[str, SubagentEnding] = field(default_factory=dict[str, SubagentEnding])
    unread: dict[str, list[UserMessage]] = field(default_factory=dict[str, list[UserMessage]])

    @classmethod
    def from_facts(cls, facts: Sequence[Fact]) -> RunRecords:
        """Return what the facts of a session say."""
        records = cls(runs=read_runs(facts))
        for turn_id, delivery in read_deliveries(facts).items():
            if delivery.is_due:
                records.undelivered[turn_id] = delivery.ending
            else:
                records.endings[turn_id] = replace(delivery.ending, text="")
        records.endings |= records.undelivered
        for fact in facts:
            if isinstance(fact, SubagentMessaged):
                message = UserMessage(content=fact.text, message_id=fact.key, sources=fact.sources)
                records.unread.setdefault(fact.agent_id, []).append(message)
        return records

    def notices(self) -> list[Notice]:
        """Return the notices of the endings that are not delivered."""
        return ending_notices(self.undelivered.values(), self.runs)

    @property
    def unended(self) -> Sequence[SubagentRun]:
        """The runs without an ending."""
        return [run for turn_id, run in self.runs.items() if turn_id not in self.endings]


def message_fact(agent_id: str, message: UserMessage) -> Fact:
    """Return the fact that a message for an agent was accepted."""
    return SubagentMessaged(
        key=message.message_id, agent_id=agent_id, text=message.content, sources=tuple(message.sources)
    )


def ended_facts(ending: SubagentEnding, *, is_announced: bool) -> Sequence[Fact]:
    """Return the facts that a run has ended, and that the log lacks the event of that; none reports a pause."""
    ended = SubagentEnded(key=ending.turn_id, ending=ending.shortened)
    has_event = is_announced or ending.state == "paused"
    return (ended,) if has_event else (ended, SubagentUnannounced(key=ended.key, ending=ended.ending))
