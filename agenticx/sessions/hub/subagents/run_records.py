"""The runs of a session's sub-agents and their endings, as facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agenticx.logs import get_logger
from agenticx.messages import UserMessage
from agenticx.runtime.session import Notice
from agenticx.sessions.history.deliveries import ending_notices, read_deliveries, read_runs
from agenticx.sessions.store.records import Fact
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = ["RunRecords", "ended_facts", "message_fact", "read_endings", "started_fact", "taken_fact"]

_log = get_logger(__name__)


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
        """Return what the facts of a session say; those that a newer release wrote are left out."""
        records = cls(runs=read_runs(facts))
        for turn_id, delivery in read_deliveries(facts).items():
            if delivery.is_due:
                records.undelivered[turn_id] = delivery.ending
            else:
                records.endings[turn_id] = replace(delivery.ending, text="")
        records.endings |= records.undelivered
        for fact in facts:
            if fact.kind == "subagent_messaged":
                text, sources = fact.data["text"], tuple(fact.data["sources"])
                message = UserMessage(content=text, message_id=fact.key, sources=sources)
                records.unread.setdefault(fact.data["agent_id"], []).append(message)
        return records

    def notices(self) -> list[Notice]:
        """Return the notices of the endings that are not delivered."""
        return ending_notices(self.undelivered.values(), self.runs)

    @property
    def unended(self) -> Sequence[SubagentRun]:
        """The runs without an ending."""
        return [run for turn_id, run in self.runs.items() if turn_id not in self.endings]


def read_endings(facts: Iterable[Fact]) -> Iterator[SubagentEnding]:
    """Yield the endings among facts that the log lacks an event; what a newer release wrote is left out."""
    for fact in facts:
        try:
            yield SubagentEnding(**fact.data)
        except TypeError as exc:
            _log.error("fact about a sub-agent unreadable", kind=fact.kind, key=fact.key, error=repr(exc))


def started_fact(run: SubagentRun) -> Fact:
    """Return the fact that a run is about to begin."""
    return Fact(kind="subagent_started", key=run.turn_id, turn_id="", data=run.dump())


def message_fact(agent_id: str, message: UserMessage) -> Fact:
    """Return the fact that a message for an agent was accepted."""
    data = {"agent_id": agent_id, "text": message.content, "sources": list(message.sources)}
    return Fact(kind="subagent_messaged", key=message.message_id, turn_id="", data=data)


def taken_fact(message_id: str) -> Fact:
    """Return the fact that a conversation has a message."""
    return Fact(kind="subagent_message_taken", key=message_id, turn_id="")


def ended_facts(ending: SubagentEnding, *, is_announced: bool) -> Sequence[Fact]:
    """Return the facts that a run has ended, and that the log lacks the event of that; none reports a pause."""
    ended = Fact(kind="subagent_ended", key=ending.turn_id, turn_id="", data=ending.dump())
    has_event = is_announced or ending.state == "paused"
    return (ended,) if has_event else (ended, replace(ended, kind="subagent_unannounced"))
