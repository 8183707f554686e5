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

from agenticx.errors import (
    AgenticXError,
    ResourcesExhausted,
    SessionNotFound,
    SettingsError,
    StoreError,
)
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import UserMessage
from agenticx.resource_exhaustion import exhausted_error
from agenticx.runtime import (
    AsyncConfirmGate,
    EventType,
    RuntimeEvent,
    Session,
    TurnContext,
)
from agenticx.runtime.resume import ResumePoint
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_log import log_interrupted_turn
from agenticx.sessions.hub.child_turns import FactJournal, SessionChildTurns
from agenticx.sessions.hub.records import derive_name, name_announcement, with_switch
from agenticx.sessions.hub.recovery import OpenTurns, read_interrupted, resumable_turns
from agenticx.sessions.hub.subagents.budgets import TurnBudgets
from agenticx.sessions.hub.subagents.session_subagents import SessionSubagents
from agenticx.sessions.hub.submission import TurnFailed
from agenticx.sessions.hub.turn_services import NoteTurn, TurnServices, TurnSetup
from agenticx.sessions.hub.turns.running_turn import RunningTurn
from agenticx.sessions.hub.writer import SessionWriter, run_to_completion
from agenticx.sessions.store.base import OwnershipLost, TurnEnded
from agenticx.sessions.store.entries import Fact, NameDerived, StoredEvent
from agenticx.sessions.store.records import Loaded, TurnRecord
from agenticx.subagents.tools import CURRENT_OWNER

__all__ = ["TurnRunner"]

_INTERRUPTED = "The program ended while this turn was running."
_CLOSING_SECONDS = 3.5  # a stopped turn may spend 3 s ending processes

_log = get_logger(__name__)


class TurnRunner:
    """The turns of one session, one after another; each always gets a terminal event.

    `on_free` is called once a turn has ended, and with True if its end could not be stored and must be tried again.
    `pending_end` is such a turn; `unannounced` the fact of a derived name whose event is not stored yet. `children` are
    the child turns of these, `subagents` the agents of some of them.
    """

    def __init__(
        self,
        session: Session,
        writer: SessionWriter,
        services: TurnServices,
        on_free: Callable[[bool], None],
    ) -> None:
        self.latest: RunningTurn | None = None
        self.pending_end: TurnRecord | None = None
        self.unannounced: NameDerived | None = None
        self.record_lock = asyncio.Lock()
        self.children = SessionChildTurns(session, writer, services.log)
        self._budgets = TurnBudgets(session.id, services.log, services.settings)
        self.subagents = SessionSubagents(session, writer, services, self.children, self.ended_turn)
        self._session = session
        self._writer = writer
        self._services = services
        self._on_free = on_free
        self._is_abandoned = False
        self._tasks = set[asyncio.Task[None]]()

    @property
    def running(self) -> RunningTurn | None:
        """The turn that runs, None if there is none."""
        return None if self.latest is None or self.latest.closed else self.latest

    @property
    def waiting_for_work(self) -> RunningTurn | None:
        """The turn that waits for the application to run its work again, None if there is none."""
        running = self.running
        return running if running is not None and running.waits_for_work else None

    @property
    def is_idle(self) -> bool:
        """True if no turn's task runs and no end is pending."""
        children = self.children
        is_waiting = children.waiting.by_id or self.waiting_for_work
        return not (self._tasks or self.pending_end or children.is_open or is_waiting or self.subagents.is_busy)

    @property
    def has_work(self) -> bool:
        """True if the next owner of the session goes on with a turn, or stores its end."""
        is_suspended = self.latest is not None and self.latest.suspended
        return self.pending_end is not None or is_suspended or self.children.has_work

    def begin(
        self,
        turn: TurnRecord,
        turn_input: UserMessage | ResumePoint,
        setup: TurnSetup,
        waiting: RunningTurn | None = None,
    ) -> RunningTurn:
        """Begin a turn with a message, or go on with the turn of an earlier process, which may be `waiting`, in a task.

        Where there is no memory to begin it, it is ended before the session's next one, and `MemoryError` is raised.
        """
        running = waiting or RunningTurn(turn, setup)
        running.setup = setup
        if isinstance(turn_input, ResumePoint):
            running.resume(turn_input)
        elif self._writer.record.name is None:
            running.derived_name = derive_name(turn_input.content)
        try:
            with bound_ids(session=self._session.id, turn=running.turn.id):
                running.task = asyncio.create_task(self._run(running, turn_input), name=f"agx hub {running.turn.id}")
                self._tasks.add(running.task)
                running.task.add_done_callback(self._on_turn_task_done)
        except MemoryError:
            if running.task is not None:
                running.task.cancel()
            self.end_later(running.turn)
            raise
        self.latest = running
        return running

    def _on_turn_task_done(self, task: asyncio.Task[None]) -> None:
        """Report a task that raised, and gave its turn no terminal event, to the loop's handler: nothing awaits it."""
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            context = {"message": "a turn could not be ended", "exception": exc, "task": task}
            task.get_loop().call_exception_handler(context)

    async def _run(self, running: RunningTurn, turn_input: UserMessage | ResumePoint) -> None:
        """Run the turn and store a terminal event in every case."""
        try:
            await self._run_into_log(running, turn_input)
            if not running.closed:
                await self._abort(running, "internal", "The turn ended without a terminal event.")
        except asyncio.CancelledError:
            await self._abort(running, "interrupted", "The server shut down before the turn had ended.")
            raise
        except StoreError as exc:
            why = exc if isinstance(exc, SessionNotFound | OwnershipLost) else None
            await self._abort(running, "storage", f"The session's log could not be written: {exc}", why)
        except (SettingsError, ResourcesExhausted) as exc:
            await self._abort(running, "internal", f"The turn could not begin: {exc}", exc)
        except MemoryError as exc:
            exc.__traceback__ = None  # its frames hold references to what filled the memory
            _log.error("turn failed: out of memory")
            why = exhausted_error(exc)
            await self._abort(running, "internal", f"The turn failed: {why}", why)
        except Exception as exc:
            _log.exception("turn failed")
            why = exhausted_error(exc)
            text = f"The turn failed: {why}" if why else "The turn failed because of an error in AgenticX."
            await self._abort(running, "internal", text, why)

    async def _run_into_log(self, running: RunningTurn, turn_input: UserMessage | ResumePoint) -> None:
        """Run the turn to its end, and write its events in batches."""
        CURRENT_OWNER.set(self.subagents)
        session, services, setup = self._session, self._services, running.setup
        assert setup is not None
        if self.children.unended:
            await self.children.end_unended()
        configuration = setup.configuration or await services.read_configuration(self._writer.record)
        notes = await self._enter_notes(running)
        if running.closed:  # suspended meanwhile
            return
        runtime = services.runtime(setup.model, configuration.settings)
        context = TurnContext(
            client_turn_id=running.turn.client_turn_id,
            turn_id=running.turn.id,
            child_turns=self.children,
            work=setup.work,
            journal=FactJournal(running.turn.id, self.write_fact),
            steering=running.steering,
            pacer=services.pacer,
            permission_mode=running.turn.permission_mode,
            agent=setup.agent,
            agents=setup.agents,
            shares_history=bool(services.agents),
            model_of=services.models,
            on_exhausted=(notes and notes.on_exhausted) or configuration.settings.on_exhausted,
            max_rounds=notes and notes.max_rounds,
            turn_seconds=notes and notes.turn_seconds,
            notes=notes and notes.notes,
            budget=await self._budgets.of(running.turn.id) if self._budgets.has_limits else None,
        )
        if isinstance(turn_input, ResumePoint):
            run = partial(runtime.resume_turn, turn_input)
        else:
            run = partial(runtime.write_turn, turn_input)
        await run(
            session,
            partial(self._write_events, running),
            running.stop,
            tools=setup.tools if notes is None or notes.enabled is None else notes.enabled(setup.tools),
            system_prompt=configuration.system_prompt,
            sampling=running.turn.sampling,
            context=context,
        )
        if running.closed and not running.suspended:
            await self._remove_dropped_contents()

    async def _remove_dropped_contents(self) -> None:
        """Delete the contents of old revisions of files that the stored state has no more."""
        try:
            await run_to_completion(self._session.artifacts.remove_dropped())
        except StoreError as exc:
            _log.warning("contents of old revisions could not be deleted", error=str(exc))

    async def _enter_notes(self, running: RunningTurn) -> NoteTurn | None:
        """Return the notes of the turn; None for a session without vaults, and for one whose work is not a model's."""
        source, setup = self._services.notes, running.setup
        if source is None or setup is None:
            return None
        notes = await source.enter(self._writer.record, running.turn)
        return notes if setup.work is None else None

    async def ended_turn(self, turn_id: str, agent_path: Sequence[str]) -> Turn:
        """Return a turn that is over, or only in the log, for others to begin below it and outlive it.

        `agent_path` names its agent, and those above that. Raises as `TurnServices.setup` and `read_configuration` do.
        """
        services, record = self._services, self._writer.record
        setup = services.setup(record, None, None)
        configuration = await services.read_configuration(record)
        runtime = services.runtime(setup.model, configuration.settings)
        context = TurnContext(turn_id=turn_id, child_turns=self.children, budget=await self._budgets.of(turn_id))
        return runtime.ended_turn(self._session, agent_path=agent_path, tools=setup.tools, context=context)

    async def _write_events(self, running: RunningTurn, batch: Sequence[RuntimeEvent]) -> None:
        """Store events of the turn; those after its terminal event are dropped."""
        if not running.closed and self.children.unended and batch[-1].terminal:
            with suppress(StoreError):
                await self.children.end_unended()
        if not running.closed and self.children.waiting.by_id and batch[-1].terminal:
            await self.children.end_waiting_below(running.turn.id)
        if running.closed:  # perhaps meanwhile
            if not (running.suspended or self._is_abandoned):
                _log.error("events after the terminal event dropped", count=len(batch))
            return
        if running.started.done():
            stored = await self._write_later_events(running, batch)
        else:
            stored = await self._write_first_events(running, batch)
            running.started.set_result(stored[0].seq - 1)
        if stored[-1].terminal:
            self._mark_closed(running)
            if not self._services.closing:
                await self.announce_name()

    async def write_fact(self, fact: Fact) -> None:
        """Store a fact of the running turn."""
        await self._writer.commit(fact.turn_id, facts=[fact])

    async def _write_first_events(self, running: RunningTurn, first: Sequence[RuntimeEvent]) -> Sequence[StoredEvent]:
        """Store the first events of a turn; a session without a name gets the turn's `derived_name` with them."""
        turn = running.turn
        async with self.record_lock:
            record = self._writer.record
            if running.derived_name is None or record.name is not None:
                return await self._writer.commit(turn.id, first, begins=turn)
            named = replace(record, name=running.derived_name)
            fact = NameDerived(key=turn.id, turn_id=turn.id, name=running.derived_name)

            def on_stored() -> None:
                self.unannounced = fact

            return await self._writer.commit(
                turn.id, first, begins=turn, record=named, facts=[fact], on_stored=on_stored
            )

    async def _write_later_events(self, running: RunningTurn, batch: Sequence[RuntimeEvent]) -> Sequence[StoredEvent]:
        """Store events of a turn that has begun; with a handoff, the session's active agent changes in one commit."""
        is_last_of_guest = running.has_guest and batch[-1].terminal
        if not is_last_of_guest and all(event.type is not EventType.HANDOFF for event in batch):
            return await self._writer.commit(running.turn.id, batch)
        async with self.record_lock:
            events, record, running.has_guest = with_switch(
                batch, self._writer.record, has_agent=self._services.has_agent, has_guest=running.has_guest
            )
            stored = await self._writer.commit(running.turn.id, events, record=record)
            if stored[-1].terminal:
                self._session.active_agent = record.agent
            return stored

    async def announce_name(self) -> None:
        """Append, after a turn, the event of the name that it gave, unless the user gave another one meanwhile."""
        async with self.record_lock:
            if self.unannounced is not None:
                events, fact = name_announcement(self.unannounced, self._writer.record)
                await run_to_completion(self._writer.commit(None, events, facts=[fact]))
                self.unannounced = None

    async def _abort(self, running: RunningTurn, code: str, text: str, why: AgenticXError | None = None) -> None:
        """Store a terminal event for a turn that cannot continue.

        If that fails, it is repeated before the session's next turn. Callers that wait for the turn to begin get `why`,
        an error that the user can fix, if there is one.
        """
        if running.closed:
            return
        running.close()
        try:
            running.fail_to_begin(why or (StoreError(text) if code == "storage" else TurnFailed(text)))
            await run_to_completion(self._end(running.turn, code, text))
        except (SessionNotFound, OwnershipLost) as exc:
            _log.info("session has no owner here any more before its turn ended", why=str(exc))
        except StoreError as exc:
            _log.error("end of turn could not be stored; retried before the next turn", why=text, error=str(exc))
            self.end_later(running.turn)
        else:
            if code == "storage":
                _log.error("turn failed: its log could not be written", why=text)
            elif why is not None:
                _log.warning("turn could not begin", error=str(why))
        self._mark_closed(running)

    def _mark_closed(self, running: RunningTurn) -> None:
        running.close()
        running.done_event.set()
        self._on_free(False)

    # --- endings ------------------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Suspend the turn if it waits for an answer of the user and continues after a restart, and those below it.

        A call that waits for a child turn has begun, so that turn's questions do not suspend it. Detached turns are
        suspended by themselves.
        """
        if not self._services.can_resume:
            return
        self.children.suspend_detached()
        running = self.running
        if running is not None and self._waits(running):
            self.children.suspend(running.turn.id)
            running.suspended = self._writer.state_frozen = True
            running.close()
            if isinstance(turn := self._session.running_turn, Turn):
                turn.log.suspend()

    def _waits(self, running: RunningTurn) -> bool:
        gate, session_id = self._services.gate, self._session.id
        if running.setup is None:
            return True
        if self._makes_options(running.turn.id):
            return False
        asked = (*gate.pending(session_id), *gate.pending_questions(session_id))
        has_asked = running.asks_again or not all(one.agent_path for one in asked)
        if running.setup.work is None:
            return has_asked and not self.children.has_attached
        return self.children.waits(running.turn.id, by_itself=has_asked)

    def gate_of(self, turn_id: str) -> AsyncConfirmGate | None:
        """Return the gate that a turn asks; None if it is not here: it takes its answers when it goes on."""
        is_latest = (latest := self.latest) is not None and latest.turn.id == turn_id and latest.asks_here
        return self._services.gate if is_latest or self.children.runs(turn_id) else None

    async def stop(self) -> None:
        """Stop the turn and those below it, and wait for them, bounded."""
        if self.latest is not None:
            self.latest.stop.set()
        self.stop_below()
        if tasks := list(self._tasks):
            _, late = await asyncio.wait(tasks, timeout=self._services.clock.real(_CLOSING_SECONDS))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)
        await self.subagents.close()
        await self.children.wait_until_released(self._services.clock.real(_CLOSING_SECONDS))

    def stop_below(self) -> None:
        """Stop the child turns, and the sub-agents that have not begun theirs."""
        self.children.stop()
        self.subagents.stop()

    async def _end(self, turn: TurnRecord, code: str, text: str) -> None:
        """End a turn of which events are stored, as the store has it: it may have stored what it reported as failed."""
        self.children.close_below(turn.id)
        loaded = await self._writer.reload()
        if loaded.running is not None and loaded.running.id == turn.id:
            await self.append_end(loaded, loaded.running, code, text)

    async def abandon(self) -> None:
        """End all tasks without writing anything: another owner has the session."""
        self._is_abandoned = self.children.closed = True
        self.stop_below()
        if (running := self.latest) is not None:
            running.close()
            running.fail_to_begin(OwnershipLost(f"session {self._session.id!r} has another owner"))
            running.done_event.set()
        for task in self._tasks:
            task.cancel()
        await self.subagents.abandon()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._services.clock.real(_CLOSING_SECONDS))

    async def append_end(self, loaded: Loaded, turn: TurnRecord, code: str, text: str) -> None:
        """Append the events that answer the turn's open calls and questions and end it, after its child turns."""
        if loaded.children:
            await self.children.end(code, text)
        interrupted = await read_interrupted(self._services.log, turn, loaded)
        may_repeat = partial(self._services.is_repeatable, loaded.record)
        self._session.messages += interrupted.missing_messages(self._session.messages, may_repeat)
        events = interrupted.closing_events(self._session.messages, code, text)
        if interrupted.turn.has_handed_over and not self._services.has_agent(interrupted.turn.acting_agent_id):
            events.insert(len(events) - 1, RuntimeEvent(EventType.SESSION_CHANGED, {"agent": loaded.record.agent}))
            self._session.active_agent = loaded.record.agent
        try:
            await self._writer.commit(turn.id, events)
        except TurnEnded as exc:
            return _log.error("a turn was to be ended that has an end", error=str(exc))
        if code == "interrupted":
            ended = interrupted.turn
            log_interrupted_turn(events, ended.questions, rounds=ended.round, usage=ended.usage)

    # --- after a restart ----------------------------------------------------------------------------------------------

    async def recover(self, loaded: Loaded, *, may_resume: bool) -> bool:
        """Go on with the open turns that wait for a person, and end all others as interrupted.

        One with the work of an application waits until `resume_work` brings that. Unless `may_resume` the others that
        can go on are still suspended; returns True if the running one is among them.
        """
        loaded = replace(loaded, children=[turn for turn in loaded.children if not self.children.runs(turn.id)])
        turn, found = loaded.running, await self._resumable_turns(loaded)
        self.children.resume_all()
        if turn is not None and found.point is not None and found.needs_work:
            self._wait_for_work(turn, found.point)
            turn, found = None, replace(found, point=None)
        if not may_resume:
            self.children.suspend_all(found.detached)
            if found.point is None:
                await self.end_interrupted(loaded, turn)
                return False
            self.children.suspend_all(found.point.children)
            return True
        self.children.waiting.add(found.detached, detached=True)
        for resumed in found.detached:
            self.children.resume(resumed)
        setup = None if turn is None or found.point is None else await self._setup_again(loaded, turn, found.point)
        if turn is None or found.point is None or setup is None:
            await self.end_interrupted(loaded, turn)
            return False
        self.children.waiting.add(found.point.children)
        await self.end_interrupted(loaded, None)
        self.begin(turn, found.point, setup)
        return False

    def _wait_for_work(self, turn: TurnRecord, point: ResumePoint) -> None:
        """Keep a turn, and those below it, as they are until `resume_work` or a stop; the session is busy with it."""
        self.children.waiting.add(point.children, ask=False)
        self.latest = running = RunningTurn(turn, None)
        running.started.set_result(turn.after_seq or 0)
        running.stop.watch(lambda: self._stop_waiting(running))

    def _stop_waiting(self, running: RunningTurn) -> None:
        if running.waits_for_work and not running.closed:
            running.task = asyncio.create_task(self.end_waiting("stopped", "the turn was stopped"))
            self._tasks.add(running.task)
            running.task.add_done_callback(self._on_turn_task_done)

    async def end_waiting(self, code: str, text: str) -> None:
        """End the turn that waits for its work, if there is one."""
        if (running := self.waiting_for_work) is not None:
            with bound_ids(session=self._session.id, turn=running.turn.id):
                await self._abort(running, code, text)

    async def resume_work(self, turn_id: str, setup: TurnSetup) -> RunningTurn:
        """Go on with a turn that waits for its work, which `setup` has, with the answers that are stored by now.

        The caller sees to it that none is stored meanwhile. Raises `TurnFailed` if the turn does not wait, and
        `SettingsError` if it cannot go on now; it waits on.
        """
        if (running := self.waiting_for_work) is None or running.turn.id != turn_id:
            raise TurnFailed(f"turn {turn_id!r} does not wait for its work")
        setup = replace(setup, configuration=await self._services.read_configuration(self._writer.record))
        found = await self._resumable_turns(await self._writer.read())
        if running.closed or found.point is None:
            await self.end_waiting("interrupted", _INTERRUPTED)
            raise TurnFailed(f"turn {turn_id!r} cannot go on: it was stopped, or its log cannot be read")
        self.children.waiting.add(found.point.children)
        return self.begin(running.turn, found.point, setup, running)

    async def _resumable_turns(self, loaded: Loaded) -> OpenTurns:
        services, record, messages = self._services, loaded.record, self._session.messages
        if not services.can_resume or (loaded.running is None and not loaded.children):
            return OpenTurns()
        is_repeatable, has_work = partial(services.is_repeatable, record), services.has_work(record)
        found = await resumable_turns(services.log, loaded, messages, is_repeatable, has_work=has_work)
        makes_options = loaded.running is not None and self._makes_options(loaded.running.id)
        return replace(found, point=None) if makes_options else found

    def _makes_options(self, turn_id: str) -> bool:
        """Return whether a turn has begun to make options. It does not go on after a restart."""
        return any(option.run_id == turn_id for option in self._session.options)

    async def _setup_again(self, loaded: Loaded, turn: TurnRecord, point: ResumePoint) -> TurnSetup | None:
        """Return the setup with which a turn of an earlier process goes on; None if that is impossible now.

        The agent that acted goes on, which this process may not know.
        """
        services, record = self._services, loaded.record
        if point.handed_over_to is not None:
            record = replace(record, agent=point.handed_over_to)
        try:
            setup = services.setup(record, turn.model, turn.sampling)
            return replace(setup, configuration=await services.read_configuration(record))
        except AgenticXError as exc:
            _log.warning("turn cannot be resumed", error=str(exc))
            return None

    async def end_interrupted(self, loaded: Loaded, turn: TurnRecord | None) -> None:
        """Append an end to the child turns that an earlier process left, and to `turn`."""
        if turn is not None:
            return await self.append_end(loaded, turn, "interrupted", _INTERRUPTED)
        try:
            if loaded.children:
                await self.children.end("interrupted", _INTERRUPTED)
        except StoreError as exc:
            _log.error("child turns could not be ended; retried before the next turn", error=str(exc))
            self.children.end_later(loaded)

    def end_later(self, turn: TurnRecord) -> None:
        """Have `turn` ended before the session's next one begins, as it cannot be ended now."""
        self.pending_end = turn
        self._on_free(True)

    async def end_pending(self) -> None:
        """Store the turn's end that could not be stored before, if any; raises `StoreError` if it fails again."""
        if self.pending_end is not None:
            await self._end(self.pending_end, "storage", "The session's log could not be written.")
            self.pending_end = None
