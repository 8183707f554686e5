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
from agenticx.sessions.log.commits import Commit, Loaded, StateChange
from agenticx.sessions.log.events import StoredEvent, given_answer
from agenticx.sessions.log.records import Fact, RequestAsked, RequestDecided, SubagentDelivered
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.state import StoredSession
from agenticx.sessions.log.tool_state import ENCODING_ERRORS
from agenticx.sessions.store.base import Doubtful, Lease
from agenticx.subagents.records import SubagentEnding

__all__ = ["SessionWriter", "delivered_facts", "delivered_keys", "merge_deltas", "run_to_completion"]

T = TypeVar("T")

_SETTLING_PAUSES = (0.0, 0.05, 0.2)  # seconds before each repetition of a commit without an answer


@dataclass(slots=True, eq=False)
class _Write:
    """A commit, and the call that follows once it is stored."""

    commit: Commit
    on_stored: Callable[[], None] | None

    @property
    def is_of_command(self) -> bool:
        """True unless the commit is one of a turn that runs, or begins one below it."""
        begins = self.commit.begins
        return self.commit.turn_id is None or (begins is not None and begins.parent_turn_id is None)


class SessionWriter:
    """The only writer of a session.

    What is in memory about a session changes only once a commit has returned. A commit whose outcome is unknown is
    repeated at once, a few times, and if the store still does not answer, again before anything else is written;
    `unsettled` is that commit, or the one that is being made; `known_effects` is `effect_count` without it. With
    `state_frozen` the conversation stays as it is stored. `stored` is the session as it is stored, folded commit by
    commit. `on_events` is called with the id of the turn and the events of each commit that is stored.
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
        self.unsettled: _Write | None = None
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
        """The number of commits that are or may be stored, without those of a turn that has begun; it never falls.

        An operation that raises `OwnershipLost` and has not raised this number has stored nothing.
        """
        return self.known_effects + (self.unsettled is not None and self.unsettled.is_of_command)

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

        Do not cancel it midway: see `run_to_completion`.

        The change is that at the time when the commit is made: a repetition stores the same one. It may have messages
        whose events follow in a later commit, as a turn goes on while its events wait here. If the process dies in
        between, `InterruptedTurn` reports the results that the state has. A message of the user is stored in the commit
        of its event (`Turn.append_steering`), so none is lost or taken twice.

        A search finds the messages with the ids `removed_texts` no more. With `keeps_state` the session's state is not
        part of the commit, with `has_state` it is, also if its events are of no turn and leave the conversation as it
        is, and with `has_rules` only the session's rules are. Files of the session, and its options, are stored with
        the events that tell of them in any case. `on_stored` is called once it is known that the commit is stored,
        which after `Doubtful` is later. Raises as `Lease.commit` does.
        """
        async with self._lock:
            await self._settle()
            self._commit_count += 1
            events = merge_deltas(events)
            types = {event.type for event in events}
            synced = any(event.synced for event in events)
            state: StateChange | None = None
            self._skip_revisions(events)
            if synced:  # all events that change messages, requests or the queue are
                # events of no turn must not store what a running turn has not stored yet
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
            except Doubtful:
                return await self._settle()

    async def settle(self) -> None:
        """Repeat the commit whose outcome is unknown, if there is one; raises `Doubtful` if it stays unknown."""
        async with self._lock:
            await self._settle()

    async def read(self) -> Loaded:
        """Return the session as it is stored."""
        async with self._lock:
            return await self._read()

    async def reload(self) -> Loaded:
        """Reset the conversation to what is stored, after a failed write: nothing newer was reported to any client."""
        async with self._lock:
            loaded = await self._read()
            self._tracker.reset_to(loaded.state)
            self._session.return_notices()
            return loaded

    async def _read(self) -> Loaded:
        await self._settle()
        loaded = await self._lease.load()
        self.stored.reset_to(loaded)
        return loaded

    async def _settle(self) -> Sequence[StoredEvent]:
        """Repeat the commit whose outcome is unknown, if there is one, until it is known; return its events.

        Raises `Doubtful` if that takes too long.
        """
        if self.unsettled is None:
            return ()
        *pauses, last = _SETTLING_PAUSES
        for seconds in pauses:
            await self._clock.sleep(seconds)
            with suppress(Doubtful):
                return await self._repeat(self.unsettled)
        await self._clock.sleep(last)
        return await self._repeat(self.unsettled)

    async def _repeat(self, write: _Write) -> Sequence[StoredEvent]:
        try:
            return await self._store(write)
        except Doubtful:
            raise
        except StoreError:  # after `OwnershipLost` it may be stored, which nobody can find out here
            self.known_effects += write.is_of_command
            raise

    async def _store(self, write: _Write) -> Sequence[StoredEvent]:
        commit = write.commit
        self.unsettled = write
        try:
            stored = await self._lease.commit(commit)
        except Doubtful:
            raise
        except (StoreError, *ENCODING_ERRORS):  # of a value that cannot be encoded nothing is stored either
            self.unsettled = None
            raise
        self.unsettled = None
        self.known_effects += write.is_of_command
        if commit.state is not None:
            self._tracker.mark_stored(commit.state)
        if delivered := delivered_keys(commit.facts):
            self._session.mark_delivered(delivered)
        if commit.facts and self._queue.messages:  # which include each `message_taken`
            self._queue.mark_stored(commit.events)
        self.stored.apply_commit(commit)
        self._on_events(commit.turn_id, commit.events)
        if write.on_stored is not None:
            write.on_stored()
        return stored

    def _skip_revisions(self, events: Sequence[RuntimeEvent]) -> None:
        """Take note of the revisions that clients were shown by a process which died before it stored their numbers."""
        for event in events:
            if event.type is EventType.ARTIFACT and event.data["final"] and "revision" in event.data:
                self._session.artifacts.skip(event.data["path"], event.data["revision"])

    def _tells_of_option(self, turn_id: str | None, events: Sequence[RuntimeEvent]) -> bool:
        """Return whether an option begins with these events or has its answer in them, and set that."""
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
    """Return the facts that the conversation of a turn has the notices which it has taken since it was stored."""
    facts = list[Fact]()
    for one in session.unstored_notices:
        if one.turn_id == turn_id:
            facts.append(
                SubagentDelivered(
                    key=one.key,
                    ending=SubagentEnding.load(one.data),
                    message_id=one.message_id,
                    told_in=one.told_in,
                    told_to=one.turn_id,
                )
            )
    return facts


def delivered_keys(facts: Sequence[Fact]) -> Collection[str]:
    """Return the keys of the notices that are delivered by these facts."""
    return [fact.key for fact in facts if isinstance(fact, SubagentDelivered) and not fact.is_due]


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; a cancellation is raised once `work` is done."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve_exception)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait({task})
        raise


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task, which after a second cancellation nobody waits for."""
    if not task.cancelled():
        task.exception()


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
