"""The records that a session store keeps, and the commits and changes that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agenticx.llms.sampling import Sampling
from agenticx.messages import Message, new_id
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "ASKING_EVENTS",
    "CLOSED_KINDS",
    "FILE_KINDS",
    "OPEN_KINDS",
    "QUESTION_EVENTS",
    "REPLACED_KINDS",
    "SUBAGENT_KINDS",
    "SYNCED_EVENTS",
    "Commit",
    "Fact",
    "FactKind",
    "Loaded",
    "SessionRecord",
    "SessionState",
    "StateChange",
    "TurnRecord",
    "is_synced",
]

SYNCED_EVENTS = frozenset(EventType) - {
    EventType.ROUND_START,
    EventType.STATE,
    EventType.TOKEN,
    EventType.THINKING,
    EventType.TOOL_CALL_DELTA,
    EventType.TOOL_PROGRESS,
    EventType.USAGE,
    EventType.STALL,
    EventType.ARTIFACT,
}
"""The events that are synced before their commit returns, so that they survive what the log's `durability` says: among
them all that report a message, a call, a question, an answer or an ending. The others, such as tokens, survive the
death of the process. The last `artifact` event of a revision is synced too, see `is_synced`."""

ASKING_EVENTS = frozenset({EventType.CONFIRM_REQUIRED, EventType.QUESTION_ASKED})
"""The events that ask the user."""

QUESTION_EVENTS = ASKING_EVENTS | {EventType.CONFIRM_RESPONSE, EventType.QUESTION_ANSWERED}
"""The events that ask the user, and those with the answers; each has the `id` of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The properties of a session apart from its events.

    `tools` None means all, and so does `vaults`, ids of vaults of notes; `model` None means the default one;
    `system_prompt` None means that of the hub; `team` is the name of the configured team that its turns run, None for
    an agent; `forked_from` is the id of the session it was made from. `workspace_host` is the host that has the
    workspace, see `hosts.is_this_host`. `agent` is the name of the agent that answers the next message, None the main
    one. `agent_file` is the name of the agent of a file with which the session was made, whose prompt, model and tools
    were copied then: it is the name of the main agent.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    name: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    workspace: str
    workspace_host: str | None = None
    tools: tuple[str, ...] | None = None
    vaults: tuple[str, ...] | None = None
    system_prompt: str | None = None
    agent: str | None = None
    agent_file: str | None = None
    team: str | None = None
    pinned: bool = False
    archived: bool = False
    forked_from: str | None = None
    created_at: str

    @property
    def agent_name(self) -> str | None:
        """The name of the agent that answers the next message; None for a main agent without one."""
        return self.agent or self.agent_file


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn.

    `after_seq` is the sequence number just before its first event, None until that is stored. `attachments_digest` is
    the fingerprint of the attachments of the input, "" for none. `model` and `permission_mode` take the place of the
    session's, and `sampling` takes precedence over the model's. `mode` is the one that the user has chosen, None for
    that of the words, and `vaults` are those of this turn, None for the session's. `variants` are the options that it
    was to make, a number or the names of their models. `parent_turn_id` is that of the turn above, None for a turn that
    a message of the user began.
    """

    id: str = field(default_factory=lambda: new_id("turn"))
    session_id: str
    input: str
    attachments_digest: str = ""
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
    mode: str | None = None
    vaults: tuple[str, ...] | None = None
    variants: int | tuple[str, ...] | None = None
    after_seq: int | None = None
    parent_turn_id: str | None = None


def is_synced(event: RuntimeEvent) -> bool:
    """Return whether an event is synced: one of `SYNCED_EVENTS`, or the last one of a file's revision."""
    return event.type in SYNCED_EVENTS or (event.type is EventType.ARTIFACT and event.data.get("final") is True)


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state that a session's next turn starts from: the model's messages, and tool state with permissions as JSON.

    The original messages that summaries replaced are not in it, see `Log.compacted_messages`.
    """

    messages: Sequence[Message] = ()
    state_json: str | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a session's state.

    The first `keep_messages` of the messages stay, `messages` follow them; `state_json` None leaves that unchanged.
    `compacted` are messages that summaries have replaced since, stored after the first `keep_compacted` of those that
    are stored already; with None nothing of these changes.

    A search finds the text of `messages` from then on, after compaction too; if `searchable_ids` is given, it finds
    only messages with these ids.
    """

    messages: Sequence[Message] = ()
    state_json: str | None = None
    keep_messages: int = 0
    searchable_ids: frozenset[str] | None = None
    compacted: Sequence[Message] = ()
    keep_compacted: int | None = None


FactKind = Literal[
    "call_began",
    "process_started",
    "question_asked",
    "question_answered",
    "question_closed",
    "message_posted",
    "message_taken",
    "name_derived",
    "name_announced",
    "file_edited",
    "file_rewound",
    "rewind_began",
    "rewind_ended",
    "turn_waiting",
    "subagent_started",
    "subagent_ended",
    "subagent_delivered",
    "subagent_unannounced",
    "subagent_announced",
    "subagent_messaged",
    "subagent_message_taken",
]
FILE_KINDS: tuple[FactKind, ...] = ("file_edited", "file_rewound")
"""The kinds of the facts about files, which are kept as long as their session."""

CLOSED_KINDS: Mapping[FactKind, FactKind] = {
    "message_taken": "message_posted",
    "name_announced": "name_derived",
    "rewind_ended": "rewind_began",
    "subagent_announced": "subagent_unannounced",
    "subagent_delivered": "subagent_ended",
    "subagent_message_taken": "subagent_messaged",
}
"""By kind, the kind that it closes: storing a fact removes the one of the closed kind with the same key."""

REPLACED_KINDS: frozenset[FactKind] = frozenset({"turn_waiting", "subagent_delivered"})
"""The kinds of which the last fact with a key is kept, instead of the first one."""

SUBAGENT_KINDS: tuple[FactKind, ...] = (
    "subagent_started",
    "subagent_ended",
    "subagent_delivered",
    "subagent_messaged",
)
"""The kinds of the facts about sub-agents, which are kept as long as their session unless they are closed."""

OPEN_KINDS: tuple[FactKind, ...] = tuple(sorted(set(CLOSED_KINDS.values()) - set(SUBAGENT_KINDS)))
"""The kinds of the facts that are work for the next owner of their session, as long as they are not closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A durable fact beside the log; there is at most one for its `kind` and `key`.

    The first one is kept, or of `REPLACED_KINDS` the last one.

    Facts say what the log cannot: that a call is about to run, before it runs, and the answer to a question, before its
    turn continues.

    `call_began`: a call is about to run, {call_id, name, arguments}. `process_started`: a call started one, {call_id,
    host, pid, started, mark}; models repeat their call ids, so the keys of these two contain the turn as well.
    `question_asked`: the confirmation `key` was requested, {digest, …}, or the question `key` of the agent was asked,
    {text, …}. `question_answered`: the user's answer to it, {approved, …} or {answer, by}. `question_closed`: its final
    decision, the same with {by}. `message_posted`: the user's message `key` was accepted and is queued, {message, …}.
    `message_taken`: the outcome of that message, {state, after_seq, …}. `name_derived`: the turn `key` gave its session
    the name {name}. `name_announced`: the event that reports this name is in the log. `turn_waiting`: the turn `key`,
    below another one, has asked the user, and goes on after a restart with this conversation, {messages, state,
    agent_path, outlives_parent}; {} once it has ended.

    `file_edited`: a call is about to change a file, {call_id, path, before, after, host, checksum}. `file_rewound`: a
    rewind is about to, {path, undone, redone, mode, host, checksum}. `rewind_began`: files are about to be restored
    for a rewind to message {message_id}, where the log ends at {after_seq}. `rewind_ended`: the conversation is rewound
    too, or the session went on without it.

    `subagent_started`: the run `key` of a sub-agent, which is the turn of that id once it has begun, is about to,
    {agent_id, task, …}. `subagent_ended`: it has ended, {state, text, …}. `subagent_delivered`: the conversation of the
    agent above got this ending, {state, text, …}, and has it in the message {message_id} of the turn {told_in}, or of
    {told_to} below that; all are "" after a rewind that removed it, and {is_due} says if it is to be told again.
    `subagent_unannounced`: the event of this ending, {state, text, …}, is not in the log yet. `subagent_announced`: it
    is. `subagent_messaged`: the message `key` for a sub-agent was accepted, {agent_id, text}.
    `subagent_message_taken`: its conversation has it, or began anew. These and the facts about files and rewinds belong
    to no turn (`turn_id` is "").
    """

    kind: FactKind
    key: str
    turn_id: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


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

    `running` is the turn without a terminal event, `children` are those of the turns below it, or below an earlier one,
    in the order in which they began. `open_facts` are the facts of all of these, and those of `OPEN_KINDS` that no fact
    has closed, in the order in which they were stored; `subagent_facts` are those of `SUBAGENT_KINDS`. With
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
