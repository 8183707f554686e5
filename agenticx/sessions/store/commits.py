"""The commits that write a session, and what its owner loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agenticx.messages import Message, new_id
from agenticx.runtime.events import RuntimeEvent
from agenticx.sessions.store.records import Fact
from agenticx.sessions.store.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.tool_state import Parts

__all__ = [
    "Commit",
    "Loaded",
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

    A search finds the text of `messages` from then on, after compaction too; if `searchable_ids` is given, it finds
    only messages with these ids.
    """

    messages: Sequence[Message] = ()
    parts: Parts = field(default_factory=dict[str, str])
    keep_messages: int = 0
    searchable_ids: frozenset[str] | None = None
    compacted: Sequence[Message] = ()
    keep_compacted: int | None = None
    removed_parts: Sequence[str] = ()


@dataclass(slots=True, kw_only=True, eq=False)  # not frozen: that takes three times as long to make
class Commit:
    """A write of a session: one record, stored whole or not at all.

    `events` follow the last committed event; there may be none. `begins` is the turn that runs from now on, or is open
    below another one; a terminal event of the turn, which is the last one of its commit, ends it. No event of the
    turn can follow that. `record` replaces the session's record. `blobs` are the
    digests of the contents in `Blobs` that its messages need, all of which are stored and kept; those of changed files,
    which `Blobs` may drop, are in their facts only. The same `id` twice in a row, under one lease, is one commit.
    Without `sync` the events survive the death of the process, but not a power cut.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All that a session's actor starts from, at one position of the log.

    `running` is the turn without a terminal event, `children` are its child turns, and those of earlier ones,
    in the order in which they began. `open_facts` are the facts of all of these, and those that are work and that no
    fact has closed, in the order in which they were stored; `subagent_facts` are those about sub-agents. With
    `facts_damaged` a fact of those turns cannot be read, so it is unknown which of their calls began.
    """

    record: SessionRecord
    state: SessionState
    last_seq: int
    running: TurnRecord | None
    children: Sequence[TurnRecord] = ()
    open_facts: Sequence[Fact] = ()
    subagent_facts: Sequence[Fact] = ()
    facts_damaged: bool = False
