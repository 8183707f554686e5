"""The events of the turns that a conversation consists of, without those that were rewound away."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agenticx.runtime.events import ArtifactEvent, SubagentStartedEvent, ToolResultEvent
from agenticx.runtime.session import Option
from agenticx.sessions.history.transcript import Conversation, TranscriptEntry
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.entries import StoredEvent, decode
from agenticx.sessions.turn_tree import TurnTree

__all__ = ["calls_on_path", "read_events_on_path", "revisions_on_path", "subagents_on_path", "turns_on_path"]


async def read_events_on_path(log: Log, session_id: str, types: Collection[str]) -> list[StoredEvent]:
    """Return the events of these types of all turns of the conversation, and of the turns below them, in order.

    Of the turn to which the conversation was rewound, they are those up to its last message that was kept. Of the
    session's own events they are those that reset a team.
    """
    events, conversation = list[StoredEvent](), Conversation()
    async for page in read_log_pages(log, session_id):
        events += (event for event in page if event.type in types or event.type == "turn_started")
        conversation.feed(page)
    path = conversation.path()
    resets = conversation.resets_on(path)
    found = [event for turn in turns_on_path(events, conversation, path) for event in turn]
    found += (event for event in events if event.seq in resets)
    return sorted((event for event in found if event.type in types), key=lambda event: event.seq)


def turns_on_path(
    events: Sequence[StoredEvent], conversation: Conversation, path: Sequence[TranscriptEntry]
) -> list[list[StoredEvent]]:
    """Return the events of each turn that is part of the path, up to the last one of them that is on the path."""
    last_entries = {entry.turn_id: entry for entry in path}
    final_ids = {entry.turn_id: entry.id for entry in conversation.entries.values()}
    turns: dict[str | None, list[StoredEvent]] = {turn_id: [] for turn_id in last_entries}
    tree = TurnTree.of(decode(event).event for event in events if event.type == "turn_started")
    roots = {id_: next((one for one in tree.lineage(id_) if one in turns), None) for id_ in tree.turns}
    for event in events:
        root = roots.get(event.turn_id or "")
        if root is not None and (final_ids[root] == last_entries[root].id or event.seq <= last_entries[root].last_seq):
            turns[root].append(event)
    return list(turns.values())


def calls_on_path(
    events: Sequence[StoredEvent], conversation: Conversation, path: Sequence[TranscriptEntry]
) -> set[str]:
    """Return the ids of the calls whose results are part of the path, with those of the turns below its turns.

    Raises `DamagedData`.
    """
    turns = turns_on_path(events, conversation, path)
    results = (event for turn in turns for event in turn if event.type == "tool_result")
    decoded = (decode(event).event for event in results)
    return {event.data["tool_call_id"] for event in decoded if isinstance(event, ToolResultEvent)}


def subagents_on_path(
    events: Sequence[StoredEvent], conversation: Conversation, path: Sequence[TranscriptEntry]
) -> set[str]:
    """Return the ids of the sub-agents that the main agent started on the path, and of all those below them.

    Raises `DamagedData`.
    """
    starts = [event for event in events if event.type == "subagent_started"]
    if not starts:
        return set()
    on_path = {event.seq for turn in turns_on_path(events, conversation, path) for event in turn}
    found = set[str]()
    for stored in starts:  # one above another comes first
        event = decode(stored).event
        assert isinstance(event, SubagentStartedEvent)
        is_below = event.data["depth"] > 1
        if event.data["parent_agent_id"] in found if is_below else stored.seq in on_path:
            found.add(event.agent_id)
    return found


def revisions_on_path(
    events: Sequence[StoredEvent],
    conversation: Conversation,
    path: Sequence[TranscriptEntry],
    options: Sequence[Option] = (),
) -> dict[str, int]:
    """Return the revision of each file that a path of the conversation has last written or picked.

    The files of one of the `options` count once it is picked. Raises `DamagedData`.
    """
    if all(event.type != "artifact" for event in events):
        return {}
    current: dict[str, int] = {}
    picked = {entry.last_seq: entry.message["picked"] for entry in path if "picked" in entry.message}
    files = {option.number: option.artifacts.current for option in options}
    turns_of_options = {option.turn_id for option in options}
    found = [event for turn in turns_on_path(events, conversation, path) for event in turn if event.type == "artifact"]
    found = [event for event in found if event.turn_id not in turns_of_options]
    found += (event for event in events if event.seq in picked)
    for stored in sorted(found, key=lambda event: event.seq):
        if stored.seq in picked:
            current = dict(files.get(picked[stored.seq], current))
            continue
        event = decode(stored).event
        assert isinstance(event, ArtifactEvent)
        if event.data["final"] and "sha256" in event.data and "revision" in event.data:
            current[event.data["path"]] = event.data["revision"]
    return current
