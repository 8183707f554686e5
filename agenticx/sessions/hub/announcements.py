"""The endings of sub-agents whose events are not in the log yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agenticx.logs import get_logger
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.store.records import Fact
from agenticx.subagents.records import SubagentEnding

__all__ = ["ENDING_EVENTS", "Announcements"]

ENDING_EVENTS = frozenset({EventType.SUBAGENT_COMPLETED, EventType.SUBAGENT_ERROR})
"""The events that report endings, in a turn above or in none."""

_log = get_logger(__name__)


class Announcements:
    """The stored endings without an event, by turn id, in the order of storage.

    An ending is stored in one commit and its event in a later one. The fact `subagent_unannounced`, stored with the
    ending, is closed in the commit that has the event, so that the next process appends an event that is missing.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._endings: dict[str, SubagentEnding] = {}
        self.mark_stored(facts)

    @property
    def missing(self) -> Sequence[SubagentEnding]:
        """The endings whose events are not stored."""
        return list(self._endings.values())

    def facts(self, events: Sequence[RuntimeEvent]) -> Sequence[Fact]:
        """Return the facts that these events are in the log; those of one agent come in the order of its endings."""
        left = list(self._endings.values())
        announced: list[Fact] = []
        for event in events:
            ending = next((one for one in left if one.agent_id == event.agent_id), None)
            if event.type in ENDING_EVENTS and ending is not None:
                left.remove(ending)
                announced.append(Fact(kind="subagent_announced", key=ending.turn_id, turn_id=""))
        return announced

    def mark_stored(self, facts: Iterable[Fact]) -> None:
        """Take note of stored facts."""
        for fact in facts:
            if fact.kind == "subagent_announced":
                self._endings.pop(fact.key, None)
            elif fact.kind == "subagent_unannounced":
                try:
                    self._endings[fact.key] = SubagentEnding(**fact.data)
                except TypeError as exc:  # written by a newer release
                    _log.error("fact about a sub-agent unreadable", kind=fact.kind, key=fact.key, error=repr(exc))
