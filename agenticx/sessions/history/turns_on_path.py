"""The turns of a conversation, without the parts that were rewound away."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from agenticx.runtime.events import (
    TRANSCRIPT_EVENTS,
    ArtifactEvent,
    EventType,
    SubagentStartedEvent,
    ToolResultEvent,
    TurnStartedEvent,
)
from agenticx.runtime.session import Option
from agenticx.sessions.history.transcript import Conversation, TranscriptEntry
from agenticx.sessions.log.events import SessionEvent, StoredEvent, TokenMerger, decode
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["LoggedSession", "TurnsOnPath", "read_events_on_path", "read_logged_session"]

_FOLDED_EVENTS = TRANSCRIPT_EVENTS | {EventType.ARTIFACT, EventType.SUBAGENT_STARTED}


class _Subagent(NamedTuple):
    agent_id: str
    parent_id: str | None
    is_nested: bool  # started by another sub-agent, not by the main agent


class _Revision(NamedTuple):
    path: str
    number: int


class LoggedSession:
    """A session as its events show it: its conversation, and the turns, calls, sub-agents and files that they name.

    It keeps the messages but no events. `last_seq` is the number of the last event so far.
    """

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.last_seq = 0
        self.starts: list[tuple[int, str]] = []
        """The number of the first event of each turn, and the turn's id."""
        self.results: list[tuple[int, str | None, str]] = []
        """The number and the turn of each result of a call, and the id of the call."""
        self.subagents: list[tuple[int, str | None, _Subagent]] = []
        """The number and the turn of each start of a sub-agent, parents first."""
        self.revisions: list[tuple[int, str | None, _Revision]] = []
        """The number and the turn of each change of a file that lives in the session."""

    def feed(self, events: Sequence[StoredEvent]) -> None:
        """Fold the next events of the session; raise `DamagedData`."""
        entries = [decode(event) for event in events if event.type in _FOLDED_EVENTS]
        self.conversation.feed_decoded(entries)
        for entry in entries:
            self._feed(entry)
        if events:
            self.last_seq = events[-1].seq

    def _feed(self, entry: SessionEvent) -> None:
        match entry.event:
            case TurnStartedEvent(turn_id=str(turn_id)):
                self.starts.append((entry.seq, turn_id))
            case ToolResultEvent(data=data):
                self.results.append((entry.seq, entry.turn_id, data["tool_call_id"]))
            case SubagentStartedEvent(data=data) as event:
                started = _Subagent(event.agent_id, data["parent_agent_id"], data["depth"] > 1)
                self.subagents.append((entry.seq, entry.turn_id, started))
            case ArtifactEvent(data=data) if data["final"] and "sha256" in data and "revision" in data:
                self.revisions.append((entry.seq, entry.turn_id, _Revision(data["path"], data["revision"])))
            case _:
                pass


async def read_logged_session(log: SessionLog, session_id: str) -> LoggedSession:
    """Return a session as its log shows it, read page by page; raises `DamagedData`."""
    logged = LoggedSession()
    async for page in read_log_pages(log, session_id):
        logged.feed(page)
    return logged


async def read_events_on_path(log: SessionLog, session_id: str, types: Collection[str]) -> list[SessionEvent]:
    """Return the events of these types of all turns of the conversation, and of their child turns, tokens merged.

    The turn to which the conversation was rewound ends with its last message that was kept. Of the events without a
    turn only the resets of teams are returned.
    """
    logged = await read_logged_session(log, session_id)
    path = logged.conversation.path()
    turns, resets = TurnsOnPath(logged, path), logged.conversation.resets_on(path)
    found = TokenMerger()
    async for page in read_log_pages(log, session_id, until=logged.last_seq):
        for event in page:
            if event.type in types and (turns.has(event) or event.seq in resets):
                found.add(decode(event))
    return found.events()


class TurnsOnPath:
    """The turns of a path of a conversation, each up to its last event on the path."""

    def __init__(self, logged: LoggedSession, path: Sequence[TranscriptEntry]) -> None:
        conversation = logged.conversation
        last_entries = {entry.turn_id: entry for entry in path}
        final_ids = {entry.turn_id: entry.id for entry in conversation.entries.values()}
        ends = {
            turn_id: sys.maxsize if final_ids[turn_id] == entry.id else entry.last_seq
            for turn_id, entry in last_entries.items()
        }
        tree = conversation.tree
        roots = {id_: next((one for one in tree.lineage(id_) if one in ends), None) for id_ in tree.turns}
        self._ends = {id_: ends[root] for id_, root in roots.items() if root is not None}  # also of those below others
        self.cuts = sorted((end, turn_id) for turn_id, end in ends.items() if turn_id and end != sys.maxsize)
        """The number of the last event of each turn that is only partly on the path, and the turn's id, in order."""
        self.picked = {entry.last_seq: entry.message["picked"] for entry in path if "picked" in entry.message}
        """The numbers of the options that the user picked on the path, by the numbers of the events of the picks."""
        self._logged = logged

    def has(self, event: StoredEvent) -> bool:
        """Return True if the event belongs to one of these turns or to a turn below one."""
        return self._has(event.seq, event.turn_id)

    def _has(self, seq: int, turn_id: str | None) -> bool:
        return turn_id is not None and seq <= self._ends.get(turn_id, 0)

    def turn_ids(self) -> list[str]:
        """Return the ids of these turns and of their child turns, in order."""
        return [turn_id for seq, turn_id in self._logged.starts if self._has(seq, turn_id)]

    def calls(self) -> set[str]:
        """Return the ids of the calls whose results are part of the path."""
        return {call_id for seq, turn_id, call_id in self._logged.results if self._has(seq, turn_id)}

    def subagents(self) -> set[str]:
        """Return the ids of the sub-agents that the main agent started on the path, and of their own sub-agents."""
        found = set[str]()
        for seq, turn_id, started in self._logged.subagents:
            if started.parent_id in found if started.is_nested else self._has(seq, turn_id):
                found.add(started.agent_id)
        return found

    def revisions(self, options: Sequence[Option] = ()) -> dict[str, int]:
        """Return the revision of each file that the path has last written or picked.

        The files of one of the `options` count once it is picked.
        """
        current: dict[str, int] = {}
        files = {option.number: option.artifacts.current for option in options}
        for change in self._changes({option.turn_id for option in options}):
            if isinstance(change, int):
                current = dict(files.get(change, current))
            else:
                current[change.path] = change.number
        return current

    def _changes(self, left_out: Collection[str | None]) -> Iterable[_Revision | int]:
        """Return the revisions of files and the numbers of picked options on the path, in order."""
        found: list[tuple[int, _Revision | int]] = [*self.picked.items()]
        for seq, turn_id, revision in self._logged.revisions:
            if turn_id not in left_out and self._has(seq, turn_id):
                found.append((seq, revision))
        return [change for _, change in sorted(found, key=lambda one: one[0])]
