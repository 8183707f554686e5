"""The records, the stored event and the protocol of every session store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from agenticx.errors import StoreError
from agenticx.messages import Message, new_id
from agenticx.runtime.events import EventType, RuntimeEvent, encode_envelope
from agenticx.sessions.store.search import SearchableText, SearchExcerpt
from agenticx.sessions.store.usage import DailyUsage
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "CLOSED_KINDS",
    "SYNCED_EVENTS",
    "ArchivedFilter",
    "JournalEntry",
    "JournalKind",
    "SearchResult",
    "SequenceConflict",
    "SessionRecord",
    "SessionState",
    "Store",
    "StoredEvent",
    "TurnRecord",
    "encode_events",
    "read_log_pages",
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
"""The events that are synced to the disk before `append` returns, so that they survive a power cut: among them all that
report a message, a call, a question, an answer or an ending. The others, such as tokens, survive the death of the
process."""


class SequenceConflict(StoreError):
    """An append whose `expected_seq` is not the last one: another writer appended first; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The properties of a session apart from its events.

    `tools` None means all; `model` None means the default one; `forked_from` is the id of the session it was made from.
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


ArchivedFilter = Literal["without", "only", "with"]
"""The sessions that a list contains: those that are not archived (the default view), those that are, or both."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A session that a search found, with its first matches."""

    record: SessionRecord
    matches: Sequence[SearchExcerpt]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A claimed turn.

    `after_seq` is the sequence number just before its first event, None until that is stored. `attachments_digest` is
    the fingerprint of the attachments of the input, "" for none.
    """

    id: str = field(default_factory=lambda: new_id("turn"))
    session_id: str
    input: str
    attachments_digest: str = ""
    client_turn_id: str | None = None
    after_seq: int | None = None


class StoredEvent(NamedTuple):
    """An event as it is stored in the log.

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
class SessionState:
    """The state that a session's next turn starts from: the model's messages, and tool state with permissions.

    As a change: the first `keep_messages` of the messages stay, `messages` follow them; `state_json` is JSON, None for
    unchanged. `compacted` are messages that summaries have replaced since, stored after the first `keep_compacted` of
    those that are stored already; with None nothing of these changes. As a value read back: all of the messages,
    `keep_messages` being 0, without `compacted`, which only `Store.compacted_messages` reads.

    A search finds the text of `messages` from then on, after compaction too; if `searchable_ids` is given, it finds
    only messages with these ids.
    """

    messages: Sequence[Message] = ()
    state_json: str | None = None
    keep_messages: int = 0
    searchable_ids: frozenset[str] | None = None
    compacted: Sequence[Message] = ()
    keep_compacted: int | None = None


JournalKind = Literal["began", "process", "asked", "answered", "closed", "posted", "taken", "named", "told"]
CLOSED_KINDS: Mapping[JournalKind, JournalKind] = {"taken": "posted", "told": "named"}
"""By kind, the kind that it closes: storing an entry removes the one of the closed kind with the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A durable entry beside the log; there is at most one for its `kind` and `key`.

    The journal holds what the log cannot: that a call is about to run, before it runs, and the answer to a question,
    before its turn continues. The first entry of a kind and key is kept, so answers from two clients become one.

    `began`: a call is about to run, {call_id, name, arguments}. `process`: a call started one, {call_id, pid, started,
    mark}; models repeat their call ids, so the keys of these two contain the turn as well. `asked`: the question `key`
    was asked, {digest, …}. `answered`: the user's answer to it, {approved, …}. `closed`: its final decision, the same
    with {by}. `posted`: the user's message `key` was accepted and is queued, {message, …}. `taken`: the outcome of that
    message, {state, after_seq, …}. `named`: the turn `key` gave its session the name {name}. `told`: the event that
    reports this name is in the log.
    """

    kind: JournalKind
    key: str
    session_id: str
    turn_id: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Store(Protocol):
    """The storage of sessions and their events.

    Events that `append` returned are committed and visible to readers: they survive the end of the process, and those
    of `SYNCED_EVENTS` a power cut too. Events that it did not return are neither committed nor visible. All methods
    that name a session raise `SessionNotFound` when there is none, and `StoreError` when the storage fails.
    """

    @property
    def is_persistent(self) -> bool:
        """True if stored data survives a restart of the process."""
        ...

    @property
    def log_id(self) -> str:
        """The identifier of this log, constant for its lifetime: positions of another log mean nothing here."""
        ...

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: Sequence[StoredEvent] = (),
        texts: Sequence[SearchableText] = (),
        state: SessionState | None = None,
    ) -> None:
        """Create a session; `initial_events` are put at the start of its log.

        Those are copied from another session; the store numbers their positions. The usage that they report was counted
        in that session and does not count here. A search finds `texts`, which belong to them.
        """
        ...

    async def get(self, session_id: str) -> SessionRecord: ...

    async def sessions(
        self, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SessionRecord]:
        """Return sessions: pinned ones first, then newest first.

        `before` is the id of the last session of the previous page (an unknown id matches nothing).
        """
        ...

    async def search(
        self, query: str, *, limit: int = 50, before: str | None = None, archived: ArchivedFilter = "without"
    ) -> Sequence[SearchResult]:
        """Return the sessions whose name or one of whose messages has all terms of `query`, in the order of `sessions`.

        `search.SearchQuery` defines what a term is and when a text has it.
        """
        ...

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        """Return the usage of model calls, summed by session, day and model, oldest first.

        `since` and `until` are the first and last day that count, as `YYYY-MM-DD`; days are those of UTC.
        """
        ...

    async def update(self, record: SessionRecord) -> None: ...

    async def delete(self, session_id: str) -> None:
        """Delete the session with everything stored of it, and notify its readers; no byte of it is left in a file."""
        ...

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        """Make `turn` the running turn of its session, atomically.

        Returns `turn`; or, if its `client_turn_id` was claimed before, that earlier turn, running or ended. Raises
        `SessionBusy` while another turn runs. Nothing is stored if either exception is raised.
        """
        ...

    async def release(self, turn: TurnRecord) -> None:
        """Free the session of a turn that ended without a stored terminal event; delete a turn without events."""
        ...

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None: ...

    async def unfinished_turns(self) -> Sequence[TurnRecord]:
        """Return the turns that are running, or ran when the previous process died, oldest first."""
        ...

    async def append(
        self,
        session_id: str,
        turn_id: str | None,
        events: Sequence[RuntimeEvent],
        *,
        expected_seq: int,
        state: SessionState | None = None,
        journal: Sequence[JournalEntry] = (),
        record: SessionRecord | None = None,
    ) -> Sequence[StoredEvent]:
        """Add `events` right after `expected_seq`, all or none; raise `SequenceConflict` if that is not the last one.

        A terminal event of the running turn frees the session in the same transaction; `state` and `journal` are stored
        in it too, and `record` replaces the session's record.
        """
        ...

    async def add_journal_entry(self, entry: JournalEntry) -> JournalEntry:
        """Store an entry durably and return the stored one: an earlier one of the same kind and key is kept instead.

        Here as in `append` it removes the entry that it closes, see `CLOSED_KINDS`.
        """
        ...

    async def journal_entry(self, kind: JournalKind, key: str) -> JournalEntry | None:
        """Return the entry of that kind and key, of any session, else None."""
        ...

    async def turn_journal(self, session_id: str, turn_id: str) -> Sequence[JournalEntry]:
        """Return all entries of a turn, in the order they were stored."""
        ...

    async def open_journal_entries(self, kind: JournalKind, closing: JournalKind) -> Sequence[JournalEntry]:
        """Return the entries of `kind` without an entry of kind `closing` for the same key, in the order of storage."""
        ...

    async def session_state(self, session_id: str) -> SessionState:
        """Return the state that the session's next turn starts from."""
        ...

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        """Return the original messages, in order, that the summaries at the start of the conversation replace."""
        ...

    async def last_seq(self, session_id: str) -> int: ...
    async def last_position(self) -> int: ...

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events of the session with a higher `seq` than `after`, in order.

        Fewer if they are large, but at least one if there is any.
        """
        ...

    async def read_all(self, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events of all sessions with a higher `position` than `after`, in order.

        Fewer as in `read`.
        """
        ...

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        """Set `wakeup` after each append to the session (None: to any) while the block lasts.

        Subscribe first, then read: an append in between then sets `wakeup`.
        """
        ...

    async def check(self) -> None:
        """Raise `StoreError` if the last write failed and one that is tried now does too."""
        ...

    async def aclose(self) -> None:
        """Release the resources of the store; no method is called afterwards."""
        ...


def encode_events(
    session_id: str, turn_id: str | None, events: Sequence[RuntimeEvent], *, seq: int, position: int, ts: str
) -> list[StoredEvent]:
    """Return `events` as stored right after `seq` and `position`; a store with gaps between positions sets its own."""
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


_PAGE_EVENTS = 256  # about two milliseconds of work


async def read_log_pages(store: Store, session_id: str, after: int = 0) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the events after `after` page by page, up to the end of the log at the time it is reached."""
    while events := await store.read(session_id, after, _PAGE_EVENTS):
        yield events
        after = events[-1].seq
        await asyncio.sleep(0)
