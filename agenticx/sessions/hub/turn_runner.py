"""Running turns: each is drained into its session's log and always gets a terminal event.

Events are stored in batches while the turn runs, and readers get an event only once it is stored. So a client that
resumes with its cursor gets exactly what it missed, and all clients of a session see the same turn.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, ResourcesExhausted, SessionBusy, SessionNotFound, SettingsError, StoreError
from agenticx.llms.base import ChatModel
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import ToolCall, UserMessage
from agenticx.resource_exhaustion import exhausted_error
from agenticx.runtime import AgentRuntime, AsyncConfirmGate, HookRegistry, RuntimeEvent
from agenticx.runtime.resume import ResumePoint
from agenticx.sessions.history.interrupted import InterruptedTurn
from agenticx.sessions.hub.batches import EventBatcher
from agenticx.sessions.hub.confirms import DurableConfirmations
from agenticx.sessions.hub.live_session import LiveSession, RunningTurn, run_to_completion
from agenticx.sessions.hub.submission import TurnFailed
from agenticx.sessions.store.base import JournalEntry, JournalKind, Store, StoredEvent, TurnRecord, read_log_pages
from agenticx.sessions.store.damage import DamagedData
from agenticx.settings import PROJECT_FILE, Settings, prompt_text
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.processes import StartedProcess, kill_leftovers

__all__ = ["TurnRunner"]

_CLOSING_SECONDS = 3.5  # a stopped turn may spend 3 s ending processes
_READING_SECONDS = 5.0  # for one small file, which may lie on a disk that does not answer

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """A runner of claimed turns, each with `settings` as they apply in its session's workspace.

    `append_first_events` stores the first events of each turn. `on_turn_closed` is called once a turn's `done_event` is
    set, `on_terminal_event_stored` once the terminal event of its generator is stored, `on_end_failed` with the
    session's id whenever the store failed to store a turn's end.
    """

    store: Store
    gate: AsyncConfirmGate
    confirms: DurableConfirmations
    settings: Settings
    hooks: HookRegistry
    clock: Clock
    append_first_events: Callable[[LiveSession, RunningTurn, Sequence[RuntimeEvent]], Awaitable[Sequence[StoredEvent]]]
    on_terminal_event_stored: Callable[[LiveSession, RunningTurn], Awaitable[None]]
    on_turn_closed: Callable[[LiveSession, RunningTurn], None]
    on_end_failed: Callable[[str], None]
    running: set[RunningTurn] = field(default_factory=set[RunningTurn])
    _pending_ends: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    """By session id: a turn whose end the store failed to store, or whose claim is uncertain."""

    def begin(
        self,
        live: LiveSession,
        running: RunningTurn,
        turn_input: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None = None,
    ) -> None:
        """Start the turn as a task; callers may await `running.wait_begun()`. Its settings are read unless given.

        Where there is no memory to begin it, it is ended before the session's next one, and `MemoryError` is raised.
        """
        try:
            self.running.add(running)
            with bound_ids(session=running.turn.session_id, turn=running.turn.id):
                work = self._run(live, running, turn_input, model, tools, settings)
                running.task = asyncio.create_task(work, name=f"agx hub {running.turn.id}")
                running.task.add_done_callback(_report_failure)
        except MemoryError:
            self.running.discard(running)
            if running.task is not None:
                running.task.cancel()
            self.end_later(running.turn)
            raise
        live.latest_turn = running

    async def read_settings(self, workspace: Path) -> Settings:
        """Return the settings of a turn that begins now; raises `SettingsError` for an unusable workspace file."""
        try:
            async with asyncio.timeout(self.clock.real(_READING_SECONDS)):
                return await run_in_thread(self.settings.in_workspace, workspace, name="agx reading settings")
        except TimeoutError:
            sentence = f"{workspace / PROJECT_FILE} could not be read within {_READING_SECONDS:g} seconds"
            raise SettingsError(sentence) from None

    def get(self, turn_id: str) -> RunningTurn | None:
        """Return the turn of that id, None once its generator is exhausted."""
        return next((running for running in self.running if running.turn.id == turn_id), None)

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        """Claim the session as `Store.claim` does.

        A claim that fails may have committed; it is undone before the next claim.
        """
        try:
            return await self.store.claim(turn)
        except (SessionBusy, SessionNotFound):
            raise
        except (StoreError, MemoryError):
            self.end_later(turn)
            raise

    async def release(self, turn: TurnRecord) -> None:
        """Release the claim as `Store.release` does; if that fails, it is repeated before the next claim."""
        try:
            await self.store.release(turn)
        except StoreError:
            self.end_later(turn)
            raise

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _run(
        self,
        live: LiveSession,
        running: RunningTurn,
        turn_input: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None,
    ) -> None:
        """Run the turn into its log and store a terminal event in every case."""
        try:
            await self._run_into_log(live, running, turn_input, model, tools, settings)
        except asyncio.CancelledError:
            await self._abort(live, running, "interrupted", "The server shut down before the turn had ended.")
            raise
        except StoreError as exc:
            await self._abort(live, running, "storage", f"The session's log could not be written: {exc}")
        except (SettingsError, ResourcesExhausted) as exc:
            await self._abort(live, running, "internal", f"The turn could not begin: {exc}", exc)
        except MemoryError as exc:
            exc.__traceback__ = None  # its frames hold references to what filled the memory
            _log.error("turn failed: out of memory")
            why = exhausted_error(exc)
            await self._abort(live, running, "internal", f"The turn failed: {why}", why)
        except Exception as exc:
            _log.exception("turn failed")
            why = exhausted_error(exc)
            text = f"The turn failed: {why}" if why else "The turn failed because of an error in AgenticX."
            await self._abort(live, running, "internal", text, why)
        finally:
            self.running.discard(running)

    async def _run_into_log(
        self,
        live: LiveSession,
        running: RunningTurn,
        turn_input: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None,
    ) -> None:
        turn, session = running.turn, live.session
        batcher = EventBatcher(partial(self._write, live, running))
        settings = settings or await self.read_settings(session.workspace)
        runtime = AgentRuntime(
            model,
            self.gate,
            max_tool_rounds=settings.max_tool_rounds,
            hooks=self.hooks,
            settings=settings,
            clock=self.clock,
        )
        events = runtime.run_turn(
            turn_input,
            session,
            running.stop,
            tools=tools,
            system_prompt=_default_system_prompt(session.workspace, self.clock.now().date()),
            client_turn_id=turn.client_turn_id,
            journal=_StoreCallJournal(self.store, turn, batcher),
            steering=running.steering,
        )
        await batcher.drain(events)
        if not running.closed:
            await self._abort(live, running, "internal", "The turn ended without a terminal event.")

    async def _write(self, live: LiveSession, running: RunningTurn, batch: Sequence[RuntimeEvent]) -> None:
        if running.closed:
            if not running.suspended:
                _log.error("events after the terminal event dropped", count=len(batch))
            return
        last = next((index for index, event in enumerate(batch) if event.terminal), len(batch) - 1)
        if running.started.done():
            stored = await live.append(running.turn.id, batch[: last + 1])
        else:
            stored = await self.append_first_events(live, running, batch[: last + 1])
            running.started.set_result(stored[0].seq - 1)
        if stored[-1].terminal:
            self._mark_closed(live, running)
            await self.on_terminal_event_stored(live, running)

    async def _abort(
        self, live: LiveSession, running: RunningTurn, code: str, text: str, why: AgenticXError | None = None
    ) -> None:
        """Store a terminal event for a turn that cannot continue.

        If that fails, it is repeated before the session's next turn. Callers that wait for the turn to begin get `why`,
        an error that the user can fix, if there is one.
        """
        if running.closed:
            return
        running.closed = True
        try:
            if not running.started.done():
                running.started.set_exception(why or (StoreError(text) if code == "storage" else TurnFailed(text)))
            await run_to_completion(self._end_or_release(live, running.turn, code, text))
        except SessionNotFound:
            _log.info("session deleted before its turn ended")
        except StoreError as exc:
            _log.error("end of turn could not be stored; retried before the next turn", why=text, error=str(exc))
            self.end_later(running.turn)
        else:
            if code == "storage":
                _log.error("turn failed: its log could not be written", why=text)
            elif why is not None:
                _log.warning("turn could not begin", error=str(why))
        self._mark_closed(live, running)

    def _mark_closed(self, live: LiveSession, running: RunningTurn) -> None:
        running.closed = True
        running.done_event.set()
        self.on_turn_closed(live, running)

    # --- endings ------------------------------------------------------------------------------------------------------

    @property
    def can_resume(self) -> bool:
        """True if a turn that waits for a confirmation continues after a restart."""
        return self.store.is_persistent and self.settings.resume_interrupted == "confirms"

    def suspend_waiting_turns(self) -> None:
        """Suspend turns that wait for a confirmation, and leave it open, if they continue after a restart."""
        pending = self.gate.pending()
        waiting_session_ids = {request.session_id for request in pending}
        for running in self.running:
            if self.can_resume and not running.closed and running.turn.session_id in waiting_session_ids:
                running.suspended = running.closed = True
        suspended_session_ids = {running.turn.session_id for running in self.running if running.suspended}
        self.confirms.leave_open(request for request in pending if request.session_id in suspended_session_ids)

    async def stop_all(self, turns: Collection[RunningTurn]) -> None:
        """Stop `turns` and wait for them, bounded."""
        for running in turns:
            running.stop.set()
        tasks = [running.task for running in turns if running.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.clock.real(_CLOSING_SECONDS))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)

    async def end(self, live: LiveSession, turn: TurnRecord, code: str, text: str) -> Sequence[RuntimeEvent]:
        """Append the events that answer the turn's open calls and questions and end it; return these events.

        Nothing is appended where the log already has the turn's end.
        """
        interrupted = await self.read_interrupted(turn)
        if interrupted.ended:
            return ()
        live.session.messages += interrupted.missing_messages(live.session.messages)
        events = interrupted.closing_events(live.session.messages, code, text)
        await live.append(turn.id, events)
        return events

    def end_later(self, turn: TurnRecord) -> None:
        """Have `turn` ended before the session's next one begins, as it cannot be ended now."""
        self._pending_ends[turn.session_id] = turn
        self.on_end_failed(turn.session_id)

    def discard(self, session_id: str) -> None:
        """Drop the pending end of a deleted session's turn."""
        self._pending_ends.pop(session_id, None)

    async def end_pending(self, live: LiveSession) -> None:
        """Store the turn's end that the store failed to store before, if any; raises `StoreError` if it fails again."""
        turn = self._pending_ends.get(live.session.id)
        if turn is None:
            return
        await self._end_or_release(live, turn, "storage", "The session's log could not be written.")
        self._pending_ends.pop(live.session.id, None)

    async def _end_or_release(self, live: LiveSession, turn: TurnRecord, code: str, text: str) -> None:
        """End a turn of which events are stored; release the claim of any other.

        The store is read again, as it may have stored events although it reported a failure.
        """
        stored_turn = await self.store.turn(turn.session_id, turn.id)
        await live.reload()
        if stored_turn is None or stored_turn.after_seq is None:
            await self.store.release(turn)
        else:
            await self.end(live, stored_turn, code, text)

    async def end_leftover_processes(self, turn: TurnRecord) -> None:
        """Terminate the processes that are left of a turn of an earlier process."""
        for entry in await self.store.turn_journal(turn.session_id, turn.id):
            if entry.kind == "process":
                process = StartedProcess(entry.data["pid"], entry.data["started"], entry.data["mark"])
                await run_in_thread(kill_leftovers, process, name="agx ending processes")

    async def read_interrupted(self, turn: TurnRecord) -> InterruptedTurn:
        """Return the state of the turn in its log and journal; if they are unreadable, only whether the turn ended."""
        try:
            return await self._read_interrupted(turn)
        except DamagedData as exc:
            _log.error("log of an interrupted turn unreadable", turn=turn.id, error=str(exc))
            running = {unfinished.id for unfinished in await self.store.unfinished_turns()}
            return InterruptedTurn(session_id=turn.session_id, ended=turn.id not in running)

    async def _read_interrupted(self, turn: TurnRecord) -> InterruptedTurn:
        stored_turn = await self.store.turn(turn.session_id, turn.id) or turn
        events: list[StoredEvent] = []
        async for page in read_log_pages(self.store, turn.session_id, stored_turn.after_seq or 0):
            events += (event for event in page if event.turn_id == turn.id)
        return InterruptedTurn.from_log(events, await self.store.turn_journal(turn.session_id, turn.id))


def _report_failure(task: asyncio.Task[None]) -> None:
    """Report a turn task that raised to the event loop's exception handler at once: nothing awaits the task.

    Such a task could not give its turn a terminal event.
    """
    if not task.cancelled() and (exc := task.exception()) is not None:
        context = {"message": "a turn could not be ended", "exception": exc, "task": task}
        task.get_loop().call_exception_handler(context)


@dataclass(frozen=True, slots=True)
class _StoreCallJournal:
    """The `CallJournal` of one turn, kept in the store."""

    store: Store
    turn: TurnRecord
    batcher: EventBatcher

    async def record_call(self, call: ToolCall) -> None:
        await self.batcher.flush()  # events before the call are in the log before the call has an effect
        await self._write("began", call.id, {"call_id": call.id, "name": call.name, "arguments": call.arguments})

    async def record_process(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        await self._write("process", f"{call.id}/{process['pid']}", {"call_id": call.id, **process})

    async def _write(self, kind: JournalKind, key: str, data: Mapping[str, Any]) -> None:
        turn = self.turn
        entry = JournalEntry(kind=kind, key=f"{turn.id}/{key}", session_id=turn.session_id, turn_id=turn.id, data=data)
        await self.store.add_journal_entry(entry)


def _default_system_prompt(workspace: Path, today: date) -> str:
    """Return `config/prompts/system.md` (or the user's own file) with its placeholders filled in.

    The text is the same all day, so that prompt caches stay valid.
    """
    filled = prompt_text("system").replace("{workspace}", str(workspace)).replace("{platform}", platform.system())
    return filled.replace("{date}", today.isoformat())
