"""What is remembered of sessions: the records, the stored event, and the protocol every store keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from agenticx.errors import StoreError
from agenticx.messages import Message, new_id
from agenticx.runtime.events import EventType, RuntimeEvent, encode_envelope
from agenticx.sessions.search import Excerpt, Said
from agenticx.sessions.usage import Spent
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "CLOSED_BY",
    "DURABLE",
    "Archived",
    "Found",
    "JournalKind",
    "Journalled",
    "Keepsake",
    "SequenceConflict",
    "SessionRecord",
    "Store",
    "StoredEvent",
    "TurnRecord",
    "encode_events",
]

DURABLE = frozenset(EventType) - {
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
"""What survives even a power cut once `append` returned; the other events survive the death of the process."""


class SequenceConflict(StoreError):
    """Somebody else appended to the session first; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """What a session is apart from its events.

    `tools` None means all; `model` None means the default one; `forked_from` is the id of the session it was made of.
    """

    id: str = field(default_factory=lambda: new_id("ses"))
    name: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    workspace: str
    tools: tuple[str, ...] | None = None
    pinned: bool = False
    archived: bool = False
    forked_from: str | None = None
    created_at: str


Archived = Literal["without", "only", "with"]
"""Which sessions a list holds: those that are not put away (what a person sees first), those that are, or both."""


@dataclass(frozen=True, slots=True)
class Found:
    """A session that a search found, with the first places where."""

    record: SessionRecord
    matches: Sequence[Excerpt]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One claimed turn. `after_seq` is the sequence number just before its first event, None until that is stored.

    `attached` is the fingerprint of what came with the input, "" for nothing.
    """

    id: str = field(default_factory=lambda: new_id("turn"))
    session_id: str
    input: str
    attached: str = ""
    client_turn_id: str | None = None
    after_seq: int | None = None


class StoredEvent(NamedTuple):
    """One event as it lies in the log.

    `seq` counts within the session from 1 without gaps, `position` rises over the whole log (gaps allowed).
    `frame_json` is the encoded envelope: encoded once, the same bytes for every reader and every replay. `type` is a
    plain string for an event that a newer release stored.
    """

    session_id: str
    turn_id: str | None
    seq: int
    position: int
    type: EventType | str
    terminal: bool
    frame_json: bytes


@dataclass(frozen=True, slots=True)
class Keepsake:
    """What a session's next turn builds on: the conversation as the model reads it, and what tools and person left.

    As a change: the first `keep` of the messages stay, `messages` follow them; `state` is JSON, None for unchanged.
    `compacted` are messages for which others stand now, behind the first `compacted_keep` of those that are stored
    already; with None nothing of these changes. As what is read back: all of the messages, `keep` being 0, without
    `compacted`, which only `Store.compacted` reads.

    What was said in `messages` can be found by a search from then on, after compaction too; where `findable` is given,
    nothing but those messages (by their ids) can.
    """

    messages: Sequence[Message] = ()
    state: str | None = None
    keep: int = 0
    findable: frozenset[str] | None = None
    compacted: Sequence[Message] = ()
    compacted_keep: int | None = None


JournalKind = Literal["began", "process", "asked", "answered", "closed", "posted", "taken", "named", "told"]

CLOSED_BY: Mapping[JournalKind, JournalKind] = {"taken": "posted", "told": "named"}
"""Facts that end others: once one of the first kind stands, that of the second kind and the same key is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journalled:
    """A durable fact beside the log, of which there can only be one for its `kind` and `key`.

    `began`: a call is about to run, {call_id, name, arguments}. `process`: a call started one, {call_id, pid,
    started, mark}; models repeat their call ids, so the keys of these two name the turn as well. `asked`: the question
    `key` was put, {digest, …}. `answered`: the person's answer to it, {approved, …}. `closed`: what came of it, the
    same with {by}. `posted`: the person's message `key` was accepted and waits, {message, …}. `taken`: what came of it,
    {state, after_seq, …}. `named`: the turn `key` gave its session the name {name}. `told`: the log has told of it.
    """

    kind: JournalKind
    key: str
    session_id: str
    turn_id: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Store(Protocol):
    """Where sessions and their events are kept.

    What `append` returned is durable and visible to readers; what it did not return is neither. All methods that
    name a session raise `SessionNotFound` when there is none, and `StoreError` when the storage fails.
    """

    @property
    def outlives_the_process(self) -> bool:
        """Whether what is stored will be there after a restart."""
        ...

    @property
    def log_id(self) -> str:
        """Names this log, for as long as it exists: positions of another log mean nothing here."""
        ...

    async def create(
        self,
        record: SessionRecord,
        *,
        past: Sequence[StoredEvent] = (),
        said: Sequence[Said] = (),
        kept: Keepsake | None = None,
    ) -> None:
        """Begin a session, with the `past` of another one in its log where it has one (the store numbers positions).

        What past events spent was spent there and does not count here. A search finds what was `said` in them.
        """
        ...

    async def get(self, session_id: str) -> SessionRecord: ...

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[SessionRecord]:
        """Pinned ones first, then newest first.

        `before` is the id of the last one already known (an unknown id matches nothing).
        """
        ...

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: Archived = "without"
    ) -> Sequence[Found]:
        """The sessions whose name has all terms of `query`, or one of whose messages has, in the same order.

        `search.Terms` says what a term is and when a text has it.
        """
        ...

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[Spent]:
        """What model calls used, summed by session, day and model, oldest first.

        `since` and `until` are the first and last day that count, as `YYYY-MM-DD`; days are those of UTC.
        """
        ...

    async def update(self, record: SessionRecord) -> None: ...

    async def delete(self, session_id: str) -> None:
        """Forget the session with all that is kept of it; its readers are woken. No byte of it is left in a file."""
        ...

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        """Make `turn` the running turn of its session, atomically.

        Returns `turn`; or, if its `client_turn_id` was claimed before, that earlier turn, running or over.
        Raises `SessionBusy` while another turn runs. Either exception leaves no trace.
        """
        ...

    async def release(self, turn: TurnRecord) -> None:
        """Free the session of a turn that ended without a stored terminal event; forget it if it stored nothing."""
        ...

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None: ...

    async def unfinished(self) -> Sequence[TurnRecord]:
        """The turns that run, or ran when the process before this one died, oldest first."""
        ...

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        kept: Keepsake | None = None,
        journal: Sequence[Journalled] = (),
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        """Add `events` right behind `expected_seq`, all or none; `SequenceConflict` if that is not the last.

        A terminal event of the running turn frees the session in the same step; `kept` and `journal` are stored in it
        too, and `record` takes the place of the session's.
        """
        ...

    async def journal(self, entry: Journalled) -> Journalled:
        """Store a fact durably and return the one that stands: an earlier one of the same kind and key wins.

        Here as in `append` it ends another one as `CLOSED_BY` says.
        """
        ...

    async def journalled(self, kind: JournalKind, key: str) -> Journalled | None:
        """The fact of that kind and key, in whatever session."""
        ...

    async def journal_of(self, session_id: str, turn_id: str) -> Sequence[Journalled]:
        """All facts of a turn, in the order they were stored."""
        ...

    async def journal_open(self, kind: JournalKind, closing: JournalKind) -> Sequence[Journalled]:
        """The facts of `kind` for whose key none of the kind `closing` stands, in the order they were stored."""
        ...

    async def keepsake(self, session_id: str) -> Keepsake:
        """What the session's next turn builds on."""
        ...

    async def compacted(self, session_id: str) -> Sequence[Message]:
        """Return the original messages, in order, for which the first ones of the conversation stand."""
        ...

    async def last_seq(self, session_id: str) -> int: ...
    async def last_position(self) -> int: ...

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Up to `limit` events of the session with a higher `seq` than `after`, in order.

        Fewer where they are large, but never none while there are any.
        """
        ...

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        """Up to `limit` events of all sessions with a higher `position` than `after`, in order; fewer as in `read`."""
        ...

    def subscribe(self, session_id: str | None, news: asyncio.Event) -> AbstractContextManager[None]:
        """While the block lasts, set `news` after each append to the session (None: to any). Subscribe, then read."""
        ...

    async def check(self) -> None:
        """Raise `StoreError` if the last write failed and one that is tried now does too."""
        ...

    async def aclose(self) -> None:
        """Give back what the store holds; nothing is called afterwards."""
        ...


def encode_events(
    session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, seq: int, position: int, ts: str
) -> list[StoredEvent]:
    """`events` as stored right behind `seq` and `position`; a store that leaves gaps in positions numbers its own."""
    return [
        StoredEvent(
            session_id,
            turn_id,
            seq + offset,
            position + offset,
            event.type,
            event.terminal,
            encode_envelope(event, session_id=session_id, turn_id=turn_id, seq=seq + offset, ts=ts),
        )
        for offset, event in enumerate(events, 1)
    ]
