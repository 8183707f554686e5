"""The writing of one session: one commit at a time, and memory that changes once it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, TypeVar

from agenticx.clocks import Clock
from agenticx.errors import StoreError
from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.runtime.events import ASKING_EVENTS, REQUEST_EVENTS, TEXT_DELTAS
from agenticx.sessions.hub.queue import MessageQueue
from agenticx.sessions.hub.state_tracker import StateTracker
from agenticx.sessions.log.commits import Commit, LoadedSession, StateChange
from agenticx.sessions.log.events import StoredEvent, given_answer
from agenticx.sessions.log.records import Fact, RequestAsked, RequestDecided, SubagentDelivered
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.state import StoredSession
from agenticx.sessions.log.tool_state import ENCODING_ERRORS
from agenticx.sessions.store.base import Lease, OutcomeUnknown
from agenticx.subagents.records import SubagentEnding
from agenticx.threads import retrieve_exception

__all__ = ["SessionWriter", "delivered_facts", "delivered_keys", "merge_deltas", "run_to_completion"]

T = TypeVar("T")

_REPEAT_PAUSES = (0.0, 0.05, 0.2)  # seconds before each repetition of a commit without an answer


@dataclass(slots=True, eq=False)
class _Write:
    """A commit, and the function to call once it is stored."""

    commit: Commit
    on_stored: Callable[[], None] | None

    @property
    def is_of_command(self) -> bool:
        """True unless the commit belongs to a running turn, or begins a child turn."""
        begins = self.commit.begins
        return self.commit.turn_id is None or (begins is not None and begins.parent_turn_id is None)


class SessionWriter:
    """The only writer of a session.

    The session in memory changes only once a commit has returned. A commit of unknown outcome is repeated at once, a
    few times. If the store still does not answer, it is repeated before anything else is written.

    - `pending_write` is the commit of unknown outcome, or the one that is being made.
    - `known_effects` is `effect_count` without the pending write.
    - With `state_frozen` the conversation stays as it is stored.
    - `stored` is the session as it is stored, folded commit by commit.
    - `on_events` is called with the id of the turn and the events of each stored commit.
    """

    def __init__(
        self,
        lease: Lease,
        stored: StoredSession,
        session: Session,
        queue: MessageQueue,
        clock: Clock,
        on_events: Callable[[str | None, Sequence[RuntimeEvent]], None],
    ) -> None:
        self.stored = stored
        self.state_frozen = False
        self.pending_write: _Write | None = None
        self._lease = lease
        self._queue = queue
        self._clock = clock
        self._session = session
        self._on_events = on_events
        self._tracker = StateTracker(session)
        self._lock = asyncio.Lock()
        self._id_prefix = token_hex(6)  # of commit ids, which are unique in a session, also across restarts
        self._commit_count = self.known_effects = 0

    @property
    def record(self) -> SessionRecord:
        """The session's record."""
        return self.stored.record

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self.stored.last_seq

    @property
    def effect_count(self) -> int:
        """The number of commits of commands that are or may be stored, without those of running turns; never falls.

        An operation that raises `OwnershipLost` and has not raised this number has stored nothing.
        """
        return self.known_effects + (self.pending_write is not None and self.pending_write.is_of_command)

    async def commit(
        self,
        turn_id: str | None,
        events: Sequence[RuntimeEvent] = (),
        *,
        facts: Sequence[Fact] = (),
        begins: TurnRecord | None = None,
        record: SessionRecord | None = None,
        removed_texts: Collection[str] = (),
        keeps_state: bool = False,
        has_state: bool = False,
        has_rules: bool = False,
        on_stored: Callable[[], None] | None = None,
    ) -> Sequence[StoredEvent]:
        """Store `events`, their text deltas merged, with the change of the session's state.

        Do not cancel it midway: see `run_to_completion`. Raises as `Lease.commit` does.

        The change is taken when the commit is made; a repetition stores the same one. It may have messages whose events
        follow in a later commit, since a turn goes on while its events wait here. If the process dies in between,
        `InterruptedTurn` reports the results in the state. A message of the user is stored in the commit of its event
        (`Turn.append_steering`), so none is lost or taken twice.

        - `removed_texts` are ids of messages that a search no longer finds.
        - `keeps_state` leaves the session's state out of the commit.
        - `has_state` includes it, also for events of no turn that leave the conversation as it is.
        - `has_rules` includes the session's rules alone.
        - `on_stored` is called once the commit is known to be stored; after `OutcomeUnknown` that is later.

        Files and options of the session are always stored with their events.
        """
        async with self._lock:
            await self._resolve_pending()
            self._commit_count += 1
            events = merge_deltas(events)
            types = {event.type for event in events}
            synced = any(event.synced for event in events)
            state: StateChange | None = None
            self._skip_revisions(events)
            if synced:  # all events that change messages, requests or the queue are
                # events of no turn must not store a running turn's messages
                has_state = has_state or turn_id is not None
                if has_state and not (self.state_frozen or keeps_state):
                    state = self._tracker.pending_change(removed_texts)
                elif has_rules and not self.state_frozen:
                    state = self._tracker.pending_rules()
                elif not self.state_frozen and (self._tells_of_option(turn_id, events) or EventType.ARTIFACT in types):
                    state = self._tracker.pending_files()
                if state is not None and self._session.unstored_notices:
                    facts = (*facts, *delivered_facts(self._session, turn_id or ""))
                if turn_id is not None and not types.isdisjoint(REQUEST_EVENTS):
                    facts = (*facts, *self._request_facts(turn_id, events))
                if self._queue.messages:
                    facts = (*facts, *self._queue.taken_facts(turn_id, events, self.seq))
            commit = Commit(
                id=f"{self._id_prefix}-{self._commit_count}",
                turn_id=turn_id,
                events=events,
                begins=begins,
                state=state,
                facts=facts,
                record=record,
                sync=synced or bool(facts) or record is not None,
            )
            try:
                return await self._store(_Write(commit, on_stored))
            except OutcomeUnknown:
                return await self._resolve_pending()

    async def resolve_pending(self) -> None:
        """Repeat a commit of unknown outcome, if there is one; raises `OutcomeUnknown` if it stays unknown."""
        async with self._lock:
            await self._resolve_pending()

    async def read(self) -> LoadedSession:
        """Return the session as it is stored."""
        async with self._lock:
            return await self._read()

    async def reload(self) -> LoadedSession:
        """Reset the conversation to what is stored, after a failed write: nothing newer was reported to any client."""
        async with self._lock:
            loaded = await self._read()
            self._tracker.reset_to(loaded.state)
            self._session.return_notices()
            return loaded

    async def _read(self) -> LoadedSession:
        await self._resolve_pending()
        loaded = await self._lease.load()
        self.stored.reset_to(loaded)
        return loaded

    async def _resolve_pending(self) -> Sequence[StoredEvent]:
        """Repeat a commit of unknown outcome until its outcome is known; return its events.

        Raises `OutcomeUnknown` if that takes too long.
        """
        if self.pending_write is None:
            return ()
        *pauses, last = _REPEAT_PAUSES
        for seconds in pauses:
            await self._clock.sleep(seconds)
            with suppress(OutcomeUnknown):
                return await self._repeat(self.pending_write)
        await self._clock.sleep(last)
        return await self._repeat(self.pending_write)

    async def _repeat(self, write: _Write) -> Sequence[StoredEvent]:
        try:
            return await self._store(write)
        except OutcomeUnknown:
            raise
        except StoreError:  # after `OwnershipLost` it may be stored or not, and this owner cannot find out
            self.known_effects += write.is_of_command
            raise

    async def _store(self, write: _Write) -> Sequence[StoredEvent]:
        commit = write.commit
        self.pending_write = write
        try:
            stored = await self._lease.commit(commit)
        except OutcomeUnknown:
            raise
        except (StoreError, *ENCODING_ERRORS):  # a value that cannot be encoded: nothing is stored
            self.pending_write = None
            raise
        self.pending_write = None
        self.known_effects += write.is_of_command
        if commit.state is not None:
            self._tracker.mark_stored(commit.state)
        if delivered := delivered_keys(commit.facts):
            self._session.mark_delivered(delivered)
        if commit.facts and self._queue.messages:  # they include each `message_taken`
            self._queue.mark_stored(commit.events)
        self.stored.apply_commit(commit)
        self._on_events(commit.turn_id, commit.events)
        if write.on_stored is not None:
            write.on_stored()
        return stored

    def _skip_revisions(self, events: Sequence[RuntimeEvent]) -> None:
        """Skip the numbers of revisions that clients were shown by a process that died before it stored them."""
        for event in events:
            if event.type is EventType.ARTIFACT and event.data["final"] and "revision" in event.data:
                self._session.artifacts.skip(event.data["path"], event.data["revision"])

    def _tells_of_option(self, turn_id: str | None, events: Sequence[RuntimeEvent]) -> bool:
        """Return whether the events begin an option or have its answer; store the answer in the option."""
        option = next((option for option in self._session.options if option.turn_id == turn_id), None)
        if option is None:
            return False
        if events[-1].type is EventType.FINAL:
            option.text = events[-1].data["text"]
        return events[0].type is EventType.TURN_STARTED or events[-1].type is EventType.FINAL

    def _request_facts(self, turn_id: str, events: Sequence[RuntimeEvent]) -> Iterator[Fact]:
        """Yield the facts that open and close requests to the user."""
        for seq, event in enumerate(events, self.seq + 1):
            if event.type not in REQUEST_EVENTS:
                continue
            if event.type in ASKING_EVENTS:
                yield RequestAsked(key=event.data["id"], turn_id=turn_id, seq=seq)
            else:
                yield RequestDecided(key=event.data["id"], turn_id=turn_id, answer=given_answer(event))


def delivered_facts(session: Session, turn_id: str) -> Sequence[Fact]:
    """Return the facts that a turn's conversation has the notices which it has taken since the last commit."""
    facts = list[Fact]()
    for one in session.unstored_notices:
        if one.message_turn_id == turn_id:
            facts.append(
                SubagentDelivered(
                    key=one.key,
                    ending=SubagentEnding.load(one.data),
                    message_id=one.message_id,
                    recipient_turn_id=one.recipient_turn_id,
                    message_turn_id=one.message_turn_id,
                )
            )
    return facts


def delivered_keys(facts: Sequence[Fact]) -> Collection[str]:
    """Return the keys of the notices that these facts mark as delivered."""
    return [fact.key for fact in facts if isinstance(fact, SubagentDelivered) and not fact.is_due]


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; a cancellation is raised once `work` is done."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_exception)  # nobody waits for it after a second cancellation
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait({task})
        raise


def merge_deltas(batch: Sequence[RuntimeEvent]) -> list[RuntimeEvent]:
    """Return `batch` up to its terminal event, with neighbouring text deltas of one message merged into one delta.

    >>> one, two = (RuntimeEvent(EventType.TOKEN, {"text": t, "message_id": "m", "offset": o}) for t, o in ("a0", "b1"))
    >>> [event.data["text"] for event in merge_deltas([one, two])]
    ['ab']
    """
    merged: list[RuntimeEvent] = []
    texts: list[str] = []  # of the run of deltas whose first one is the last event in `merged`
    for event in batch:
        if texts and _can_merge(merged[-1], event):
            texts.append(event.data["text"])
            continue
        if len(texts) > 1:
            _join_texts(merged, texts)
        merged.append(event)
        texts = [event.data["text"]] if event.type in TEXT_DELTAS and "waiting" not in event.data else []
        if event.terminal:
            break
    if len(texts) > 1:
        _join_texts(merged, texts)
    return merged


def _can_merge(first: RuntimeEvent, event: RuntimeEvent) -> bool:
    return (
        event.type is first.type
        and event.agent_id == first.agent_id
        and event.data["message_id"] == first.data["message_id"]
        and "waiting" not in event.data
    )


def _join_texts(merged: list[RuntimeEvent], texts: list[str]) -> None:
    first = merged[-1]
    merged[-1] = RuntimeEvent(first.type, {**first.data, "text": "".join(texts)}, first.agent_id, first.turn_id)
