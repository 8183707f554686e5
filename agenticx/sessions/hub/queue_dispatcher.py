"""Dispatch of queued messages: into the running turn, as a turn of their own, or handed back.

No accepted message is lost: it is durable before its acceptance is reported, and leaves the queue in the transaction
that stores its outcome. A message whose turn was stopped, could not begin, or was ended by a restart is handed back; so
is one that a turn did not take in. Interrupts run in the order of their arrival, each stopping the turn of the one
before. Where the storage fails, messages stay queued until they can be handed back, and turns that could not be ended
stay pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import chain, repeat

from agenticx.attachments import fingerprint
from agenticx.clocks import Clock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.runtime import EventType
from agenticx.sessions.hub.live_session import LiveSession, RunningTurn, run_to_completion
from agenticx.sessions.hub.message_queue import QueuedMessage, journal_key, recorded_submission
from agenticx.sessions.hub.submission import Submission, TurnRequest, check_same_input
from agenticx.sessions.store.base import JournalEntry, Store
from agenticx.sessions.store.records import TurnRecord

__all__ = ["QueueDispatcher", "turn_record"]

_RETRY_SECONDS = (0.5, 2.0, 10.0)
_LAST_RETRY_SECONDS = 30.0
_CLOSING_SECONDS = 1.0

_log = get_logger(__name__)


def turn_record(message: QueuedMessage) -> TurnRecord:
    """Return the record of the turn that `message` begins."""
    return TurnRecord(
        id=message.turn_id,
        session_id=message.session_id,
        input=message.message.content,
        attachments_digest=fingerprint(message.message.attachments),
        client_turn_id=message.client_turn_id,
    )


class QueueDispatcher:
    """The dispatcher of the queues of all sessions in use; it keeps sessions with queued messages in memory.

    `open_session` returns a session. `end_pending` ends a turn of it whose end could not be stored. `begin_turn` begins
    the turn of a message, or cancels the message, and returns False if another turn still holds the session.
    `on_deleted` is called with the id of a session that was deleted.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        open_session: Callable[[str], Awaitable[LiveSession]],
        end_pending: Callable[[LiveSession], Awaitable[None]],
        begin_turn: Callable[[LiveSession, QueuedMessage], Awaitable[bool]],
        on_deleted: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._open_session = open_session
        self._end_pending = end_pending
        self._begin_turn = begin_turn
        self._on_deleted = on_deleted
        self._with_messages: dict[str, LiveSession] = {}
        self._dispatching: set[asyncio.Task[None]] = set()
        self._retrying: set[str] = set()  # sessions that are dispatched again after a pause
        self.closing = False  # no turn begins any more

    # --- queueing -----------------------------------------------------------------------------------------------------

    async def enqueue(self, live: LiveSession, message: QueuedMessage, request: TurnRequest) -> None:
        """Queue `message` durably, to run after the running turn. The caller holds the session's lock."""
        live.queue.check_capacity(message.message)
        running = live.running_turn
        self._with_messages[live.session.id] = live
        live.queue.add(message)
        try:
            if request.when_busy == "steer" and running is not None and await self._steer(live, running, message):
                return
            await live.append(None, [message.to_event(EventType.QUEUED)], journal=[message.to_journal_entry()])
        except BaseException:
            message.unconfirmed = message.cancelled = True  # the error below reports it to its sender as refused
            self.dispatch_soon(live.session.id)
            raise
        if running is not None and message.interrupts:
            running.stop.set()
        if live.running_turn is None:
            self.dispatch_soon(live.session.id)

    async def _steer(self, live: LiveSession, running: RunningTurn, message: QueuedMessage) -> bool:
        """Pass `message` to the running turn and return True; return False if that turn is ending.

        The message then needs a turn of its own.
        """
        if running.steering.closed:
            return False
        own_turn_id, message.turn_id, message.steers = message.turn_id, running.turn.id, True
        await live.append(None, [message.to_event(EventType.QUEUED)], journal=[message.to_journal_entry()])
        if not running.steering.put(message.message):
            message.turn_id, message.steers = own_turn_id, False
        return message.steers

    async def reconcile_submission(self, live: LiveSession, request: TurnRequest) -> Submission | None:
        """Resolve an earlier message with the same `client_turn_id` and return its state, None if there is none.

        Raises `TurnConflict` if its input was another one. Where a write about the message was reported as failed, the
        journal decides: the message is removed from the queue if its outcome had committed or it had never been stored,
        and queued again, which may append an event, if it had been stored.
        """
        if request.client_turn_id is None:
            return None
        key = journal_key(live.session.id, request.client_turn_id)
        async with live.append_lock:  # a message that becomes `taken` between the two reads would be in neither
            taken = await self._store.journal_entry("taken", key)
            entry = await self._store.journal_entry("posted", key) if taken is None else None
        message = live.queue.get(key)
        if taken is not None:
            check_same_input(request.client_turn_id, recorded_submission(taken).turn, request)
            if message is not None:  # a write that was reported as failed had committed its outcome
                live.queue.remove(message)
            return await self._resolved_submission(taken)
        if entry is None:
            if message is not None:  # the write that stored it had failed
                live.queue.remove(message)
            return None
        message = message or QueuedMessage.from_journal(entry)
        check_same_input(request.client_turn_id, message.message, request)
        if message.unconfirmed:
            await self._reconcile(live)
            await self._requeue(live, message)
        return await self.current_submission(live, message)

    async def _requeue(self, live: LiveSession, message: QueuedMessage) -> None:
        """Queue `message` again: its write was reported as failed but had committed.

        Sequence: the append that stores the message raises, its sender gets the error and the message is marked as
        cancelled; the sender submits it again, and the journal has it as `posted`.
        """
        if message.resolved.is_set():
            return
        message.cancelled = False
        running = live.running_turn
        if message.steers and not (running is not None and running.steering.put(message.message)):
            message.turn_id, message.steers = new_id("turn"), False
            await live.append(None, [message.to_event(EventType.QUEUED)])

    async def current_submission(self, live: LiveSession, message: QueuedMessage) -> Submission:
        """Return the current state of `message`; raises `SessionNotFound` if its session was deleted."""
        taken = await self._store.journal_entry("taken", message.key)
        if taken is not None:
            return await self._resolved_submission(taken)
        if message.resolved.is_set():
            raise SessionNotFound(f"session {live.session.id!r} was deleted")
        state = "steered" if message.steers else "queued"
        message_id = message.message.message_id
        return Submission(state=state, turn=turn_record(message), message_id=message_id, after_seq=live.seq)

    async def _resolved_submission(self, taken: JournalEntry) -> Submission:
        submission = recorded_submission(taken)
        return replace(submission, turn=await self._store.turn(taken.session_id, taken.turn_id) or submission.turn)

    # --- dispatching --------------------------------------------------------------------------------------------------

    async def dispatch(self, live: LiveSession) -> None:
        """Hand back cancelled messages and begin the turn of the first queued one, if no turn runs.

        Messages that the ended turn did not take in (`steers`) are handed back too, and all messages once `closing` is
        set. The caller holds the session's lock.
        """
        if live.latest_turn is not None:
            if not live.latest_turn.closed or live.latest_turn.suspended:
                return
            await live.latest_turn.done_event.wait()
        await self._end_pending(live)
        await self._reconcile(live)
        while live.queue and live.running_turn is None:
            returned = [message for message in live.queue if message.cancelled or message.steers or self.closing]
            if returned:
                await live.append(None, [message.to_event(EventType.HANDED_BACK) for message in returned])
            elif not await self._begin_turn(live, first := live.queue.first):
                return
            elif live.running_turn is not None and live.queue.has_interrupt(first.turn_id):
                live.running_turn.stop.set()
        if not live.queue:
            self._with_messages.pop(live.session.id, None)

    async def _reconcile(self, live: LiveSession) -> None:
        """Remove messages whose failed writes had committed their outcome, and those that were never stored."""
        async with live.append_lock:
            for message in [message for message in live.queue if message.unconfirmed]:
                taken = await self._store.journal_entry("taken", message.key)
                if taken is not None or await self._store.journal_entry("posted", message.key) is None:
                    live.queue.remove(message)
                message.unconfirmed = False

    def on_turn_closed(self, live: LiveSession, running: RunningTurn) -> None:
        """Dispatch the queue of a turn that ended; cancel the message whose turn could not begin."""
        if running.started.done() and running.started.exception() is not None:
            live.queue.cancel(running.turn.id)
        if live.queue:
            self.dispatch_soon(live.session.id)

    def dispatch_soon(self, session_id: str, *, failed: bool = False) -> None:
        """Run `dispatch` in a task, after a pause if the storage has just `failed`, until it succeeds."""
        if failed and self.closing:
            return
        task = asyncio.create_task(
            self._dispatch_with_retries(session_id, failed=failed), name=f"agx dispatching {session_id}"
        )
        self._dispatching.add(task)
        task.add_done_callback(self._on_dispatched)

    def _on_dispatched(self, task: asyncio.Task[None]) -> None:
        self._dispatching.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("queue dispatch failed", exc_info=failure)

    async def _dispatch_with_retries(self, session_id: str, *, failed: bool) -> None:
        for seconds in chain(_RETRY_SECONDS, repeat(_LAST_RETRY_SECONDS)):
            if not failed and await run_to_completion(self._try_dispatch(session_id)):
                return
            if session_id in self._retrying:  # another task retries for this session
                return
            self._retrying.add(session_id)
            try:
                await self._clock.sleep(seconds)
            finally:
                self._retrying.discard(session_id)
            failed = False

    async def _try_dispatch(self, session_id: str) -> bool:
        """Dispatch and return True; where the storage fails, cancel the queued messages and return False.

        They are handed back once the storage accepts it.
        """
        try:
            await self.lock_and_dispatch(await self._open_session(session_id))
        except SessionNotFound:  # deleted meanwhile, with its queue
            if (live := self._with_messages.get(session_id)) is not None:
                self.discard(live)
            self._on_deleted(session_id)
        except StoreError as exc:
            _log.error("queue dispatch failed; retrying", session=session_id, error=str(exc))
            if (live := self._with_messages.get(session_id)) is not None:
                live.queue.cancel()
            return False
        return True

    async def lock_and_dispatch(self, live: LiveSession) -> None:
        """Acquire the session's lock and dispatch its queue."""
        async with live.lock:
            await self.dispatch(live)

    # --- shutdown and restart -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Hand back all queued messages, except those queued after a turn that continues after the next start."""
        self.closing = True
        for live in list(self._with_messages.values()):
            try:
                await self.lock_and_dispatch(live)
            except StoreError as exc:
                _log.error("messages stay queued until restart", error=str(exc))
        for task in self._dispatching:  # each is in its retry pause or in a write
            task.cancel()
        if self._dispatching:
            await asyncio.wait(self._dispatching, timeout=self._clock.real(_CLOSING_SECONDS))

    def discard(self, live: LiveSession) -> None:
        """Drop the queue of a session that is being deleted."""
        self._with_messages.pop(live.session.id, None)
        for message in list(live.queue):
            live.queue.remove(message)

    def restore(self, live: LiveSession, entry: JournalEntry) -> None:
        """Queue the message of `entry`, which the previous process posted and did not resolve."""
        if live.queue.get(entry.key) is None:
            live.queue.add(QueuedMessage.from_journal(entry))
            self._with_messages[live.session.id] = live

    async def resume(self) -> None:
        """Queue restored messages to run after the turn that resumes; hand them back where none does."""
        for live in list(self._with_messages.values()):
            async with live.lock:
                if live.running_turn is None:
                    live.queue.cancel()
                elif live.queue.has_interrupt():
                    live.running_turn.stop.set()
                else:
                    self._steer_again(live, live.running_turn)
                await self.dispatch(live)

    def _steer_again(self, live: LiveSession, running: RunningTurn) -> None:
        for message in live.queue:
            if message.steers and message.message not in running.steering.left:
                running.steering.put(message.message)
