"""The protocols of a session store.

A store has four parts. `Ownership` gives one owner at a time the right to write a session, as a `Lease`; a session's
only write is `Lease.commit`. `Log` has the committed events, for any reader. `Catalog` answers queries about many
sessions and may lag behind the log. `Blobs` has contents that are too large for a commit. A `StoreReader` can read a
store while another process owns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

from agenticx.errors import StoreError
from agenticx.messages import Message
from agenticx.runtime.events import HandedBackEvent, QueuedEvent
from agenticx.sessions.log.commits import Commit, LoadedSession, SessionState, StateChange
from agenticx.sessions.log.events import Position, StoredEvent, decode
from agenticx.sessions.log.records import Fact, FactT
from agenticx.sessions.log.searchable_texts import SearchableText
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.blobs import Blobs, ShardBlobs
from agenticx.sessions.store.search import SearchExcerpt
from agenticx.sessions.store.workers import WorkersReport
from agenticx.shared_state.state import SharedState

__all__ = [
    "ArchivedFilter",
    "Catalog",
    "CommandHandler",
    "Durability",
    "Lease",
    "ListPlace",
    "ListedSession",
    "Log",
    "NoOwner",
    "OutcomeUnknown",
    "Ownership",
    "OwnershipLost",
    "SessionLog",
    "SessionOwnedElsewhere",
    "Shard",
    "ShardCatalog",
    "Store",
    "StoreReader",
    "TurnEnded",
    "check_turn",
    "ended_turn_id",
    "find_fact",
    "read_event",
    "read_log_pages",
    "related_turn_id",
]

Durability = Literal["process", "disk", "replicas", "memory"]
"""What a returned synced commit survives: the death of the process, a power cut, the loss of a server, or nothing."""


ArchivedFilter = Literal["without", "only", "with"]
"""The sessions in a list: without archived ones (the default view), only archived ones, or both."""


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A place in the list of sessions, by the order of the list: pinned or not, then the time of creation.

    With `follows_equal` it comes after the sessions that were created at exactly that time, else before them.
    """

    pinned: bool
    created_at: str
    follows_equal: bool

    def precedes(self, record: SessionRecord) -> bool:
        """Return whether the session comes after this place."""
        own, other = (self.pinned, self.created_at), (record.pinned, record.created_at)
        return other < own or (other == own and not self.follows_equal)


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session in a list, with its running turn, and with its first matches in the list of a search."""

    record: SessionRecord
    running_turn_id: str | None = None
    matches: Sequence[SearchExcerpt] = ()

    @property
    def id(self) -> str:
        return self.record.id


class OutcomeUnknown(StoreError):
    """A commit of unknown outcome: it is stored or not; the same one is made again until that is known."""


class OwnershipLost(StoreError):
    """A write under a lease that another owner has taken over, or that is released; final for the lease."""


class SessionOwnedElsewhere(StoreError):
    """A claim of a session that another owner holds; `owner` names it."""

    def __init__(self, message: str, *, owner: str) -> None:
        super().__init__(message)
        self.owner = owner


class TurnEnded(StoreError):
    """A commit with an event behind the terminal one of its turn; nothing of it is stored."""


class NoOwner(StoreError):
    """Raised for a command to the owner of a session if the session has no owner or its owner does not answer."""


class Lease(Protocol):
    """The right to write one session, until it is released or another owner takes it over.

    One commit is made at a time.
    """

    @property
    def session_id(self) -> str: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lease is known to be lost, which may be late; safety never depends on it."""
        ...

    async def check(self) -> None:
        """Raise `OwnershipLost` if another worker owns the session: what memory says of it may be old then."""
        ...

    async def load(self) -> LoadedSession:
        """Return the session as it is stored, and let the next commit follow its last event.

        Raises `DamagedData` for a session that cannot be read, `SessionNotFound`, `OwnershipLost`.
        """
        ...

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        """Store `commit`, unless it is stored already, and return its events.

        Raises `OutcomeUnknown` if the commit may be stored or not. Until the outcome is known, only the same commit can
        be made again; an `OwnershipLost` of that attempt leaves the outcome open. Otherwise `OwnershipLost`,
        `SessionNotFound`, `TurnEnded` and any other `StoreError` mean that nothing was stored.
        """
        ...

    async def release(self, *, work_left: bool = False) -> None:
        """Give the session up; with `work_left` it is one of `Ownership.orphans` again."""
        ...


CommandHandler = Callable[[str, bytes], Awaitable[bytes]]
"""A function that carries out a command for a session that its process owns: session id and command → result."""


class Ownership(Protocol):
    """The ownership of sessions: each has at most one owner that can write it."""

    async def claim(self, session_id: str) -> Lease:
        """Become the session's owner; raises `SessionOwnedElsewhere`, `SessionNotFound`."""
        ...

    async def call(self, session_id: str, command: bytes) -> bytes:
        """Send a command to the session's owner and return its result; raises `NoOwner`."""
        ...

    def serve(self, handler: CommandHandler) -> AbstractAsyncContextManager[None]:
        """Answer the commands of others for sessions owned here while the block runs."""
        ...

    def orphans(self, *, follow: bool = False) -> AsyncGenerator[str]:
        """Yield the ids of sessions with work left and no owner: an open turn or fact; oldest running turn first.

        With `follow`, yield the sessions that other workers leave: first the present ones, then each new one. It ends
        where no other worker can leave one: a store with one worker yields none. An id is repeated until the session is
        claimed.
        """
        ...


class SessionLog(Protocol):
    """The committed events of each session and what they lead to, for any reader, without the owner.

    `read` and `subscribe` may use a copy that lags behind the commits of other workers, but not behind this one's;
    `read_log_pages` waits for it. All other methods answer from what is stored at their call.
    """

    async def head(self, session_id: str) -> int:
        """Return the number of the session's last event, 0 if it has none."""
        ...

    async def read(self, session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events of the session with a higher `seq` than `after`, in order.

        Fewer if they are large, but at least one if there is any.
        """
        ...

    async def last_events(self, session_ids: Collection[str]) -> Mapping[str, StoredEvent]:
        """Return the last event of each of these sessions; sessions without a readable last event are left out."""
        ...

    async def turn(
        self, session_id: str, turn_id: str | None = None, *, client_turn_id: str | None = None
    ) -> TurnRecord | None:
        """Return the session's turn with this id or `client_turn_id`, without either the running turn, or None."""
        ...

    async def state(self, session_id: str) -> SessionState:
        """Return the state that the session's next turn starts from."""
        ...

    async def compacted_messages(self, session_id: str) -> Sequence[Message]:
        """Return the original messages, in order, that the summaries at the start of the conversation replace."""
        ...

    async def facts(self, session_id: str, *types: type[FactT], key: str | None = None) -> Sequence[FactT]:
        """Return the session's facts of these classes, with `key` only facts with this key, in the order of storage.

        A fact that cannot be decoded is left out and logged if it `is_skippable`, else it raises `DamagedData`.
        """
        ...

    def subscribe(self, session_id: str | None, wakeup: asyncio.Event) -> AbstractContextManager[None]:
        """Set `wakeup` after each commit with events to the session (None: to any) while the block lasts.

        Subscribe first, then read: a commit in between then sets `wakeup`. A reader of a store that another process
        owns is told of no commit; what it reads is never behind `head`.
        """
        ...


class Log(SessionLog, Protocol):
    """The log of all sessions of a store that is written to.

    `read_all` and `position()` may use the same copy as `read`. The log of several databases has no order between the
    sessions of different ones, and only `read_all` returns events with positions in it.
    """

    @property
    def durability(self) -> Durability: ...

    @property
    def is_shared(self) -> bool:
        """True if several hosts may write this log; its records then name the host that they are about."""
        ...

    @property
    def log_id(self) -> str:
        """The identifier of this log, constant for its lifetime: positions of another log mean nothing here."""
        ...

    async def position(self, given: int | None = None) -> Position | None:
        """Return `given`, or None if it is not a position of this log or lies ahead; without `given` the last one."""
        ...

    async def read_all(self, after: Position, limit: int) -> Sequence[StoredEvent]:
        """Return up to `limit` events of all sessions that follow the position, in order; fewer as in `read`."""
        ...


class Catalog(Protocol):
    """The sessions by their records, texts, usage and open requests to the user.

    It may lag behind the log, but has all that this worker wrote, or showed to a reader of its log. `get`,
    `session_of_request` and `open_requests` answer from what is stored at their call.
    """

    async def get(self, session_id: str) -> SessionRecord: ...

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        """Return sessions; with `query`, a session counts if its name or one of its `searchable_texts` has all terms.

        Pinned ones come first, then newest first. `before` is the id of the last session of the previous page (an
        unknown id matches nothing). `search.SearchQuery` defines what a term is and when a text has it.
        """
        ...

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        """Return the usage of model calls, summed by session, day, model and agent, oldest first.

        `since` and `until` are the first and last day that count, as `YYYY-MM-DD`; days are those of UTC.
        """
        ...

    async def costs(self, session_ids: Collection[str]) -> Mapping[str, Decimal]:
        """Return the cost in USD of each session's model calls; sessions with an unknown cost are left out."""
        ...

    async def working_sessions(self, session_ids: Collection[str]) -> Mapping[str, str]:
        """Return the sessions among these that have a turn without an end, each with the id of such a turn.

        It is the running turn, else the oldest one of those of sub-agents.
        """
        ...

    async def open_requests(self, session_id: str | None = None) -> Sequence[StoredEvent]:
        """Return the `ASKING_EVENTS` of running turns without an answer, of a session or of all, oldest first."""
        ...

    async def session_of_request(self, request_id: str) -> str | None:
        """Return the id of the session that asked this request, answered or not, or None."""
        ...


class StoreReader(Protocol):
    """Reading access to the sessions of a store and their events; another process may own the store.

    All methods that name a session raise `SessionNotFound` when there is none, and `StoreError` when the storage fails.
    """

    @property
    def log(self) -> SessionLog: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def blobs(self) -> Blobs | None:
        """The contents by digest; a reader that does not own the store stores none.

        Without them, what a rewind would need of a file is not stored, and attachments are stored in the commits.
        """
        ...

    async def aclose(self) -> None:
        """Release the resources of the store; no method is called afterwards."""
        ...


class Store(StoreReader, Protocol):
    """The storage of sessions and their events.

    Events that a commit returned are visible to readers and survive what `Log.durability` says.
    """

    @property
    def address(self) -> str:
        """The URL at which this process serves, for the report on workers; set once it is known, empty before."""
        ...

    @address.setter
    def address(self, address: str) -> None: ...

    @property
    def log(self) -> Log: ...

    @property
    def ownership(self) -> Ownership: ...

    @property
    def shared(self) -> SharedState | None:
        """The other values that workers share; `aclose` closes them too. None for a store that one process owns."""
        ...

    async def create(
        self,
        record: SessionRecord,
        *,
        initial_events: AsyncIterable[Sequence[StoredEvent]] | None = None,
        texts: Sequence[SearchableText] = (),
        state: StateChange | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        """Create a session with `facts`; `initial_events`, in pages, are put at the start of its log.

        Without `initial_events` it has no effect if there is a session with that id: it may be repeated.

        The events are copied from another session. Only the originals are in the log of all sessions, so the position
        of a copy is 0. Their usage counts for the other session only. A search finds `texts`, the texts of the events.

        The session appears whole, after the last page. While a store writes the pages, the commits of other sessions
        do not wait for more than a few of them; if an iteration fails, or the process ends, nothing stays of them.
        """
        ...

    async def delete(self, lease: Lease) -> None:
        """Delete the session with everything stored of it, and notify its readers; no byte of it is left in a file.

        All of it disappears at once. While a store removes a long session from its file, the commits of other sessions
        do not wait for more than a small part of it; if the caller is cancelled, the deletion goes on.
        """
        ...

    async def check(self) -> None:
        """Raise `StoreError` if the last write failed and one that is tried now does too, within a few seconds."""
        ...

    async def workers(self) -> WorkersReport:
        """Return the report on all processes that use the store; raises `StoreError`."""
        ...


class ShardCatalog(Catalog, Protocol):
    """The catalog of a `Shard`."""

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | ListPlace | None = None,
        archived: ArchivedFilter = "without",
    ) -> Sequence[ListedSession]:
        """Return sessions as `Catalog.sessions` does, from after a session or a place in the list.

        Newest first is by `SessionRecord.created_at`; sessions created at the same time come in any fixed order.
        """
        ...


class Shard(Store, Protocol):
    """A store that can be one of several databases with the sessions of a `ShardedStore`."""

    @property
    def catalog(self) -> ShardCatalog: ...

    @property
    def blobs(self) -> ShardBlobs | None: ...


def check_turn(commit: Commit, open_turns: Collection[str], is_known: Callable[[str], bool]) -> None:
    """Raise `TurnEnded` if a commit has an event behind the terminal one of its turn.

    `is_known` is asked only about a turn that is not open: one that is known has ended. Any other never began.
    """
    turn_id, events = commit.turn_id, commit.events
    if turn_id is None or not events:
        return
    if turn_id not in open_turns and is_known(turn_id):
        raise TurnEnded(f"turn {turn_id!r} has ended, so no {events[0].type.value!r} event can follow")
    if len(events) > 1 and any(event.terminal for event in events[:-1]):
        raise TurnEnded(f"turn {turn_id!r} ends in this commit, so no {events[-1].type.value!r} event can follow")


def related_turn_id(event: StoredEvent) -> str | None:
    """Return the id of the event's turn; for a queued message, of the turn that it is to start or join.

    Returns None for an event of the session as a whole. Raises `DamagedData`.
    """
    if event.type not in ("queued", "handed_back"):
        return event.turn_id
    queued = decode(event).event
    assert isinstance(queued, QueuedEvent | HandedBackEvent)
    return queued.data["turn_id"]


def ended_turn_id(event: StoredEvent) -> str | None:
    """Return the id of the turn whose last event this is, None if it ends no turn.

    A turn whose message is handed back, or taken into another turn, never begins. Raises `DamagedData`.
    """
    if event.terminal or event.type == "handed_back":
        return related_turn_id(event)
    if event.type != "queued":
        return None
    queued = decode(event).event
    assert isinstance(queued, QueuedEvent)
    return queued.data.get("former_turn_id")


async def find_fact(log: SessionLog, session_id: str, type_: type[FactT], key: str) -> FactT | None:
    """Return the session's fact of this class and key, or None; raises as `SessionLog.facts` does."""
    return next(iter(await log.facts(session_id, type_, key=key)), None)


_COPY_SECONDS = 10.0  # a copy that lags longer than this no longer gets new commits
_PAGE_EVENTS = 256  # about two milliseconds of work


async def read_log_pages(
    log: SessionLog, session_id: str, after: int = 0, *, until: int | None = None
) -> AsyncGenerator[Sequence[StoredEvent]]:
    """Yield the events after `after` page by page, up to the end of the log at the time it is reached.

    With `until`, which is at most the log's `head`, that event is the last one. If the copy that `log` reads lags
    behind, this waits for the events that are stored now; raises `StoreError` if they do not come.
    """
    head = await log.head(session_id) if until is None else until
    while until is None or after < until:
        limit = _PAGE_EVENTS if until is None else min(_PAGE_EVENTS, until - after)
        if not (events := await log.read(session_id, after, limit)):
            if after >= head:
                return
            await _wait_for_events(log, session_id, after)
            continue
        yield events
        after = events[-1].seq
        await asyncio.sleep(0)


async def read_event(log: SessionLog, session_id: str, seq: int) -> StoredEvent:
    """Return the stored event with this number; if the copy of the log lags behind, wait until it has the event."""
    async for (event,) in read_log_pages(log, session_id, seq - 1, until=seq):
        return event
    raise AssertionError("read_log_pages yields an event or raises")


async def _wait_for_events(log: SessionLog, session_id: str, after: int) -> None:
    """Wait until `log` can read an event after `after`; raises `StoreError` if none comes."""
    wakeup = asyncio.Event()
    try:
        with log.subscribe(session_id, wakeup):
            async with asyncio.timeout(_COPY_SECONDS):
                while not await log.read(session_id, after, 1):
                    await wakeup.wait()
                    wakeup.clear()
    except TimeoutError as exc:
        raise StoreError(f"the copy of session {session_id!r} ends at event {after} and gets no more") from exc
