"""The turns of a session: each is committed in batches while it runs, and gets a terminal event.

Readers get an event only once it is stored. So a client that resumes with its cursor gets exactly what it missed, and
all clients of a session see the same turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agenticx.errors import (
    AgenticXError,
    ResourcesExhausted,
    SessionNotFound,
    SettingsError,
    StoreError,
)
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import MAIN_AGENT, UserMessage
from agenticx.permissions.trusted_files import Instructions
from agenticx.resource_exhaustion import exhausted_error
from agenticx.runtime import (
    AsyncConfirmGate,
    EventType,
    RuntimeEvent,
    Session,
    TurnContext,
)
from agenticx.runtime.child_turns import TurnSuspended
from agenticx.runtime.events import OWNER_CLOSED
from agenticx.runtime.resume import ResumedTurn, ResumePoint
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.sessions.hub.child_turns import FactJournal, SessionChildTurns
from agenticx.sessions.hub.live_turns import NOT_STORED, DueEnd, LiveTurns, MainTurn
from agenticx.sessions.hub.recovery import OpenTurns, read_interrupted, resumable_turns
from agenticx.sessions.hub.session_fields import derive_name, name_announcement, with_switch
from agenticx.sessions.hub.subagents.budgets import TurnBudgets
from agenticx.sessions.hub.subagents.session_subagents import SessionSubagents
from agenticx.sessions.hub.submission import TurnFailed
from agenticx.sessions.hub.turn_services import NoteTurn, TurnConfiguration, TurnServices, TurnSetup
from agenticx.sessions.hub.writer import SessionWriter, run_to_completion
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import Fact, NameDerived
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.store.base import OwnershipLost, TurnEnded
from agenticx.subagents.tools import CURRENT_OWNER

__all__ = ["TurnRunner"]

_INTERRUPTED = DueEnd("interrupted", "The program ended while this turn was running.")
_CLOSING_SECONDS = 3.5  # a stopped turn may spend 3 s ending processes
_COMMIT_WAIT_SECONDS = 0.5  # for a commit whose events a reader may have already

_log = get_logger(__name__)


class TurnRunner:
    """The turns of one session, one after another; each always gets a terminal event.

    - `on_free` is called once a turn has ended, with True if its end could not be stored and must be tried again.
    - `unannounced` is the fact of a derived name whose event is not stored yet.
    - `children` are the child turns of live turns, `subagents` are the sub-agents among them.
    """

    def __init__(
        self,
        session: Session,
        writer: SessionWriter,
        services: TurnServices,
        live: LiveTurns,
        on_free: Callable[[bool], None],
    ) -> None:
        self.unannounced: NameDerived | None = None
        self.record_lock = asyncio.Lock()
        self.live = live
        self.children = SessionChildTurns(session, writer, services.log, live)
        self._budgets = TurnBudgets(session.id, services.log, services.settings)
        self.subagents = SessionSubagents(session, writer, services, self.children, self.ended_turn)
        self._session = session
        self._writer = writer
        self._services = services
        self._on_free = on_free
        self._tasks = set[asyncio.Task[None]]()

    @property
    def current(self) -> MainTurn | None:
        """The unfinished main turn, even if it waits for the application to run its work again; None without one."""
        main = self.live.main
        return main if main is not None and (main.accepts_events or main.awaits_resume) else None

    @property
    def suspended_turn(self) -> MainTurn | None:
        """The turn that waits for the application to run its work again, None if there is none."""
        main = self.live.main
        return main if main is not None and main.awaits_resume else None

    @property
    def has_pending_end(self) -> bool:
        """True if the end of the last main turn could not be stored."""
        return self.live.main is not None and self.live.main.has_pending_end

    @property
    def stays_suspended(self) -> bool:
        """True if a main turn is suspended until another process, or a later call, goes on with it."""
        return self.live.main is not None and self.live.main.stays_suspended

    @property
    def is_free(self) -> bool:
        """True if a turn may begin: no main turn is live, and the end of the last one is complete."""
        main = self.live.main
        return main is None or (main.status == "ended" and main.done_event.is_set())

    @property
    def is_idle(self) -> bool:
        """True if no turn's task runs, and all live turns stay suspended."""
        is_live = any(not turn.stays_suspended for turn in self.live.by_id.values())
        return not (self._tasks or is_live or self.subagents.is_busy)

    @property
    def can_leave(self) -> bool:
        """True if another owner could continue everything that goes on here: no turn runs."""
        if self.current is None:
            return self.is_idle
        can_suspend = self._services.can_resume and self._waits(self.current)
        return can_suspend and not (self.live.has_detached or self.subagents.is_busy)

    def begin(self, record: TurnRecord, message: UserMessage, setup: TurnSetup) -> MainTurn:
        """Begin a turn with a message, in a task."""
        live = self.live
        main = MainTurn(record=record, tree=live.tree, setup=setup)
        if self._writer.record.name is None:
            main.derived_name = derive_name(message.content)
        live.main = main
        live.add(main)
        self._start_task(main, message)
        return main

    def _resume(self, main: MainTurn, point: ResumePoint, setup: TurnSetup) -> MainTurn:
        """Go on with a suspended turn, in a task."""
        main.setup = setup
        main.expect_requests(point)
        main.resume()
        self._start_task(main, point)
        return main

    def _start_task(self, main: MainTurn, turn_input: UserMessage | ResumePoint) -> None:
        with bound_ids(session=self._session.id, turn=main.id):
            main.task = asyncio.create_task(self._run(main, turn_input), name=f"agx hub {main.id}")
            self._tasks.add(main.task)
            main.task.add_done_callback(partial(self._on_turn_task_done, main))

    def _on_turn_task_done(self, main: MainTurn, task: asyncio.Task[None]) -> None:
        """Report the error of a task to the loop's handler, as nothing awaits it, and end its turn."""
        self._on_task_done("a turn could not be ended", task)
        if task.cancelled() or task.exception() is None or main.done_event.is_set():
            return
        if main.status == "ended":
            self._mark_done(main)
        elif main.accepts_events or main.due_end is not None:
            main.fail_to_begin(TurnFailed("The turn failed because of an error in AgenticX."))
            self.end_later(main)

    def _on_task_done(self, message: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": message, "exception": exc, "task": task})

    async def _run(self, main: MainTurn, turn_input: UserMessage | ResumePoint) -> None:
        """Run the turn and store a terminal event in every case."""
        try:
            await self._run_into_log(main, turn_input)
            if main.accepts_events:
                await self._abort(main, "internal", "The turn ended without a terminal event.")
        except TurnSuspended as exc:
            _log.debug("turn suspended", why=str(exc))
        except asyncio.CancelledError:
            await self._abort(main, "interrupted", "The server shut down before the turn had ended.")
            raise
        except StoreError as exc:
            why = exc if isinstance(exc, SessionNotFound | OwnershipLost) else None
            await self._abort(main, "storage", f"The session's log could not be written: {exc}", why)
        except (SettingsError, ResourcesExhausted) as exc:
            await self._abort(main, "internal", f"The turn could not begin: {exc}", exc)
        except MemoryError:
            raise  # to the loop's handler, where `agx serve` exits
        except Exception as exc:
            _log.exception("turn failed")
            why = exhausted_error(exc)
            text = f"The turn failed: {why}" if why else "The turn failed because of an error in AgenticX."
            await self._abort(main, "internal", text, why)

    async def _run_into_log(self, main: MainTurn, turn_input: UserMessage | ResumePoint) -> None:
        """Run the turn to its end, and write its events in batches."""
        CURRENT_OWNER.set(self.subagents)
        session, services, setup = self._session, self._services, main.setup
        assert setup is not None
        await self.children.end_due()
        configuration = setup.configuration or await services.read_configuration(self._writer.record)
        notes = await self._enter_notes(main)
        if not main.accepts_events:  # suspended meanwhile
            return
        runtime = services.runtime(setup.model, configuration.settings)
        context = TurnContext(
            client_turn_id=main.record.client_turn_id,
            turn_id=main.id,
            child_turns=self.children,
            work=setup.work,
            deps=setup.deps,
            journal=FactJournal(main.id, partial(self._store_journal, main)),
            steering=main.steering,
            pacer=services.pacer,
            permission_mode=main.record.permission_mode,
            rules=services.rules,
            instructions=self._instructions(setup, configuration),
            agent=setup.agent,
            agents=setup.agents,
            shares_history=bool(services.agents),
            model_of=services.models,
            on_exhausted=(notes and notes.on_exhausted) or configuration.settings.on_exhausted,
            max_rounds=notes and notes.max_rounds,
            turn_seconds=notes and notes.turn_seconds,
            notes=notes and notes.notes,
            budget=await self._budgets.of(main.id) if self._budgets.has_limits else None,
        )
        output_type: Any = main.record.output_schema
        if not isinstance(turn_input, ResumePoint):
            session.state.context_variables.update(setup.objects.context_variables)
            output_type = setup.objects.output or output_type
        await runtime.write_turn(
            turn_input,
            session,
            partial(self._write_events, main),
            main.stop,
            tools=setup.tools if notes is None or notes.enabled is None else notes.enabled(setup.tools),
            system_prompt=configuration.system_prompt,
            output_type=output_type,
            sampling=main.record.sampling,
            context=context,
        )
        if main.status == "ended":
            await self._remove_dropped_contents()

    def _instructions(self, setup: TurnSetup, configuration: TurnConfiguration) -> Instructions | None:
        """Return the AGENTS.md files in the prompts of the turn; None for another agent and for own work."""
        has_own_work = setup.work is not None and self._writer.record.team is None
        return None if has_own_work or setup.agent is not None else configuration.instructions

    async def _remove_dropped_contents(self) -> None:
        """Delete the contents of old revisions of files that the stored state has no more."""
        try:
            await run_to_completion(self._session.artifacts.remove_dropped())
        except StoreError as exc:
            _log.warning("contents of old revisions could not be deleted", error=str(exc))

    async def _enter_notes(self, main: MainTurn) -> NoteTurn | None:
        """Return the notes of the turn; None for a session without vaults, and for a turn without model calls."""
        source, setup = self._services.notes, main.setup
        if source is None or setup is None:
            return None
        notes = await source.enter(self._writer.record, main.record)
        return notes if setup.work is None else None

    async def ended_turn(self, turn_id: str, agent_path: Sequence[str]) -> Turn:
        """Return a turn that has ended, or is only in the log, as the parent of detached child turns.

        `agent_path` has its agent and its ancestors' agents. Raises as `turn_setup` and `read_configuration` do.
        """
        services, record = self._services, self._writer.record
        setup = services.turn_setup(record, None, None, resumes=True)
        configuration = await services.read_configuration(record)
        runtime = services.runtime(setup.model, configuration.settings)
        budget = await self._budgets.of(turn_id)
        context = TurnContext(
            turn_id=turn_id,
            child_turns=self.children,
            deps=setup.deps,
            budget=budget,
            rules=services.rules,
            instructions=self._instructions(setup, configuration),
        )
        return runtime.ended_turn(self._session, agent_path=agent_path, tools=setup.tools, context=context)

    async def _write_events(self, main: MainTurn, batch: Sequence[RuntimeEvent]) -> None:
        """Store events of the turn; events after its terminal event are dropped."""
        if batch[-1].terminal and main.accepts_events:
            with suppress(StoreError):
                await self.children.end_due()
            await self.children.end_not_resumed(main.id)
            if self._services.closing:
                batch = [*batch[:-1], _stopped_by_end(batch[-1])]
        if not main.accepts_events:  # perhaps meanwhile
            if main.status != "suspended":
                _log.error("events after the terminal event dropped", count=len(batch))
            return
        if main.status == "queued":
            stored = await self._write_first_events(main, batch)
            main.started.set_result(stored[0].seq - 1)
        else:
            stored = await self._write_later_events(main, batch)
        if stored[-1].terminal:
            self._mark_done(main)
            if not self._services.closing:
                await self.announce_name()

    async def _store_journal(self, main: MainTurn, fact: Fact) -> None:
        self.children.check_open(main)
        await self.write_fact(fact)

    async def write_fact(self, fact: Fact) -> None:
        """Store a fact of a turn."""
        await self._writer.commit(fact.turn_id, facts=[fact])

    async def _write_first_events(self, main: MainTurn, first: Sequence[RuntimeEvent]) -> Sequence[StoredEvent]:
        """Store the first events of a turn; a session without a name gets the turn's `derived_name` with them."""
        turn = main.record
        async with self.record_lock:
            record = self._writer.record
            if main.derived_name is None or record.name is not None:
                return await self._writer.commit(turn.id, first, begins=turn)
            named = replace(record, name=main.derived_name)
            fact = NameDerived(key=turn.id, turn_id=turn.id, name=main.derived_name)

            def on_stored() -> None:
                self.unannounced = fact

            return await self._writer.commit(
                turn.id, first, begins=turn, record=named, facts=[fact], on_stored=on_stored
            )

    async def _write_later_events(self, main: MainTurn, batch: Sequence[RuntimeEvent]) -> Sequence[StoredEvent]:
        """Store events of a turn that has begun; with a handoff, the session's active agent changes in one commit."""
        is_last_of_guest = main.has_guest and batch[-1].terminal
        if not is_last_of_guest and all(event.type is not EventType.HANDOFF for event in batch):
            return await self._writer.commit(main.id, batch)
        async with self.record_lock:
            events, record, main.has_guest = with_switch(
                batch, self._writer.record, has_agent=self._services.has_agent, has_guest=main.has_guest
            )
            stored = await self._writer.commit(main.id, events, record=record)
            if stored[-1].terminal:
                self._session.active_agent = record.agent
            return stored

    async def announce_name(self) -> None:
        """Append the event of the name that a turn derived, unless the user has given another name meanwhile."""
        async with self.record_lock:
            if self.unannounced is not None:
                events, fact = name_announcement(self.unannounced, self._writer.record)
                await run_to_completion(self._writer.commit(None, events, facts=[fact]))
                self.unannounced = None

    async def _abort(self, main: MainTurn, code: str, text: str, why: AgenticXError | None = None) -> None:
        """Store a terminal event for a turn that cannot continue.

        If that fails, it is tried again before the next turn of the session. Callers that wait for the turn to begin
        get `why`, an error that the user can fix, if there is one.
        """
        if main.done_event.is_set() or main.due_end is not None or main.stays_suspended:
            return
        self.live.fail(main, DueEnd(code, text))
        try:
            main.fail_to_begin(why or (StoreError(text) if code == "storage" else TurnFailed(text)))
            await run_to_completion(self._end(main))
        except (SessionNotFound, OwnershipLost) as exc:
            _log.info("session has no owner here any more before its turn ended", why=str(exc))
            main.leave()
        except StoreError as exc:
            _log.error("end of turn could not be stored; retried before the next turn", why=text, error=str(exc))
            self.end_later(main)
        else:
            if code == "storage":
                _log.error("turn failed: its log could not be written", why=text)
            elif why is not None:
                _log.warning("turn could not begin", error=str(why))
        self._mark_done(main)

    def _mark_done(self, main: MainTurn) -> None:
        main.done_event.set()
        self._on_free(False)

    # --- endings ------------------------------------------------------------------------------------------------------

    async def wait_for_commit(self) -> None:
        """Wait, bounded, for the commit that is being made: a reader may have its events before a status shows them."""
        if self._writer.pending_write is not None:
            task = asyncio.create_task(self._resolve_pending(), name=f"agx commit of {self._session.id}")
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_task_done, "the outcome of a commit could not be found"))
            await asyncio.wait({task}, timeout=self._services.clock.real(_COMMIT_WAIT_SECONDS))

    async def _resolve_pending(self) -> None:
        with suppress(StoreError):
            await self._writer.resolve_pending()

    def suspend(self) -> None:
        """Suspend the turn and its child turns if it waits for the user and can continue after a restart.

        A call that waits for a child turn has begun, so a request of the child turn does not suspend its parent.
        Detached turns are suspended by themselves.
        """
        if not self._services.can_resume:
            return
        self.live.suspend_detached()
        main = self.current
        if main is not None and self._waits(main):
            self.live.suspend(main)
            self._writer.state_frozen = True
            if isinstance(turn := self._session.running_turn, Turn):
                turn.log.suspend()

    def _waits(self, main: MainTurn) -> bool:
        if main.setup is None:
            return True
        if self._makes_options(main.id):
            return False
        if main.status == "waiting" and not self._asks(main):
            return False
        if main.setup.work is None:
            return main.status == "waiting" and not self.live.has_attached
        return self.live.waits(main, has_work=True)

    def _asks(self, main: MainTurn) -> bool:
        """Return whether the turn has a request that is not decided; the event of a decision is stored later."""
        asked = {one.id for one in self._services.gate.pending_requests(self._session.id)}
        asked.update(id_ for id_, event in main.asked_again.items() if not event.is_set())
        return any(id_ in asked for id_ in main.logged.open_requests)

    def gate_of(self, turn_id: str) -> AsyncConfirmGate | None:
        """Return the gate that a turn asks; None if the turn is not here: it reads its answers when it is resumed."""
        main, child = self.live.main, self.live.by_id.get(turn_id)
        if main is not None and main.id == turn_id:
            return self._services.gate if main.status != "suspended" else None
        return self._services.gate if child is not None and child.runs_here else None

    async def stop(self) -> None:
        """Stop the turn and its child turns, and wait for their ends, bounded."""
        if self.live.main is not None:
            self.live.main.stop.set()
        self.stop_children()
        if tasks := list(self._tasks):
            _, late = await asyncio.wait(tasks, timeout=self._services.clock.real(_CLOSING_SECONDS))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)
        await self.subagents.close()
        await self.children.wait_until_released(self._services.clock.real(_CLOSING_SECONDS))

    def stop_children(self) -> None:
        """Stop the child turns, and the sub-agents that have not begun theirs."""
        self.children.stop()
        self.subagents.stop()

    async def abandon(self) -> None:
        """End all tasks without writing anything: another owner has the session."""
        self.live.abandoned = True
        self.stop_children()
        if (main := self.live.main) is not None and main.status != "ended":
            main.leave()
            main.fail_to_begin(OwnershipLost(f"session {self._session.id!r} has another owner"))
            main.done_event.set()
        for task in self._tasks:
            task.cancel()
        await self.subagents.abandon()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._services.clock.real(_CLOSING_SECONDS))

    async def wait_until_done(self, main: MainTurn) -> None:
        """Wait until a turn that is over has completed its end; if its task was cancelled the caller does that."""
        if main.task is not None and not main.task.done():
            done = asyncio.ensure_future(main.done_event.wait())
            try:
                await asyncio.wait({done, main.task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                done.cancel()
        main.done_event.set()

    def end_later(self, main: MainTurn) -> None:
        """Mark a turn that cannot be ended now: it is ended before the next turn of the session."""
        self.live.fail(main, NOT_STORED)
        main.done_event.set()
        self._on_free(True)

    async def end_pending(self, main: MainTurn) -> None:
        """Store the end of a turn that could not be stored before; raises `StoreError` if it fails again."""
        await run_to_completion(self._end(main))

    async def _end(self, main: MainTurn) -> None:
        """Store the due end of a turn, unless it is stored: a commit that was reported as failed may be."""
        loaded = await self._writer.reload()
        if loaded.main_turn is not None and loaded.main_turn.id == main.id and main.due_end is not None:
            await self._append_end(loaded, loaded.main_turn, main.due_end)
        self.live.remove(main)

    async def _append_end(self, loaded: LoadedSession, record: TurnRecord, end: DueEnd) -> None:
        """End a turn after its child turns: append events that answer its open calls and requests, and its end."""
        await self.children.end_due()
        interrupted = await read_interrupted(self._services.log, record, loaded)
        may_repeat = partial(self._services.is_repeatable, loaded.record)
        self._session.messages += interrupted.missing_messages(self._session.messages, may_repeat)
        events = interrupted.closing_events(self._session.messages, *end)
        if interrupted.turn.has_handed_over and not self._services.has_agent(interrupted.turn.acting_agent_id):
            events.insert(len(events) - 1, RuntimeEvent(EventType.SESSION_CHANGED, {"agent": loaded.record.agent}))
            self._session.active_agent = loaded.record.agent
        try:
            await self._writer.commit(record.id, events)
        except TurnEnded as exc:
            return _log.error("a turn was to be ended that has an end", error=str(exc))
        if end.code == "interrupted":
            ended = interrupted.turn
            log_interrupted_turn(events, ended.requests, rounds=ended.round, usage=ended.usage)

    # --- after a restart ----------------------------------------------------------------------------------------------

    async def recover(self, loaded: LoadedSession, *, may_resume: bool) -> None:
        """Resume the suspended turns that wait for a person, and end all others as interrupted.

        A turn with work of the application waits for `resume_work`. Unless `may_resume`, the other resumable turns stay
        suspended.
        """
        live, main = self.live, self.live.main
        if main is not None and not main.stays_suspended:
            main = None
        children = [turn for turn in loaded.child_turns if live.by_id[turn.id].stays_suspended]
        running = None if main is None else loaded.main_turn
        found = await self._resumable_turns(replace(loaded, main_turn=running, child_turns=children))
        live.restore(found.tree)
        for one in found.detached:
            live.by_id[one.turn_id].detached = True
        point, setup, end = None if main is None else found.point, None, _INTERRUPTED
        if main is not None and point is not None:
            if found.needs_work:
                self._keep_suspended(main, point)
            elif not may_resume:
                return
            else:
                try:
                    setup = await self._setup_again(loaded, main.record, point)
                    live.await_resume(point.children)
                except AgenticXError as exc:
                    _log.warning("turn cannot be resumed", error=str(exc))
                    end, point = DueEnd(end.code, f"{end.text} It cannot go on: {exc}"), None
        # no await until all is decided: a child turn that begins meanwhile is suspended with its parent
        self._fail_others([*found.detached, *(() if point is None else point.children)])
        if may_resume:
            self._resume_detached(found.detached)
        if main is not None and point is None:
            live.fail(main, end)
            await self._append_end(loaded, main.record, end)
            live.remove(main)
            main.done_event.set()
            return
        if main is not None and point is not None and setup is not None:
            self._resume(main, point, setup)
        await self._end_others()

    def _resume_detached(self, detached: Sequence[ResumedTurn]) -> None:
        """Let the resumer continue the detached turns; mark the turns that it refuses to be ended."""
        self.live.await_resume(detached)
        for one in detached:
            if not self.children.resumer.resume(one):
                self.live.fail(self.live.by_id[one.turn_id], _INTERRUPTED)

    async def _end_others(self) -> None:
        try:
            await self.children.end_due()
        except StoreError as exc:
            _log.error("child turns could not be ended; retried before the next turn", error=str(exc))

    def _fail_others(self, resumed: Sequence[ResumedTurn]) -> None:
        """Mark all suspended child turns to be ended, except for these and their child turns."""
        kept = set[str]()
        while resumed:
            kept.update(one.turn_id for one in resumed)
            resumed = [child for one in resumed for child in one.point.children]
        for turn in self.live.children:
            if turn.stays_suspended and turn.id not in kept:
                self.live.fail(turn, _INTERRUPTED)

    def _keep_suspended(self, main: MainTurn, point: ResumePoint) -> None:
        """Keep a turn and its child turns suspended until `resume_work` or a stop; the session is busy with it."""
        self.live.await_resume(point.children, ask=False)
        main.resume_point = point
        main.stop.watch(lambda: self._end_stopped(main))

    def _end_stopped(self, main: MainTurn) -> None:
        if main.awaits_resume:
            main.task = asyncio.create_task(self.end_suspended_turn("stopped", "the turn was stopped"))
            self._tasks.add(main.task)
            main.task.add_done_callback(partial(self._on_turn_task_done, main))

    async def end_suspended_turn(self, code: str, text: str) -> None:
        """End the turn that waits for its work, if there is one."""
        if (main := self.suspended_turn) is not None:
            with bound_ids(session=self._session.id, turn=main.id):
                await self._abort(main, code, text)

    async def resume_work(self, turn_id: str, setup: TurnSetup) -> MainTurn:
        """Continue a turn that waits for its work, which `setup` has, with the answers that are stored by now.

        The caller makes sure that no answer is stored meanwhile. Raises `TurnFailed` if the turn does not wait; after
        `SettingsError` it still waits.
        """
        if (main := self.suspended_turn) is None or main.id != turn_id:
            raise TurnFailed(f"turn {turn_id!r} does not wait for its work")
        setup = replace(setup, configuration=await self._services.read_configuration(self._writer.record))
        found = await self._resumable_turns(await self._writer.read())
        if not main.awaits_resume or found.point is None:
            await self.end_suspended_turn(*_INTERRUPTED)
            raise TurnFailed(f"turn {turn_id!r} cannot go on: it was stopped, or its log cannot be read")
        self.live.await_resume(found.point.children)
        return self._resume(main, found.point, setup)

    async def _resumable_turns(self, loaded: LoadedSession) -> OpenTurns:
        services, record, messages = self._services, loaded.record, self._session.messages
        if not services.can_resume or (loaded.main_turn is None and not loaded.child_turns):
            return OpenTurns()
        is_repeatable, has_work = partial(services.is_repeatable, record), services.has_work(record)
        found = await resumable_turns(services.log, loaded, messages, is_repeatable, has_work=has_work)
        makes_options = loaded.main_turn is not None and self._makes_options(loaded.main_turn.id)
        return replace(found, point=None) if makes_options else found

    def _makes_options(self, turn_id: str) -> bool:
        """Return whether a turn has begun to make options; such a turn is not resumed after a restart."""
        return any(option.run_id == turn_id for option in self._session.options)

    async def _setup_again(self, loaded: LoadedSession, turn: TurnRecord, point: ResumePoint) -> TurnSetup:
        """Return the setup of a turn of an earlier process, for the agent that acted.

        Raises as `turn_setup` does, for example `UnknownAgent` for an agent that this process does not know, and as
        `read_configuration` does.
        """
        services, record = self._services, loaded.record
        acting = None if point.acting_agent == MAIN_AGENT else point.acting_agent
        record = replace(record, agent=acting)
        setup = services.turn_setup(record, turn.model, turn.sampling, resumes=True)
        return replace(setup, configuration=await services.read_configuration(record))


def _stopped_by_end(event: RuntimeEvent) -> RuntimeEvent:
    """Return the terminal event of a turn that a closing hub stopped; other terminal events are unchanged."""
    if event.data.get("code") != "stopped":
        return event
    return replace(event, data={**event.data, "text": OWNER_CLOSED})
