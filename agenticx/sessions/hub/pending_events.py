"""The endings of sub-agents whose events are not in the log yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agenticx.runtime import RuntimeEvent
from agenticx.sessions.store.entries import Fact, SubagentAnnounced, SubagentUnannounced

__all__ = ["PendingEvents"]


class PendingEvents:
    """The stored endings without an event, by the keys of their facts `subagent_unannounced`.

    They are stored in one commit, and their event in a later one, which has the fact `subagent_announced`. So the next
    process finds the `missing` ones, in the order of storage, and appends their events.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.missing = {fact.key: fact for fact in facts if isinstance(fact, SubagentUnannounced)}
        self.stored = set[str]()
        self._expected: list[tuple[str, RuntimeEvent]] = []

    def expect(self, key: str, event: RuntimeEvent) -> None:
        """Take note that this very event, which is about to be written, is the one for a key."""
        self._expected.append((key, event))

    def facts(self, events: Sequence[RuntimeEvent]) -> Sequence[Fact]:
        """Return the facts that these events are in the log."""
        ids = {id(event) for event in events}
        keys = [key for key, event in self._expected if id(event) in ids]
        return [SubagentAnnounced(key=key) for key in keys]

    def mark_stored(self, facts: Iterable[Fact]) -> None:
        """Take note of stored facts."""
        if keys := {fact.key for fact in facts if isinstance(fact, SubagentAnnounced)}:
            self.stored |= keys
            self._expected = [expected for expected in self._expected if expected[0] not in keys]
            for key in keys:
                self.missing.pop(key, None)
