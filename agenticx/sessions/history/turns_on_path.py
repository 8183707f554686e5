"""The events of the turns that a conversation consists of, without those that were rewound away."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from agenticx.runtime.events import ArtifactEvent, SubagentStartedEvent, ToolResultEvent
from agenticx.runtime.session import Option
from agenticx.sessions.history.transcript import Conversation, TranscriptEntry
from agenticx.sessions.store.base import SessionLog, read_log_pages
from agenticx.sessions.store.events import StoredEvent, decode

__all__ = ["TurnsOnPath", "read_events_on_path"]


async def read_events_on_path(log: SessionLog, session_id: str, types: Collection[str]) -> list[StoredEvent]:
    """Return the events of these types of all turns of the conversation, and of their child turns, in order.

    Of the turn to which the conversation was rewound, they are those up to its last message that was kept. Of the
    session's own events they are those that reset a team.
    """
    events, conversation = list[StoredEvent](), Conversation()
    async for page in read_log_pages(log, session_id):
        events += (event for event in page if event.type in types or event.type == "turn_started")
        conversation.feed(page)
    path = conversation.path()
    resets = conversation.resets_on(path)
    found = [event for turn in TurnsOnPath(events, conversation, path).turns for event in turn]
    found += (event for event in events if event.seq in resets)
    return sorted((event for event in found if event.type in types), key=lambda event: event.seq)


class TurnsOnPath:
    """The turns that a path of a conversation consists of, among all `events` of its session.

    `turns` has the events of each of them and of those below it, up to the last one that is on the path. The methods
    raise `DamagedData`.
    """

    def __init__(
        self, events: Sequence[StoredEvent], conversation: Conversation, path: Sequence[TranscriptEntry]
    ) -> None:
        last_entries = {entry.turn_id: entry for entry in path}
        final_ids = {entry.turn_id: entry.id for entry in conversation.entries.values()}
        turns: dict[str | None, list[StoredEvent]] = {turn_id: [] for turn_id in last_entries}
        tree = conversation.tree
        roots = {id_: next((one for one in tree.lineage(id_) if one in turns), None) for id_ in tree.turns}
        for event in events:
            if (root := roots.get(event.turn_id or "")) is None:
                continue
            if final_ids[root] == last_entries[root].id or event.seq <= last_entries[root].last_seq:
                turns[root].append(event)
        self.turns = list(turns.values())
        self.picked = {entry.last_seq: entry.message["picked"] for entry in path if "picked" in entry.message}
        """The numbers of the options that the user picked on the path, by those of their events."""
        self._events = events

    def _of_type(self, type_: str) -> Iterator[StoredEvent]:
        return (event for turn in self.turns for event in turn if event.type == type_)

    def calls(self) -> set[str]:
        """Return the ids of the calls whose results are part of the path."""
        decoded = (decode(event).event for event in self._of_type("tool_result"))
        return {event.data["tool_call_id"] for event in decoded if isinstance(event, ToolResultEvent)}

    def subagents(self) -> set[str]:
        """Return the ids of the sub-agents that the main agent started on the path, and of all those below them."""
        on_path = {event.seq for event in self._of_type("subagent_started")}
        found = set[str]()
        for stored in self._events:  # one above another comes first
            if stored.type != "subagent_started" or not isinstance(event := decode(stored).event, SubagentStartedEvent):
                continue
            is_below = event.data["depth"] > 1
            if event.data["parent_agent_id"] in found if is_below else stored.seq in on_path:
                found.add(event.agent_id)
        return found

    def revisions(self, options: Sequence[Option] = ()) -> dict[str, int]:
        """Return the revision of each file that the path has last written or picked.

        The files of one of the `options` count once it is picked.
        """
        current: dict[str, int] = {}
        files = {option.number: option.artifacts.current for option in options}
        turns_of_options = {option.turn_id for option in options}
        found = [event for event in self._of_type("artifact") if event.turn_id not in turns_of_options]
        found += (event for event in self._events if event.seq in self.picked)
        for stored in sorted(found, key=lambda event: event.seq):
            if stored.seq in self.picked:
                current = dict(files.get(self.picked[stored.seq], current))
                continue
            event = decode(stored).event
            assert isinstance(event, ArtifactEvent)
            if event.data["final"] and "sha256" in event.data and "revision" in event.data:
                current[event.data["path"]] = event.data["revision"]
        return current
