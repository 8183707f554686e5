"""The runs of a session's sub-agents, folded from its facts one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agenticx.messages import UserMessage
from agenticx.runtime.session import Notice
from agenticx.sessions.log.records import (
    Fact,
    SubagentAnnounced,
    SubagentDelivered,
    SubagentEnded,
    SubagentMessaged,
    SubagentMessageTaken,
    SubagentStarted,
)
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = ["SubagentRuns"]


@dataclass(slots=True)
class SubagentRuns:
    """The runs by the ids of their turns, in order, as the facts so far have them.

    `deliveries` has the ending of each run that has ended, and whether its notice is due; a fork also has deliveries of
    runs that only the old session has. `announced` are the runs whose ending has an event in the log. `unread` are
    messages that no conversation has yet, by their ids. Unless it `keeps_texts`, an ending has no text once its notice
    is delivered and its event stored.
    """

    keeps_texts: bool = True
    runs: dict[str, SubagentRun] = field(default_factory=dict[str, SubagentRun])
    deliveries: dict[str, SubagentDelivered] = field(default_factory=dict[str, SubagentDelivered])
    announced: set[str] = field(default_factory=set[str])
    unread: dict[str, SubagentMessaged] = field(default_factory=dict[str, SubagentMessaged])

    @classmethod
    def of(cls, facts: Iterable[Fact], *, keeps_texts: bool = True) -> SubagentRuns:
        """Fold the facts of a session."""
        runs = cls(keeps_texts)
        runs.apply(facts)
        return runs

    def apply(self, facts: Iterable[Fact]) -> None:
        """Fold the next facts of the session; those that are not about sub-agents change nothing."""
        for fact in facts:
            match fact:
                case SubagentStarted():
                    self.runs.setdefault(fact.key, fact.run)
                case SubagentEnded():  # the first one counts: a turn whose end could not be stored may get another
                    due = SubagentDelivered(key=fact.key, ending=fact.ending, is_due=True)
                    self.deliveries.setdefault(fact.key, due)
                case SubagentDelivered():
                    self.deliveries[fact.key] = fact
                    self._drop_text(fact.key)
                case SubagentAnnounced():
                    self.announced.add(fact.key)
                    self._drop_text(fact.key)
                case SubagentMessaged():
                    self.unread[fact.key] = fact
                case SubagentMessageTaken():
                    self.unread.pop(fact.key, None)
                case _:
                    pass

    def _drop_text(self, key: str) -> None:
        one = self.deliveries.get(key)
        if not (self.keeps_texts or one is None or one.is_due or self._has_pending_event(one)):
            self.deliveries[key] = replace(one, ending=replace(one.ending, text=""))

    def _has_pending_event(self, one: SubagentDelivered) -> bool:
        has_event = one.ending.state != "paused" and one.key in self.runs
        return has_event and one.key not in self.announced

    @property
    def pending_events(self) -> Sequence[SubagentEnding]:
        """The endings whose events are not in the log; work that is paused has none."""
        return [one.ending for one in self.deliveries.values() if self._has_pending_event(one)]

    @property
    def unended(self) -> Sequence[SubagentRun]:
        """The runs without an ending."""
        return [run for turn_id, run in self.runs.items() if turn_id not in self.deliveries]

    def unread_messages(self) -> dict[str, list[UserMessage]]:
        """Return the messages that no conversation has yet, in order, by the ids of their agents."""
        found: dict[str, list[UserMessage]] = {}
        for fact in self.unread.values():
            message = UserMessage(content=fact.text, message_id=fact.key, sources=fact.sources)
            found.setdefault(fact.agent_id, []).append(message)
        return found

    def notices(self, deliveries: Iterable[SubagentDelivered] | None = None) -> list[Notice]:
        """Return the notices that are due, for the agents that started the runs; a fork lacks the runs.

        They are those of these `deliveries`, by default of its own.
        """
        due = (one for one in (self.deliveries.values() if deliveries is None else deliveries) if one.is_due)
        readers = {turn_id: run.reader for turn_id, run in self.runs.items()}
        return [one.ending.notice(is_stored=True, reader=readers.get(one.ending.turn_id, "")) for one in due]
