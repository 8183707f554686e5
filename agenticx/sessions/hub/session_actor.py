"""The actor of a session: the commands to it, its queued messages, and the choice of the next turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agenticx.errors import AgenticXError, SessionBusy, SessionNotFound, SettingsError, StoreError
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import UserMessage, new_id
from agenticx.permissions.rule_stores import UnknownRule
from agenticx.permissions.rules import Rule
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.runtime.options import Variants, options_work
from agenticx.runtime.session import Option
from agenticx.runtime.turn_context import TurnWork
from agenticx.runtime.user_requests.requests import UserAnswer
from agenticx.sessions.files.artifacts import SessionContents
from agenticx.sessions.files.options import OptionNotDone, OptionState, find_option, option_states, pick_text
from agenticx.sessions.hub import commands
from agenticx.sessions.hub.answers import store_answer
from agenticx.sessions.hub.live_turns import LiveTurns, MainTurn
from agenticx.sessions.hub.queue import (
    MessageQueue,
    QueuedMessage,
    message_key,
    read_queued,
    recorded_submission,
    steer,
)
from agenticx.sessions.hub.recovery import end_leftover_processes
from agenticx.sessions.hub.retries import RetriedWork
from agenticx.sessions.hub.rewind import RewindResult, complete_rewind, rewind, session_snapshots
from agenticx.sessions.hub.state_tracker import load_session
from agenticx.sessions.hub.submission import HubClosed, NotQueued, Submission, TurnRequest, check_same_input, check_task
from agenticx.sessions.hub.turn_runner import TurnRunner
from agenticx.sessions.hub.turn_services import TurnServices, TurnSetup
from agenticx.sessions.hub.writer import SessionWriter, run_to_completion
from agenticx.sessions.log.commits import DamagedFact, LoadedSession
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.records import CLOSING_CLASSES, Fact, MessagePosted, MessageTaken, NameDerived
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.state import StoredSession
from agenticx.sessions.store.attachments import AttachmentLease
from agenticx.sessions.store.base import OwnershipLost, find_fact
from agenticx.sessions.store.hosts import is_workspace_here
from agenticx.settings import using_provider_variables

__all__ = ["SessionActor"]

_INTERRUPT_SECONDS = 2.0  # time for a turn to end before the interrupting message is reported as queued
_REPLACED = "The application began another turn instead of going on with this one."
_USERS_SECONDS = 1.0  # time for operations under way to end while the hub closes

_log = get_logger(__name__)


class SessionActor:
    """A session in memory: its conversation, its writer, its running turn, its queued messages and its requests.

    Only the holder of the lock decides what the session does next: whether a message is queued, begins a turn or is
    handed back, and whether the session is rewound or deleted. `is_here` is true on the host of the workspace;
    `deleted` is set once the session is deleted.
    """

    def __init__(self, lease: AttachmentLease, loaded: LoadedSession, services: TurnServices) -> None:
        self.id = lease.session_id
        self._contents = SessionContents(services.blobs, self.id)
        with map_decode_errors(f"state of session {self.id!r}"):
            self.session = load_session(loaded.record, loaded.state, self._contents)
        self.session.on_waiting = services.permission_watch.follow
        self.is_here = is_workspace_here(loaded.record, services.log)
        self.lease = lease
        self._services = services
        self._queue = MessageQueue()
        self._due_pick: Option | None = None
        stored = StoredSession.of(loaded)
        live = LiveTurns(stored)
        self._writer = SessionWriter(lease, stored, self.session, self._queue, services.clock, live.update)
        self._snapshots = session_snapshots(lease, services.store, self._writer)
        self.session.snapshots = self._snapshots
        self._dispatching = RetriedWork(self._try_dispatch, services.clock, f"agx dispatching {self.id}")
        self.turns = TurnRunner(self.session, self._writer, services, live, self._on_free)
        self._lock, self._answer_lock = asyncio.Lock(), asyncio.Lock()
        self._users, self.deleted = 0, False
        self._is_deleting = False  # the lease ends before the session is deleted
        self._unused = asyncio.Event()
        self._unused.set()

    async def perform(self, command: commands.Command) -> Any:
        """Carry out a command and return its result; raises as the operation does.

        Raises `NothingStored` if another owner has the session and the command is known to have stored nothing.
        """
        effects = self._writer.known_effects
        try:
            with self._used():
                return await self._perform(command)
        except OwnershipLost as exc:
            if self._is_deleting:
                raise SessionNotFound(f"session {self.id!r} was deleted") from exc
            if self._writer.effect_count == effects:
                raise commands.NothingStored(str(exc)) from exc
            raise

    async def _perform(self, command: commands.Command) -> Any:
        match command:
            case commands.Submit():
                return await self.submit(command)
            case commands.SuspendedTurn():
                return self.turns.suspended_turn and self.turns.suspended_turn.record
            case commands.Stop():
                return await self.stop()
            case commands.Change():
                return await self.change(command.changes)
            case commands.Rewind():
                return await run_to_completion(self.rewind(command.message_id))
            case commands.ResetTeam():
                return await self.reset_team(command.team)
            case commands.Answer():
                return await self.answer(command)
            case commands.Delete():
                return await run_to_completion(self.delete())
            case _:
                return await self._perform_on_part(command)

    async def _perform_on_part(
        self,
        command: commands.ChangeQueued
        | commands.RemoveRule
        | commands.Pick
        | commands.StopOption
        | commands.ListSubagents
        | commands.DirectSubagent,
    ) -> Any:
        """Carry out a command about a queued message, a rule, an option or a sub-agent."""
        match command:
            case commands.ChangeQueued():
                return await self.change_queued(command)
            case commands.RemoveRule():
                return await run_to_completion(self.remove_rule(command.rule_id))
            case commands.Pick():
                return await self.pick(command.number)
            case commands.StopOption():
                return await self.stop_option(command.number)
            case _:
                return await self.turns.subagents.perform(command, self._check_open, self._lock)

    @contextmanager
    def _used(self) -> Generator[None]:
        """Keep the actor in memory while the block runs."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._unused.set()

    @property
    def is_idle(self) -> bool:
        """True if nothing of the session is lost when its actor is dropped."""
        return self.turns.is_idle and not (self._users or self._queue.messages or self._dispatching)

    @property
    def can_leave(self) -> bool:
        """True if another owner can have the session at once: no turn runs and no command is being carried out.

        A turn that waits for an answer continues at the other owner, with the messages queued after it.
        """
        is_used = self._users or self._dispatching or self._lock.locked() or self._answer_lock.locked()
        has_next = self._queue.messages and self.turns.current is None
        return not (is_used or has_next or self._writer.pending_write is not None) and self.turns.can_leave

    @property
    def has_work(self) -> bool:
        """True if something of the session is still to be continued or ended."""
        return self._writer.stored.has_work or self.turns.subagents.has_unended

    @property
    def has_suspended(self) -> bool:
        """True if a turn of an earlier process is still suspended."""
        return self.turns.live.has_suspended

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def submit(self, command: commands.Submit) -> Submission:
        """Accept a message and return its state, see `Hub.submit` and, for work, `Hub.run_work`."""
        record, request, work = self._writer.record, command.request, command.work
        if request.variants is not None:
            work = self._variants_work(record, request.variants)
        if request.compact:
            work = self._compaction_work(record)
        setup = self._services.turn_setup(record, request.model, request.sampling, work, command.objects)
        if request.output_schema is not None and setup.work is not None:
            raise SettingsError("an output_schema is for the answer of one agent; a team and variants take none")
        admitted: Submission | MainTurn | QueuedMessage | None = None
        if command.work is not None and command.turn_id is not None:
            admitted = await self._resume_work(setup, command.turn_id)
        elif command.work is not None:
            await self._end_suspended_turn()
        admitted = admitted or await self._admit(request, record, setup, work)
        if isinstance(admitted, Submission):
            return admitted
        if isinstance(admitted, MainTurn):
            after_seq = await asyncio.shield(admitted.started)
            shown_after = after_seq if admitted.picked_after is None else admitted.picked_after
            turn = replace(admitted.record, after_seq=after_seq)
            return Submission(state="started", turn=turn, after_seq=shown_after)
        if request.when_busy == "interrupt":
            with suppress(TimeoutError):
                await asyncio.wait_for(admitted.resolved.wait(), self._services.clock.real(_INTERRUPT_SECONDS))
        return await self._current_submission(admitted)

    async def _resume_work(self, setup: TurnSetup, turn_id: str) -> MainTurn:
        """Continue the turn `turn_id`, which is suspended until the application runs the work of `setup`."""
        async with self._lock:
            self._check_open()
            async with self._answer_lock:
                return await run_to_completion(self.turns.resume_work(turn_id, setup))

    async def _end_suspended_turn(self) -> None:
        """End the turn that waits for the application to run its work again, if any: it has begun another turn."""
        async with self._lock:
            self._check_open()
            await run_to_completion(self.turns.end_suspended_turn("interrupted", _REPLACED))

    async def _admit(
        self, request: TurnRequest, record: SessionRecord, setup: TurnSetup, work: TurnWork | None
    ) -> Submission | MainTurn | QueuedMessage:
        """Return the earlier submission of the message, the turn that it began, or the message if it was queued.

        `setup` was made from `record`, which may have changed since: a reader may see a handoff before its commit has
        returned.
        """
        async with self._lock:
            while True:
                self._check_open()
                await self._dispatch()
                if (earlier := await self._earlier_submission(request)) is not None:
                    return earlier
                self._check_open()
                if self.turns.is_free and not self._queue.messages:
                    if self._writer.record.team is not None:
                        check_task(request, self.session.messages)
                    if self._writer.record is not record:
                        now, objects = self._writer.record, setup.objects
                        setup = self._services.turn_setup(now, request.model, request.sampling, work, objects)
                    picked_after = await self._pick_first()
                    self.session.auto_consent.is_given |= request.permission_mode == "auto"
                    message = QueuedMessage.from_request(self.id, request)
                    turn = replace(message.to_turn(), variants=request.variants)
                    running = self.turns.begin(turn, message.message, setup)
                    running.picked_after = picked_after
                    return running
                if self.turns.is_free or self.turns.has_pending_end:
                    continue  # the turn has ended since: its end and the queue come first
                if request.when_busy == "reject" or self.turns.stays_suspended:
                    await self._check_free()
                    continue
                if self.turns.current is not None:
                    message = QueuedMessage.from_request(self.id, request)
                    await run_to_completion(self._enqueue(message, request))
                    self.session.auto_consent.is_given |= request.permission_mode == "auto"
                    return message

    def _check_exists(self) -> None:
        if self.deleted:
            raise SessionNotFound(f"no session has the id {self.id!r}")

    def _check_open(self) -> None:
        self._check_exists()
        if self._services.closing:
            raise HubClosed("the server is shutting down; try again when it is back")

    async def _check_free(self) -> None:
        """Raise `SessionBusy` while a turn runs."""
        if not self.turns.is_free:
            with suppress(StoreError):  # a reader may have the turn's end before its commit has returned
                await self._writer.resolve_pending()
        if not self.turns.is_free:
            await self.lease.check()
            main = self.turns.live.main
            waits = any(self._services.gate.pending_requests(self.id))
            hint = ", which waits for an answer (`hub.open_requests` has the question)" if waits else ""
            raise SessionBusy(f"session {self.id!r} already runs turn {main.id if main else None!r}{hint}")

    @asynccontextmanager
    async def _while_free(self) -> AsyncGenerator[None]:
        """Hold the lock while no turn runs; raises `SessionBusy` if one does."""
        async with self._lock:
            self._check_open()
            await self._dispatch()
            await self._check_free()
            yield

    async def _earlier_submission(self, request: TurnRequest) -> Submission | MainTurn | None:
        """Return the state of an earlier message with the same `client_turn_id`, None without one.

        Raises `TurnConflict` if that had another input. A message that was reported as failed but is stored is queued
        again, which may append an event.
        """
        client_turn_id = request.client_turn_id
        if client_turn_id is None:
            return None
        if self._writer.pending_write is not None:
            await run_to_completion(self._writer.resolve_pending())
        await self.lease.check()
        key = message_key(self.id, client_turn_id)
        if (message := self._queue.get(key)) is not None:
            check_same_input(client_turn_id, message.message, request)
            await run_to_completion(self._requeue(message))
            return await self._current_submission(message)
        if (taken := await find_fact(self._services.log, self.id, MessageTaken, key)) is not None:
            submission = recorded_submission(self.id, taken)
            check_same_input(client_turn_id, submission.turn, request)
            return await self._resolved_submission(submission)
        main = self.turns.live.main
        if main is not None and main.record.client_turn_id == client_turn_id and not main.has_failed_to_begin:
            check_same_input(client_turn_id, main.record, request)
            return main
        turn = await self._services.log.turn(self.id, client_turn_id=client_turn_id)
        if turn is None:
            return None
        check_same_input(client_turn_id, turn, request)
        return Submission(state="started", turn=turn, after_seq=turn.after_seq or 0)

    async def _requeue(self, message: QueuedMessage) -> None:
        """Queue a message again that was to be handed back because it was reported as failed."""
        if not message.refused:
            return
        message.refused = message.cancelled = False
        if message.steers:
            running = self.turns.current
            await steer(message, running and running.steering, new_id("turn"), self._writer.commit)

    async def _current_submission(self, message: QueuedMessage) -> Submission:
        """Return the current state of `message`; raises `SessionNotFound` if its session was deleted."""
        if message.resolved.is_set():
            await self.lease.check()
            taken = await find_fact(self._services.log, self.id, MessageTaken, message.key)
            if taken is None:
                raise SessionNotFound(f"session {self.id!r} was deleted")
            return await self._resolved_submission(recorded_submission(self.id, taken))
        return message.to_submission(self._writer.seq)

    async def _resolved_submission(self, submission: Submission) -> Submission:
        turn = await self._services.log.turn(self.id, submission.turn.id)
        return replace(submission, turn=turn or submission.turn)

    # --- the queue ----------------------------------------------------------------------------------------------------

    async def _enqueue(self, message: QueuedMessage, request: TurnRequest) -> None:
        """Queue `message` durably: to run after the running turn, or to steer it. The caller holds the lock."""
        self._queue.check_capacity(message.message)
        running, own_turn_id = self.turns.current, message.turn_id
        if request.when_busy == "steer" and running is not None and not running.steering.closed:
            message.turn_id, message.steers = running.id, True
        try:
            await self._writer.commit(
                None,
                [message.to_event(EventType.QUEUED)],
                facts=[message.to_fact()],
                on_stored=lambda: self._queue.add(message),
            )
            if message.steers:
                await steer(message, running and running.steering, own_turn_id, self._writer.commit)
        except StoreError:
            message.refused = message.cancelled = True  # if it is stored nevertheless, it is handed back
            self._dispatch_soon()
            raise
        if running is not None and message.interrupts:
            running.stop.set()
        if self.turns.current is None:
            self._dispatch_soon()

    async def change_queued(self, command: commands.ChangeQueued) -> dict[str, Any] | None:
        """Change or remove a queued message, see `Hub.change_queued`."""
        async with self._lock:
            self._check_open()
            await self._dispatch()
            return await run_to_completion(self._change_queued(command))

    async def _change_queued(self, command: commands.ChangeQueued) -> dict[str, Any] | None:
        message, running = self._queue.find(command.message_id), self.turns.current
        has_begun = message is not None and running is not None and running.id == message.turn_id and not message.steers
        if message is None or has_begun:
            raise NotQueued(f"no message with the id {command.message_id!r} waits in session {self.id!r}")
        changed = self._queue.changed(message, command.text)
        inbox = None if running is None else running.steering
        if message.steers and not (inbox is not None and inbox.remove(command.message_id)):
            raise NotQueued(f"the running turn reads message {command.message_id!r}, which cannot be changed any more")
        try:
            if command.is_removed:
                if message.steers:  # else readers of the running turn would take this outcome for the end of their turn
                    changed.turn_id = new_id("turn")
                await self._writer.commit(None, [changed.to_event(EventType.HANDED_BACK, removed=True)])
                return None
            former = _set_time(changed, command.when_busy, running)
            await self._writer.commit(
                None,
                [changed.to_event(EventType.QUEUED, **former)],
                facts=[changed.to_fact()],
                on_stored=lambda: self._queue.apply_change(message, changed),
            )
        except StoreError:
            if message.steers and inbox is not None:
                inbox.put(message.message)
            raise
        if message.steers:
            await steer(message, inbox, new_id("turn"), self._writer.commit)
        elif message.interrupts and running is not None:
            running.stop.set()
        return message.to_json()

    async def _dispatch(self) -> None:
        """Hand back cancelled messages and begin the turn of the first queued one, if no turn runs.

        Messages that steered the ended turn too late are handed back as well, and all messages once the hub is closing.
        The caller holds the lock.
        """
        main, queue, writer = self.turns.live.main, self._queue, self._writer
        if main is not None:
            if not main.is_over:
                return
            await self.turns.wait_until_done(main)
            if queue.messages and main.has_failed_to_begin:
                queue.cancel(main.id)
        if writer.pending_write is not None:
            await run_to_completion(writer.resolve_pending())
        if (main := self.turns.live.main) is not None and main.has_pending_end:
            await self.turns.end_pending(main)
        if self.turns.is_free:
            await self._store_due_pick()
        while queue.messages and self.turns.is_free:
            closing = self._services.closing
            returned = [message for message in queue.messages if message.cancelled or message.steers or closing]
            if returned:
                events = [message.to_event(EventType.HANDED_BACK) for message in returned]
                await run_to_completion(writer.commit(None, events))
            else:
                await self._pick_first()
                self._begin_queued(queue.messages[0])

    def _begin_queued(self, message: QueuedMessage) -> None:
        """Begin the turn of a queued message with the variables of its terminal, or cancel the message."""
        with using_provider_variables(message.provider_variables):
            self._begin_queued_turn(message)

    def _begin_queued_turn(self, message: QueuedMessage) -> None:
        try:
            setup = self._services.turn_setup(self._writer.record, message.model, message.sampling)
        except AgenticXError as exc:
            _log.warning("queued message cannot begin its turn; handing it back", error=str(exc))
            message.cancelled = True
            return
        running = self.turns.begin(message.to_turn(), message.message, setup)
        if self._queue.has_interrupt(message.turn_id):
            running.stop.set()

    def _on_free(self, failed: bool) -> None:
        """Continue with the queue after a turn; a turn whose end could not be stored is ended first."""
        if failed or self._queue.messages or self._due_pick is not None:
            self._dispatch_soon(failed=failed)

    def _dispatch_soon(self, *, failed: bool = False) -> None:
        """Run `_dispatch` in a task, after a pause if the storage has just `failed`, until it succeeds."""
        if not (failed and self._services.closing):
            self._dispatching.start(failed=failed)

    async def _try_dispatch(self) -> bool:
        """Dispatch and return True; if the store fails, cancel the queued messages and return False.

        They are handed back once the store works again.
        """
        try:
            await run_to_completion(self._lock_and_dispatch())
        except (SessionNotFound, OwnershipLost):  # deleted meanwhile, with its queue, or another owner's now
            self._queue.clear()
            self.turns.live.leave()
        except StoreError as exc:
            _log.error("queue dispatch failed; retrying", session=self.id, error=str(exc))
            self._queue.cancel()
            return False
        return True

    async def _lock_and_dispatch(self) -> None:
        async with self._lock:
            await self._dispatch()

    # --- endings ------------------------------------------------------------------------------------------------------

    async def stop(self) -> TurnRecord | None:
        """Request the end of the running turn and return it, None when none runs; hand back the queued messages."""
        await self.lease.check()
        self._queue.cancel()
        self.turns.stop_children()
        if (running := self.turns.current) is not None:
            running.stop.set()
            return running.record
        await self._lock_and_dispatch()
        return None

    async def close(self) -> None:
        """Hand back the queued messages, unless a suspended turn is in front of them, and release the lease."""
        try:
            if self._queue.messages or self.turns.has_pending_end or self._due_pick is not None:
                await self._lock_and_dispatch()
        except StoreError as exc:
            _log.error("messages stay queued until restart", error=str(exc))
        await self._dispatching.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._services.clock.real(_USERS_SECONDS)):
                await self._unused.wait()
        await self.lease.release(work_left=bool(self._queue.messages or self.turns.live.by_id))

    async def abandon(self) -> None:
        """End all tasks without writing anything: another owner has the session."""
        await self.turns.abandon()
        await self._dispatching.cancel()
        self._queue.clear()

    # --- after a restart ----------------------------------------------------------------------------------------------

    async def recover(self, *, may_resume: bool) -> None:
        """Resume or end the turn that an earlier owner left, and continue with the messages queued after it.

        Unless `may_resume`, a resumable turn stays suspended, with those messages; see `Hub.recover`.
        """
        with self._used():
            async with self._lock:
                await self._recover(may_resume=may_resume)

    async def _recover(self, *, may_resume: bool) -> None:
        async with self._answer_lock:  # resumed turns would not see an answer that is stored meanwhile
            loaded = await self._writer.read()
            await end_leftover_processes(self._services.log, loaded.open_facts)
            if self.turns.current is None:
                turn = loaded.main_turn
                with bound_ids(session=self.id, **({} if turn is None else {"turn": turn.id})):
                    try:
                        await self.turns.recover(loaded, may_resume=may_resume)
                    except StoreError as exc:
                        _log.error("session recovery failed", error=str(exc))
                        if (main := self.turns.live.main) is not None and main.status == "suspended":
                            self.turns.end_later(main)
        await self.turns.subagents.recover()
        if not self.turns.stays_suspended:
            await self._recover_facts(loaded.damaged_facts)

    async def _recover_facts(self, damaged: Sequence[DamagedFact]) -> None:
        """Complete a rewind, go on with the queued messages, and announce a name; the caller holds the lock."""
        await complete_rewind(
            self._services.log,
            self.session,
            self._writer,
            self._snapshots,
            note_folders=await self._note_folders(),
            private=self._services.settings.private_paths,
        )
        stored = self._writer.stored
        posted = [fact for fact in stored.queued if self._queue.get(fact.key) is None]
        restored = [QueuedMessage.from_fact(self.id, fact) for fact in posted]
        for message in restored:
            self._queue.add(message)
        for derived in stored.open_facts_of(NameDerived):
            self.turns.unannounced = derived
        await self._give_up_damaged([fact for fact in damaged if fact.key and fact.kind in CLOSING_CLASSES])
        if (running := self.turns.current) is None:
            self._queue.cancel()
        elif self._queue.has_interrupt():
            running.stop.set()
        else:
            for message in restored:  # other messages that it has taken in stay queued until that is stored
                if message.steers:
                    running.steering.put(message.message)
        await self._dispatch()
        if self.turns.current is None:
            await self.turns.announce_name()

    async def _give_up_damaged(self, damaged: Sequence[DamagedFact]) -> None:
        """Report unreadable work of a session and close it, so that no later start tries it again.

        A queued message is handed back with the text of its `queued` event.
        """
        posted = [fact.key for fact in damaged if fact.kind == MessagePosted.kind]
        messages: list[QueuedMessage] = []
        if posted:
            with suppress(DamagedData):  # which is logged
                messages = await read_queued(self._services.log, self.id, posted)
        for message in messages:
            _log.error("queued message is damaged in the storage; handing back its text", message=message.key)
            if self._queue.get(message.key) is None:
                self._queue.add(message)
        handed_back = {message.key for message in messages}
        lost = [fact for fact in damaged if fact.key not in handed_back]
        for fact in lost:
            _log.error(
                "work of the session is damaged in the storage and was given up", kind=fact.kind, record=fact.key
            )
        if lost:
            await run_to_completion(self._writer.commit(None, [], facts=[_closing_fact(fact) for fact in lost]))

    # --- the session --------------------------------------------------------------------------------------------------

    async def change(self, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and append the `session_changed` event.

        For a workspace raise `SessionBusy` while a turn or a sub-agent runs or waits.
        """
        if "workspace" not in changes:
            return await self._change(changes)
        async with self._while_free():
            self.turns.subagents.check_free()
            return await run_to_completion(self._move(changes))

    async def _move(self, changes: dict[str, Any]) -> SessionRecord:
        """Change the workspace, and drop the rules that the user gave in the former one."""
        rules, self.session.rules = self.session.rules, []
        try:
            record = await self._change(changes, has_state=True)
        except BaseException:
            self.session.rules = rules
            raise
        self.session.workspace, self.is_here = Path(record.workspace), is_workspace_here(record, self._services.log)
        return record

    async def _change(self, changes: dict[str, Any], *, has_state: bool = False) -> SessionRecord:
        async with self.turns.record_lock:
            self._check_exists()
            lists = {key: tuple(changes[key]) for key in ("tools", "vaults") if changes.get(key) is not None}
            changes = changes | lists  # a command from elsewhere has lists
            if changes.get("agent") is not None and changes["agent"] == self._writer.record.agent_file:
                changes["agent"] = None  # the name of the main agent
            record = replace(self._writer.record, **changes)
            self._services.check_change(record, changes)
            shown = {name: value for name, value in changes.items() if name != "workspace_host"}
            event = RuntimeEvent(EventType.SESSION_CHANGED, shown)
            await run_to_completion(self._writer.commit(None, [event], record=record, has_state=has_state))
            self.session.permission_mode, self.session.active_agent = record.permission_mode, record.agent
            if "permission_mode" in changes:
                self.session.auto_consent.is_given |= record.permission_mode == "auto"
                self.session.change_permissions()
            return record

    async def remove_rule(self, rule_id: str) -> Rule:
        """Remove a rule that the user gave for the session, and append the event; the next call is decided without it.

        Raises `UnknownRule`.
        """
        self._check_open()
        before = self.session.rules
        removed = next((rule for rule in before if rule.id == rule_id), None)
        if removed is None:
            raise UnknownRule(f"no rule of session {self.id!r} has the id {rule_id!r}")
        self.session.rules = [rule for rule in before if rule is not removed]
        event = RuntimeEvent(EventType.SESSION_CHANGED, {"rule_removed": rule_id})
        try:
            await self._writer.commit(None, [event], has_rules=True)
        except BaseException:
            self.session.rules.append(removed)
            raise
        self.session.change_permissions()
        return removed

    async def reset_team(self, team: str) -> None:
        """Append the event after which a team of that name starts afresh; raises `SessionBusy` while a turn runs."""
        async with self._lock:
            self._check_exists()
            await self._dispatch()
            await self._check_free()
            changed = RuntimeEvent(EventType.SESSION_CHANGED, {"team_reset": team})
            await run_to_completion(self._writer.commit(None, [changed]))

    async def rewind(self, message_id: str | None) -> RewindResult:
        """Truncate the conversation after that message, see `Hub.rewind`; do not cancel it midway."""
        async with self._while_free():
            self.turns.subagents.check_free()
            return await rewind(
                self._services.log,
                self.session,
                self._writer,
                message_id,
                self._snapshots,
                note_folders=await self._note_folders(),
                private=self._services.settings.private_paths,
            )

    def _compaction_work(self, record: SessionRecord) -> TurnWork:
        if record.team is not None:
            raise SettingsError(
                "the conversation of a team is not compacted; each participant has a history of its own"
            )
        return self._services.compaction_work

    # --- options ------------------------------------------------------------------------------------------------------

    def _variants_work(self, record: SessionRecord, variants: Variants) -> TurnWork:
        if record.team is not None:
            raise SettingsError("a session with a team makes no variants; use one without a team")
        return options_work(variants)

    async def pick(self, number: int) -> SessionRecord:
        """Take the files of an option into the session, and its answer into the conversation, see `Hub.pick`."""
        async with self._lock:
            self._check_open()
            await self._dispatch()
            option = find_option(self.session.options, number)
            (state,) = (await self._option_states([option])).values()
            main = self.turns.live.main
            if main is None or main.id != option.run_id or state.state != "done":
                await self._check_free()
                if state.state != "done":
                    raise OptionNotDone(
                        f"option {number} cannot be picked: it is {state.state}. {state.reason}".strip()
                    )
                await run_to_completion(self._store_pick(option))
                return self._writer.record
            self._due_pick = option
            for other in self.session.options:
                if other.run_id == option.run_id and other is not option:
                    other.stop()
        await self.turns.wait_until_done(main)
        async with self._lock:
            self._check_exists()
            await self._dispatch()
            return self._writer.record

    async def _store_due_pick(self) -> None:
        """Store the pick that was made while the turn of the options ran, unless they were rewound since."""
        if self._due_pick is not None and self._due_pick in self.session.options:
            await run_to_completion(self._store_pick(self._due_pick))
        self._due_pick = None

    async def stop_option(self, number: int) -> None:
        """Stop an option that runs; raise `UnknownOption`."""
        find_option(self.session.options, number).stop()

    async def _pick_first(self) -> int | None:
        """Pick the first finished option of the last ones before the next message, if the user has picked none.

        Return the sequence number before the event of the pick, None without one.
        """
        session, after_seq = self.session, self._writer.seq
        if not session.is_option_due:
            return None
        last = [option for option in session.options if option.run_id == session.options[-1].run_id]
        states = await self._option_states(last)
        done = next((option for option in last if states[option.turn_id].state == "done"), None)
        if done is None:
            session.is_option_due = False
            return None
        await run_to_completion(self._store_pick(done))
        return after_seq

    async def _option_states(self, options: Sequence[Option]) -> dict[str, OptionState]:
        turn_ids = [option.turn_id for option in options]
        return await option_states(self._services.log, self.id, turn_ids, running=())

    async def _store_pick(self, option: Option) -> None:
        session, message_id = self.session, new_id("msg")
        text = await pick_text(option)
        last = session.messages[-1] if session.messages else None
        if isinstance(last, UserMessage) and last.injected and last.content == text:
            return  # picked twice, for example by a double click
        artifacts, was_due = session.artifacts, session.is_option_due
        before = artifacts.branch_data()
        artifacts.take_over(option.artifacts)
        session.is_option_due = False
        session.messages.append(UserMessage(content=text, message_id=message_id, injected=True))
        data = {"picked": option.number, "message_id": message_id, "text": text}
        try:
            await self._writer.commit(None, [RuntimeEvent(EventType.SESSION_CHANGED, data)], has_state=True)
        except BaseException:
            artifacts.restore(before)
            session.is_option_due = was_due
            if session.messages and session.messages[-1].message_id == message_id:
                session.messages.pop()
            raise

    async def _note_folders(self) -> Collection[Path]:
        """Return the folders outside the workspace in which a rewind restores files."""
        return () if self._services.notes is None else await self._services.notes.folders()

    async def answer(self, command: commands.Answer) -> UserAnswer:
        """Answer a request to the user, see `store_answer`."""
        async with self._answer_lock:
            await self._wait_until_asked(command.request_id)
            return await store_answer(
                self.lease,
                self._services.log,
                self.turns.write_fact,
                self.turns.gate_of,
                command.request_id,
                command.answer,
                command.digest,
                workspace=str(self.session.workspace),
                now=self._services.clock.now(),
            )

    async def _wait_until_asked(self, request_id: str) -> None:
        """Wait until a turn that was just resumed has asked its request again, or has ended."""
        if (asked := self.turns.live.asked_again(request_id)) is not None:
            await asked.wait()

    async def delete(self) -> None:
        """Stop the turn and delete the session with its queued messages; do not cancel it midway."""
        async with self._lock:  # no turn begins meanwhile; callers that wait for the lock get SessionNotFound
            self._check_exists()
            self._queue.clear()
            await self.turns.stop()
            self._is_deleting = True
            try:
                await self._services.store.delete(self.lease.lease)
            except BaseException:
                self._is_deleting = False
                raise
            self.deleted = True
            self._queue.clear()
            self.turns.live.leave()
            if self._snapshots is not None:  # only now: if the lease is lost, they belong to another owner
                await self._snapshots.delete()
            await self._contents.delete()


def _closing_fact(damaged: DamagedFact) -> Fact:
    """Return the fact that closes damaged work by its key, which is all that is known of it."""
    if damaged.kind != MessagePosted.kind:
        return CLOSING_CLASSES[damaged.kind](key=damaged.key, turn_id=damaged.turn_id)
    return MessageTaken(
        key=damaged.key,
        turn_id=damaged.turn_id,
        state="handed_back",
        after_seq=0,
        message_id=damaged.key,
        client_turn_id=None,
        input="",
        attached="",
    )


def _set_time(message: QueuedMessage, when_busy: str | None, running: MainTurn | None) -> dict[str, str]:
    """Have a queued message read at another time; return the key with the turn that it will not begin."""
    if when_busy == "interrupt":
        message.turn_id = new_id("turn") if message.steers else message.turn_id
        message.interrupts, message.steers = True, False
    elif when_busy == "steer" and running is not None and not (message.steers or running.steering.closed):
        former, message.turn_id, message.steers = message.turn_id, running.id, True
        return {"former_turn_id": former}
    return {}
