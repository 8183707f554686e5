"""The hub: the sessions in use, their turns, one at a time each, and their queued messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from agenticx.attachments import check_attachments
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, SessionBusy, StoreError
from agenticx.llms.base import ChatModel
from agenticx.logs import bound_ids, get_logger
from agenticx.runtime import AgentHook, AsyncConfirmGate, HookRegistry
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.sessions.files.snapshots import SnapshotFolder
from agenticx.sessions.history.interrupted import resume_point
from agenticx.sessions.hub.confirms import DurableConfirmations
from agenticx.sessions.hub.live_session import LiveSession, RunningTurn, run_to_completion
from agenticx.sessions.hub.message_queue import QueuedMessage
from agenticx.sessions.hub.queue_dispatcher import QueueDispatcher, turn_record
from agenticx.sessions.hub.records import RecordUpdater
from agenticx.sessions.hub.rewind import RewindResult, rewind
from agenticx.sessions.hub.session_cache import SessionCache
from agenticx.sessions.hub.submission import (
    HubClosed,
    Submission,
    TurnConflict,
    TurnFailed,
    TurnRequest,
    check_same_input,
    derive_name,
)
from agenticx.sessions.hub.turn_runner import TurnRunner
from agenticx.sessions.store.base import SessionRecord, Store, TurnRecord
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.settings import Settings
from agenticx.threads import run_in_thread, run_sized
from agenticx.tools.base import Tool, is_idempotent

__all__ = ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"]

_log = get_logger(__name__)

_INTERRUPT_SECONDS = 2.0  # time for a turn to end before the interrupting message is reported as queued


class Hub:
    """The owner of all running turns and message queues of one store.

    `models` finds a model by name (None: the default) and `tools` returns the tools of a session; both raise an
    `AgenticXError` whose message names the accepted values. `hooks` run in every turn. `snapshots` stores the previous
    contents of the files that turns change. A turn runs with `settings` as they apply in its session's workspace. All
    methods must be called on one event loop.
    """

    def __init__(
        self,
        store: Store,
        *,
        models: Callable[[str | None], ChatModel],
        tools: Callable[[SessionRecord], Sequence[Tool]],
        settings: Settings,
        gate: AsyncConfirmGate | None = None,
        hooks: HookRegistry | Sequence[AgentHook] = (),
        clock: Clock | None = None,
        snapshots: SnapshotFolder | None = None,
    ) -> None:
        self.gate = gate or AsyncConfirmGate()
        self.confirms = DurableConfirmations(self.gate, store)
        self._store = store
        self._models = models
        self._tools = tools
        self._clock = clock or SystemClock()
        self._session_cache = SessionCache(store, snapshots)
        self._record_updater = RecordUpdater(store, self._session_cache)
        self._turns = TurnRunner(
            store=store,
            gate=self.gate,
            confirms=self.confirms,
            settings=settings,
            hooks=HookRegistry.from_hooks(hooks),
            clock=self._clock,
            append_first_events=self._record_updater.append_first_events,
            on_terminal_event_stored=self._announce_name,
            on_turn_closed=lambda live, running: self._dispatcher.on_turn_closed(live, running),
            on_end_failed=lambda session_id: self._dispatcher.dispatch_soon(session_id, failed=True),
        )
        self._dispatcher = QueueDispatcher(
            store,
            self._clock,
            open_session=self._open,
            end_pending=self._turns.end_pending,
            begin_turn=self._begin_queued,
            on_deleted=self._turns.discard,
        )
        self._snapshots = snapshots
        self._private_paths = settings.private_paths
        self._closing = False

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, request: TurnRequest) -> TurnRecord:
        """Submit a message as `submit` does and return its turn."""
        return (await self.submit(session_id, request)).turn

    async def submit(self, session_id: str, request: TurnRequest) -> Submission:
        """Accept a message and return its state; what is returned is durable. An idle session begins its turn at once.

        A turn counts as begun once its first event is stored; `after_seq` is the sequence number just before that
        event. While another turn runs, `request.when_busy` decides; a turn that is about to end accepts no steering any
        more, so such a message begins the next turn. A repeated `client_turn_id` returns the state of the first message
        and has no effect. Raises `AttachmentRefused`, `SessionNotFound`, `SessionBusy` (nothing was written),
        `TurnConflict`, `TurnFailed`, `HubClosed`, `StoreError`, the error of `models` for an unknown model name, or
        `SettingsError` (nothing was written) where the settings file of the session's workspace cannot be used.
        """
        size = sum(len(attachment.data) for attachment in request.attachments)
        await run_sized(check_attachments, request.attachments, size=size, name="agx attachments")
        record = await self._store.get(session_id)
        model, tools = self._models(request.model or record.model), self._tools(record)
        live = await self._session_cache.open(record)
        message = QueuedMessage.from_request(session_id, request)
        admitted = await run_to_completion(self._admit(live, request, message, _TurnSetup(record, model, tools)))
        if isinstance(admitted, Submission):
            return admitted
        if isinstance(admitted, RunningTurn):
            turn = await admitted.wait_begun()
            return Submission(state="started", turn=turn, after_seq=turn.after_seq or 0)
        if request.when_busy == "interrupt":
            with suppress(TimeoutError):
                await asyncio.wait_for(message.resolved.wait(), self._clock.real(_INTERRUPT_SECONDS))
        return await self._dispatcher.current_submission(live, message)

    async def _admit(
        self, live: LiveSession, request: TurnRequest, message: QueuedMessage, setup: _TurnSetup
    ) -> Submission | RunningTurn | None:
        """Return the earlier submission of `message`, or the turn that it began; None if it was queued."""
        async with live.lock:
            while True:
                self._check_open()
                await self._dispatcher.dispatch(live)
                if (earlier := await self._dispatcher.reconcile_submission(live, request)) is not None:
                    return earlier
                previous = live.running_turn
                try:
                    turn = await self._claim(message)
                except SessionBusy:
                    if request.when_busy == "reject":
                        raise
                    return await self._dispatcher.enqueue(live, message, request)
                if turn.id != message.turn_id:
                    return self._earlier_turn(turn, request)
                if previous is None or not live.queue:
                    return self._begin(live, turn, message, setup)
                # The previous turn ended between the check and the claim: its queued messages come first.
                await self._turns.release(turn)
                await previous.done_event.wait()

    async def _claim(self, message: QueuedMessage) -> TurnRecord:
        """Claim the session for the turn of `message`, as `Store.claim` does; raises `HubClosed` too."""
        turn = await self._turns.claim(turn_record(message))
        if self._closing and turn.id == message.turn_id:
            await self._turns.release(turn)
        self._check_open()
        return turn

    def _check_open(self) -> None:
        if self._closing:
            raise HubClosed("the server is shutting down; try again when it is back")

    def _earlier_turn(self, turn: TurnRecord, request: TurnRequest) -> Submission | RunningTurn:
        """Return the earlier turn of the same `client_turn_id`; raises `TurnConflict` if its input was another one."""
        check_same_input(turn.client_turn_id, turn, request)
        return self._turns.get(turn.id) or Submission(state="started", turn=turn, after_seq=turn.after_seq or 0)

    async def _begin_queued(self, live: LiveSession, message: QueuedMessage) -> bool:
        """Begin the turn of a queued message, or cancel the message; return False if the session is not free yet."""
        record = await self._store.get(live.session.id)
        try:
            model, tools = self._models(message.model or record.model), self._tools(record)
        except AgenticXError as exc:
            _log.warning("queued message cannot begin its turn; handing it back", error=str(exc))
            message.cancelled = True
            return True
        try:
            turn = await self._claim(message)
        except SessionBusy:
            return False
        except HubClosed:
            message.cancelled = True
            return True
        self._begin(live, turn, message, _TurnSetup(record, model, tools))
        return True

    def _begin(self, live: LiveSession, turn: TurnRecord, message: QueuedMessage, setup: _TurnSetup) -> RunningTurn:
        running = RunningTurn(turn, derived_name=derive_name(turn.input) if setup.record.name is None else None)
        self._turns.begin(live, running, message.message, setup.model, setup.tools)
        return running

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop(self, session_id: str) -> TurnRecord | None:
        """Request the end of the session's running turn and return it, None when none runs.

        Queued messages are handed back once no turn runs.
        """
        await self._store.get(session_id)
        live = self._session_cache.get(session_id)
        if live is None:
            return None
        live.queue.cancel()
        running = live.running_turn
        if running is not None:
            running.stop.set()
            return running.turn
        await self._dispatcher.lock_and_dispatch(live)
        return None

    def running_turn_id(self, session_id: str) -> str | None:
        """Return the id of the turn that the session runs, None when none runs."""
        live = self._session_cache.get(session_id)
        return live.running_turn.turn.id if live and live.running_turn else None

    async def close(self) -> None:
        """Stop all turns and wait for them, bounded; no turn begins afterwards and queued messages are handed back.

        If the store outlives the process, turns that wait for a confirmation stay as they are, and so do the messages
        queued after them: they continue after a restart.
        """
        self._closing = self._dispatcher.closing = True
        self._turns.suspend_waiting_turns()
        await self._turns.stop_all(list(self._turns.running))
        await self._dispatcher.close()

    async def _open(self, session_id: str) -> LiveSession:
        return await self._session_cache.open(await self._store.get(session_id))

    # --- after a restart ----------------------------------------------------------------------------------------------

    async def recover(self, *, resume_only: Collection[str] | None = None) -> None:
        """Resume or end the turns of the previous process; call it before any other method.

        Messages queued after a turn that resumes stay queued. All other queued messages are handed back: nothing begins
        by itself at a start. A process that serves only some sessions names them in `resume_only`: a resumable turn of
        any other session is left unchanged, with the messages queued after it, for a later call or process.
        """
        await self._restore_queued(lambda session_id: resume_only is None or session_id in resume_only)
        for turn in await self._store.unfinished_turns():
            if self._turns.get(turn.id) is None:
                with self._contain_store_errors(turn.session_id, turn):
                    await self._turns.end_leftover_processes(turn)
                    await self._recover(turn, may_resume=resume_only is None or turn.session_id in resume_only)
        resumed = {turn.session_id for turn in await self._store.unfinished_turns()}
        await self._restore_queued(lambda session_id: session_id not in resumed)
        await self._dispatcher.resume()
        for entry in await self._store.open_journal_entries("named", "told"):
            if entry.session_id not in resumed:
                with self._contain_store_errors(entry.session_id):
                    await self._record_updater.announce_name(await self._open(entry.session_id), entry.turn_id)

    @contextmanager
    def _contain_store_errors(self, session_id: str, turn: TurnRecord | None = None) -> Generator[None]:
        """Log a `StoreError` of one session, so that the others are recovered.

        `turn` is then ended before the session's next turn begins.
        """
        with bound_ids(session=session_id, turn=turn.id if turn else None):
            try:
                yield
            except StoreError as exc:
                _log.error("session recovery failed", error=str(exc))
                if turn is not None:
                    self._turns.end_later(turn)

    async def _restore_queued(self, wanted: Callable[[str], bool]) -> None:
        """Restore the queued messages of the previous process in the sessions that `wanted` accepts."""
        for entry in await self._store.open_journal_entries("posted", "taken"):
            if wanted(entry.session_id):
                with self._contain_store_errors(entry.session_id):
                    self._dispatcher.restore(await self._open(entry.session_id), entry)

    async def _recover(self, turn: TurnRecord, *, may_resume: bool) -> None:
        """Resume the turn, leave it unchanged (resumable, but not `may_resume`), or end it as interrupted."""
        if turn.after_seq is None:
            return await self._store.release(turn)
        record = await self._store.get(turn.session_id)
        live = await self._session_cache.open(record)
        interrupted = await self._turns.read_interrupted(turn)
        with map_decode_errors("the log of a turn"):
            point = (
                resume_point(interrupted, live.session.messages, self._idempotency_check(record))
                if self._turns.can_resume
                else None
            )
        if point is not None and not may_resume:
            return None
        if point is not None:
            try:
                model, tools = self._models(record.model), self._tools(record)
                settings = await self._turns.read_settings(live.session.workspace)
            except AgenticXError as exc:
                _log.warning("turn cannot be resumed", error=str(exc))
            else:
                running = RunningTurn(turn, derived_name=derive_name(turn.input))
                running.started.set_result(turn.after_seq)
                return self._turns.begin(live, running, point, model, tools, settings)
        events = await self._turns.end(live, turn, "interrupted", "The program ended while this turn was running.")
        log_interrupted_turn(events, interrupted.questions, rounds=interrupted.round, usage=interrupted.usage)

    def _idempotency_check(self, record: SessionRecord) -> Callable[[str], bool]:
        """Return a predicate: True if the session has an idempotent tool of that name, whose calls may run again."""

        def is_repeatable(name: str) -> bool:
            try:
                tools = self._tools(record)
            except AgenticXError:
                return False
            return any(is_idempotent(tool) for tool in tools if tool.schema.name == name)

        return is_repeatable

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and append a `session_changed` event."""
        return await self._record_updater.change(session_id, changes)

    async def delete(self, session_id: str) -> None:
        """Stop the session's turn and delete the session with its queued messages; it may be unreadable."""
        live = await self._session_cache.open_for_deletion(session_id)
        await run_to_completion(self._delete(live))

    async def _delete(self, live: LiveSession) -> None:
        session_id = live.session.id
        async with live.lock:  # no turn begins meanwhile; callers that wait for the lock get SessionNotFound
            self._dispatcher.discard(live)
            await self._turns.stop_all(
                [running for running in self._turns.running if running.turn.session_id == session_id]
            )
            if self._snapshots is not None:
                await run_in_thread(self._snapshots.delete, session_id)
            await self._store.delete(session_id)
            self._dispatcher.discard(live)
            self._turns.discard(session_id)
            self._session_cache.discard(session_id)

    async def rewind(self, session_id: str, message_id: str | None) -> RewindResult:
        """Truncate the session's conversation after that message (None: to nothing) and restore files to that point.

        Raises `SessionNotFound`, `MessageNotFound`, `SessionBusy` while a turn runs, `HubClosed`, `StoreError`.
        """
        return await run_to_completion(self._rewind(await self._open(session_id), message_id))

    async def _rewind(self, live: LiveSession, message_id: str | None) -> RewindResult:
        async with live.lock:
            self._check_open()
            await self._dispatcher.dispatch(live)
            claim = await self._turns.claim(TurnRecord(session_id=live.session.id, input=""))
            try:
                return await rewind(self._store, live, message_id, self._snapshots, private=self._private_paths)
            finally:
                await self._turns.release(claim)

    async def _announce_name(self, live: LiveSession, running: RunningTurn) -> None:
        if running.derived_name is not None and not self._closing:
            await self._record_updater.announce_name(live, running.turn.id)


@dataclass(frozen=True, slots=True)
class _TurnSetup:
    """The session's record, model and tools with which a turn runs."""

    record: SessionRecord
    model: ChatModel
    tools: Sequence[Tool]
