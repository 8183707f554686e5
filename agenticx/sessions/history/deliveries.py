"""The endings of sub-agents that a conversation has, and those that it is to be told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from agenticx.logs import get_logger
from agenticx.runtime.session import Notice
from agenticx.sessions.history.transcript import Conversation, TranscriptEntry
from agenticx.sessions.history.turns_on_path import subagents_on_path
from agenticx.sessions.store.entries import StoredEvent
from agenticx.sessions.store.records import Fact
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = [
    "EndingDelivery",
    "HistoryWithSubagents",
    "RewoundDeliveries",
    "copied_deliveries",
    "ending_notices",
    "read_deliveries",
    "read_runs",
    "rewound_deliveries",
]

_ENDING_FIELDS = frozenset(field.name for field in fields(SubagentEnding))

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingDelivery:
    """The delivery of an ending: it `is_due`, the message `message_id` has it, or it is not to be told.

    The latter is so for a sub-agent whose start was rewound away. The message is one of the turn `told_in`, which is
    that of another sub-agent if the ending is for that one, or of the turn `told_to` below it, such as a speech in a
    team.
    """

    ending: SubagentEnding
    is_due: bool = False
    message_id: str = ""
    told_in: str = ""
    told_to: str = ""

    @classmethod
    def from_fact(cls, fact: Fact) -> EndingDelivery:
        """Return what a fact `subagent_ended` or `subagent_delivered` says; raises `TypeError` for other data."""
        lacking = {"text": "", "is_due": False, "message_id": "", "told_in": "", "told_to": ""}
        data: dict[str, Any] = {**lacking, **fact.data}
        ending = SubagentEnding(**{key: value for key, value in data.items() if key in _ENDING_FIELDS})
        if fact.kind == "subagent_ended":
            return cls(ending=ending, is_due=True)
        where = {key: data[key] for key in ("message_id", "told_in", "told_to")}
        return cls(ending=ending, is_due=data["is_due"], **where)

    def to_fact(self) -> Fact:
        """Return the fact `subagent_delivered` of this delivery."""
        where = {"message_id": self.message_id, "told_in": self.told_in, "told_to": self.told_to}
        data = {"is_due": self.is_due, **where}
        return Fact(kind="subagent_delivered", key=self.ending.turn_id, turn_id="", data={**self.ending.dump(), **data})


def read_deliveries(facts: Iterable[Fact]) -> dict[str, EndingDelivery]:
    """Return the deliveries among facts by the turn ids of their runs; what a newer release wrote is left out."""
    found: dict[str, EndingDelivery] = {}
    for fact in facts:
        is_known = (
            fact.key in found and fact.kind == "subagent_ended"
        )  # by a process that could not store its first end
        if fact.kind in ("subagent_ended", "subagent_delivered") and not is_known:
            try:
                found[fact.key] = EndingDelivery.from_fact(fact)
            except TypeError as exc:
                _log.error("fact about a sub-agent unreadable", kind=fact.kind, key=fact.key, error=repr(exc))
    return found


def read_runs(facts: Iterable[Fact]) -> dict[str, SubagentRun]:
    """Return the runs among facts by their turn ids, in order; what a newer release wrote is left out."""
    found: dict[str, SubagentRun] = {}
    for fact in facts:
        if fact.kind == "subagent_started":
            try:
                found[fact.key] = SubagentRun.load(fact.data)
            except (KeyError, TypeError) as exc:
                _log.error("fact about a sub-agent unreadable", kind=fact.kind, key=fact.key, error=repr(exc))
    return found


def ending_notices(endings: Iterable[SubagentEnding], runs: Mapping[str, SubagentRun]) -> list[Notice]:
    """Return the notices of stored endings for the agents that started their `runs`; a fork lacks these."""
    readers = {turn_id: run.reader for turn_id, run in runs.items()}
    return [ending.notice(is_stored=True, reader=readers.get(ending.turn_id, "")) for ending in endings]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryWithSubagents:
    """A conversation as far as it was told of sub-agents.

    `agents` are those whose start is on its path, with those below them; `turn_ids` all turns of the session that are
    not below others; `message_ids` the messages of the conversation.
    """

    agents: Collection[str]
    turn_ids: Collection[str | None]
    message_ids: Collection[str]

    @classmethod
    def on_path(
        cls,
        events: Sequence[StoredEvent],
        conversation: Conversation,
        path: Sequence[TranscriptEntry],
        message_ids: Collection[str],
    ) -> HistoryWithSubagents:
        """Return what the log says of the path with these messages."""
        turn_ids = {entry.turn_id for entry in conversation.entries.values()}
        return cls(agents=subagents_on_path(events, conversation, path), turn_ids=turn_ids, message_ids=message_ids)

    def delivery(self, one: EndingDelivery) -> EndingDelivery:
        """Return a delivery as it is for this conversation."""
        if one.told_in and one.told_in not in self.turn_ids:  # it is for a sub-agent
            return one
        if one.message_id in self.message_ids and one.ending.agent_id in self.agents:
            return one
        return EndingDelivery(ending=one.ending, is_due=one.ending.agent_id in self.agents)


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
    before = read_deliveries(facts)
    after = {key: history.delivery(one) for key, one in before.items()}
    changed = [one.to_fact() for key, one in after.items() if one != before[key]]
    due = ending_notices((one.ending for one in after.values() if one.is_due), read_runs(facts))
    return RewoundDeliveries(changed, due, before.keys())


def copied_deliveries(
    facts: Sequence[Fact], history: HistoryWithSubagents, new_turn_id: Callable[[str], str]
) -> Iterator[Fact]:
    """Yield the facts for a fork with this conversation, whose turns have new ids.

    It is told of each of its sub-agents, which stay with the conversation that it was forked from: of the endings that
    it does not have, and of those at work or paused that they stay there.
    """
    deliveries = read_deliveries(facts)
    runs = read_runs(facts).values()
    at_work = {run.agent_id for run in runs if run.turn_id not in deliveries}
    for run in runs:
        one = deliveries.setdefault(run.turn_id, EndingDelivery(ending=_stays(run), is_due=True))
        if not at_work.isdisjoint(run.parent_path):  # it is for one that stays there too
            deliveries[run.turn_id] = replace(one, is_due=False, told_in=one.told_in or run.parent_turn_id)
    for before in deliveries.values():
        if before.ending.agent_id not in history.agents:
            continue
        after = history.delivery(before)
        ending = replace(after.ending, turn_id=new_turn_id(after.ending.turn_id))
        if after.is_due and ending.state == "paused":
            ending = replace(ending, state="error", code="forked")
        told = {"told_in": after.told_in, "told_to": after.told_to}
        yield replace(after, ending=ending, **{key: id_ and new_turn_id(id_) for key, id_ in told.items()}).to_fact()


def _stays(run: SubagentRun) -> SubagentEnding:
    text = "This conversation was forked from that one, which gets its result."
    return SubagentEnding(turn_id=run.turn_id, agent_id=run.agent_id, state="error", code="forked", text=text)
