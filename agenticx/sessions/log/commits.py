"""The commits that write a session, and what its owner loads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agenticx.messages import Message, new_id
from agenticx.runtime.events import RuntimeEvent
from agenticx.sessions.log.records import Fact
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.tool_state import Parts

__all__ = [
    "Commit",
    "DamagedFact",
    "LoadedSession",
    "LogEnd",
    "SessionState",
    "StateChange",
]


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state that a session's next turn starts from: the model's messages, and the parts of its tool state.

    The original messages that summaries replaced are not in it, see `Log.compacted_messages`.
    """

    messages: Sequence[Message] = ()
    parts: Parts = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a session's state.

    The first `keep_messages` of the messages stay, `messages` follow them. The parts named `removed_parts` are left out
    from now on, `parts` are those that are new or changed; one with a name in both comes after all others.
    `compacted` are messages that summaries have replaced since, stored after the first `keep_compacted` of those that
    are stored already; with None nothing of these changes.

    A search finds the text of `messages` from then on, after compaction too, until their ids are in `removed_texts`.
    """

    messages: Sequence[Message] = ()
    parts: Parts = field(default_factory=dict[str, str])
    keep_messages: int = 0
    removed_texts: Collection[str] = ()
    compacted: Sequence[Message] = ()
    keep_compacted: int | None = None
    removed_parts: Sequence[str] = ()


@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: that takes three times as long to make
class Commit:
    """A write of a session, stored whole or not at all.

    `events` follow the last committed event; there may be none. `begins` is a turn that begins with them, the session's
    own or a child turn. A terminal event is the last one of its commit and ends the turn: no event of the turn can
    follow. `record` replaces the session's record. `blobs` are the digests of the contents in `Blobs` that the messages
    need, all of which are stored and kept; the contents of changed files, which `Blobs` may drop, are named in facts
    only. Two commits in a row with the same `id`, under one lease, are one commit. Without `sync` the events survive
    the death of the process, but not a power cut.
    """

    id: str = field(default_factory=lambda: new_id("cmt"))
    turn_id: str | None = None
    events: Sequence[RuntimeEvent] = ()
    begins: TurnRecord | None = None
    state: StateChange | None = None
    facts: Sequence[Fact] = ()
    record: SessionRecord | None = None
    blobs: Sequence[str] = ()
    sync: bool = True


class LogEnd(NamedTuple):
    """The last commit of a session's log, `rev` with its id, and the number of the last event up to it."""

    rev: int
    last_seq: int
    commit_id: str


class DamagedFact(NamedTuple):
    """A fact that cannot be read; its key or turn is "" if that is damaged too."""

    kind: str
    key: str
    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSession:
    """A session as a store loads it for a new owner, at one position of the log.

    - `main_turn` is the session's own turn that has not ended.
    - `child_turns` are the child turns that have not ended, in the order of their starts; a parent may have ended.
    - `open_facts` are the facts of these turns, and the work that no fact has closed, in the order of storage;
      `damaged_facts` are the unreadable ones.
    - `subagent_facts` are the facts about sub-agents.
    """

    record: SessionRecord
    state: SessionState
    last_seq: int
    main_turn: TurnRecord | None
    child_turns: Sequence[TurnRecord] = ()
    open_facts: Sequence[Fact] = ()
    subagent_facts: Sequence[Fact] = ()
    damaged_facts: Sequence[DamagedFact] = ()

    @property
    def facts_damaged(self) -> bool:
        """True if a fact of an open turn cannot be read, so it is unknown which of its calls began."""
        turns = {turn.id for turn in (self.main_turn, *self.child_turns) if turn is not None}
        return any(fact.turn_id in turns for fact in self.damaged_facts)
