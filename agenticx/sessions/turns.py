"""The turns that run in this process: each drained into its session's log whoever watches, and ended come what may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, ResourcesExhausted, SessionBusy, SessionNotFound, SettingsError, StoreError
from agenticx.exhaustion import exhaustion
from agenticx.llms.base import ChatModel
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import ToolCall, UserMessage
from agenticx.runtime import AgentRuntime, AsyncConfirmGate, HookRegistry, RuntimeEvent
from agenticx.runtime.resuming import ResumePoint
from agenticx.runtime.system_prompt import default_system_prompt
from agenticx.sessions.base import JournalEntry, JournalKind, Store, StoredEvent, TurnRecord
from agenticx.sessions.batches import Batches
from agenticx.sessions.confirming import Confirming
from agenticx.sessions.damage import DamagedData
from agenticx.sessions.live import LiveSession, RunningTurn, to_its_end
from agenticx.sessions.posting import TurnFailed
from agenticx.sessions.reading import read_log_pages
from agenticx.sessions.recovery import CutTurn
from agenticx.settings import PROJECT_FILE, Settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.processes import StartedProcess, end_left_over

__all__ = ["Turns"]

_CLOSING_SECONDS = 3.5  # a stopped turn may spend 3 s ending processes
_READING_SECONDS = 5.0  # for one small file, which may lie on a disk that does not answer

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Turns:
    """Runs claimed turns, each with the `settings` as they are in its session's workspace.

    `begin_log` stores the first events of each, `ended` is told once it is over, `behind` once its last event is
    stored, `refused` is told of the session whenever the store did not take a turn's end.
    """

    store: Store
    gate: AsyncConfirmGate
    confirms: Confirming
    settings: Settings
    hooks: HookRegistry
    clock: Clock
    begin_log: Callable[[LiveSession, RunningTurn, Sequence[RuntimeEvent]], Awaitable[Sequence[StoredEvent]]]
    behind: Callable[[LiveSession, RunningTurn], Awaitable[None]]
    ended: Callable[[LiveSession, RunningTurn], None]
    refused: Callable[[str], None]
    running: set[RunningTurn] = field(default_factory=set[RunningTurn])
    _unended: dict[str, TurnRecord] = field(default_factory=dict[str, TurnRecord])
    """By session: a turn whose end the store refused, or of whose claim nobody knows."""

    def begin(
        self,
        live: LiveSession,
        running: RunningTurn,
        told: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None = None,
    ) -> None:
        """Run the turn behind the caller, who may wait for `running.begun()`; its settings are read unless given.

        Where there is no memory to begin it, it is ended before the session's next one, and `MemoryError` is raised.
        """
        try:
            self.running.add(running)
            with bound_ids(session=running.turn.session_id, turn=running.turn.id):
                work = self._run(live, running, told, model, tools, settings)
                running.task = asyncio.create_task(work, name=f"agx hub {running.turn.id}")
                running.task.add_done_callback(_report_death)
        except MemoryError:
            self.running.discard(running)
            if running.task is not None:
                running.task.cancel()
            self.end_later(running.turn)
            raise
        live.running = running

    async def settings_in(self, workspace: Path) -> Settings:
        """The settings of a turn that begins now; raises `SettingsError` where the workspace's file is of no use."""
        try:
            async with asyncio.timeout(self.clock.real(_READING_SECONDS)):
                return await run_in_thread(self.settings.in_workspace, workspace, name="agx reading settings")
        except TimeoutError:
            sentence = f"{workspace / PROJECT_FILE} could not be read within {_READING_SECONDS:g} seconds"
            raise SettingsError(sentence) from None

    def known(self, turn_id: str) -> RunningTurn | None:
        """The turn of that id, until its generator is exhausted."""
        return next((running for running in self.running if running.turn.id == turn_id), None)

    async def claim(self, turn: TurnRecord) -> TurnRecord:
        """`Store.claim`; one that failed may stand all the same, and is taken back before the next."""
        try:
            return await self.store.claim(turn)
        except (SessionBusy, SessionNotFound):
            raise
        except (StoreError, MemoryError):
            self.end_later(turn)
            raise

    async def release(self, turn: TurnRecord) -> None:
        """`Store.release`, before the next claim if it fails now."""
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
        told: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None,
    ) -> None:
        """Drain the turn into its log, and give it an end whatever happens."""
        try:
            await self._drain(live, running, told, model, tools, settings)
        except asyncio.CancelledError:
            await self._break_off(live, running, "interrupted", "The server shut down before the turn had ended.")
            raise
        except StoreError as exc:
            await self._break_off(live, running, "storage", f"The session's log could not be written: {exc}")
        except (SettingsError, ResourcesExhausted) as exc:
            await self._break_off(live, running, "internal", f"The turn could not begin: {exc}", exc)
        except MemoryError as exc:
            exc.__traceback__ = None  # its frames hold what took the memory
            _log.error("a turn ran out of memory")
            why = exhaustion(exc)
            await self._break_off(live, running, "internal", f"The turn broke off: {why}", why)
        except Exception as exc:
            _log.exception("a turn broke")
            why = exhaustion(exc)
            text = f"The turn broke off: {why}" if why else "The turn broke off because of an error in AgenticX."
            await self._break_off(live, running, "internal", text, why)
        finally:
            self.running.discard(running)

    async def _drain(
        self,
        live: LiveSession,
        running: RunningTurn,
        told: UserMessage | ResumePoint,
        model: ChatModel,
        tools: Sequence[Tool],
        settings: Settings | None,
    ) -> None:
        turn, session = running.turn, live.session
        batches = Batches(partial(self._write, live, running))
        settings = settings or await self.settings_in(session.workspace)
        runtime = AgentRuntime(
            model,
            self.gate,
            max_tool_rounds=settings.max_tool_rounds,
            hooks=self.hooks,
            settings=settings,
            clock=self.clock,
        )
        events = runtime.run_turn(
            told,
            session,
            running.stop,
            tools=tools,
            system_prompt=default_system_prompt(session.workspace, self.clock.now().date()),
            client_turn_id=turn.client_turn_id,
            journal=_Journal(self.store, turn, batches),
            steering=running.steering,
        )
        await batches.drain(events)
        if not running.over:
            await self._break_off(live, running, "internal", "The turn ended without saying how.")

    async def _write(self, live: LiveSession, running: RunningTurn, batch: Sequence[RuntimeEvent]) -> None:
        if running.over:
            if not running.parked:
                _log.error("events after the terminal one were dropped", count=len(batch))
            return
        last = next((place for place, event in enumerate(batch) if event.terminal), len(batch) - 1)
        if running.started.done():
            stored = await live.append(running.turn.id, batch[: last + 1])
        else:
            stored = await self.begin_log(live, running, batch[: last + 1])
            running.started.set_result(stored[0].seq - 1)
        if stored[-1].terminal:
            self._over(live, running)
            await self.behind(live, running)

    async def _break_off(
        self, live: LiveSession, running: RunningTurn, code: str, text: str, why: AgenticXError | None = None
    ) -> None:
        """Give a turn that cannot go on its terminal event; where that fails, it is tried again before the next.

        Whoever waits for it to begin is told `why`, where that is for a person to mend.
        """
        if running.over:
            return
        running.over = True
        try:
            if not running.started.done():
                running.started.set_exception(why or (StoreError(text) if code == "storage" else TurnFailed(text)))
            await to_its_end(self._end_or_release(live, running.turn, code, text))
        except SessionNotFound:
            _log.info("a session was deleted before its turn had ended")
        except StoreError as exc:
            _log.error("a turn's end could not be stored", why=text, error=str(exc))
            self.end_later(running.turn)
        else:
            if code == "storage":
                _log.error("a turn broke off", why=text)
            elif why is not None:
                _log.warning("a turn could not begin", error=str(why))
        self._over(live, running)

    def _over(self, live: LiveSession, running: RunningTurn) -> None:
        running.over = True
        running.finished.set()
        self.ended(live, running)

    # --- endings ------------------------------------------------------------------------------------------------------

    @property
    def resumes(self) -> bool:
        """Whether a turn that waits for a person goes on after a restart."""
        return self.store.is_persistent and self.settings.resume_interrupted == "confirms"

    def park(self) -> None:
        """Leave the turns that wait for a person, and their questions, if they go on after a restart."""
        pending = self.gate.pending()
        asked = {request.session_id for request in pending}
        for running in self.running:
            if self.resumes and not running.over and running.turn.session_id in asked:
                running.parked = running.over = True
        parked = {running.turn.session_id for running in self.running if running.parked}
        self.confirms.leave_open(request for request in pending if request.session_id in parked)

    async def end_all(self, turns: Collection[RunningTurn]) -> None:
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
        """Append the events that answer what the turn had under way and end it; returns them.

        None are appended where the log has the turn's end already.
        """
        cut = await self.cut(turn)
        if cut.ended:
            return ()
        live.session.messages += cut.unsaid(live.session.messages)
        events = cut.ending(live.session.messages, code, text)
        await live.append(turn.id, events)
        return events

    def end_later(self, turn: TurnRecord) -> None:
        """Have `turn` ended before the session's next one begins: now it cannot be."""
        self._unended[turn.session_id] = turn
        self.refused(turn.session_id)

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._unended.pop(session_id, None)

    async def end_belatedly(self, live: LiveSession) -> None:
        """Store the end that the store refused before, if there is one; raises `StoreError` if it does so again."""
        turn = self._unended.get(live.session.id)
        if turn is None:
            return
        await self._end_or_release(live, turn, "storage", "The session's log could not be written.")
        self._unended.pop(live.session.id, None)

    async def _end_or_release(self, live: LiveSession, turn: TurnRecord, code: str, text: str) -> None:
        """End a turn of which something was stored, though its store may have said otherwise; forget any other."""
        known = await self.store.turn(turn.session_id, turn.id)
        await live.reread()
        if known is None or known.after_seq is None:
            await self.store.release(turn)
        else:
            await self.end(live, known, code, text)

    async def end_processes(self, turn: TurnRecord) -> None:
        """End what is left of the processes that a turn of an earlier process of ours started."""
        for fact in await self.store.turn_journal(turn.session_id, turn.id):
            if fact.kind == "process":
                process = StartedProcess(fact.data["pid"], fact.data["started"], fact.data["mark"])
                await run_in_thread(end_left_over, process, name="agx ending processes")

    async def cut(self, turn: TurnRecord) -> CutTurn:
        """What the log and the journal hold of the turn; nothing where they cannot be read, but whether it ended."""
        try:
            return await self._cut(turn)
        except DamagedData as exc:
            _log.error("what a turn did cannot be read any more", turn=turn.id, error=str(exc))
            running = {one.id for one in await self.store.unfinished_turns()}
            return CutTurn(session_id=turn.session_id, ended=turn.id not in running)

    async def _cut(self, turn: TurnRecord) -> CutTurn:
        known = await self.store.turn(turn.session_id, turn.id) or turn
        events: list[StoredEvent] = []
        async for piece in read_log_pages(self.store, turn.session_id, known.after_seq or 0):
            events += (event for event in piece if event.turn_id == turn.id)
        return CutTurn.of(events, await self.store.turn_journal(turn.session_id, turn.id))


def _report_death(task: asyncio.Task[None]) -> None:
    """A turn's task that raised could not give the turn its end: nobody awaits it, so the loop is told at once."""
    if not task.cancelled() and (exc := task.exception()) is not None:
        told = {"message": "a turn could not be ended", "exception": exc, "task": task}
        task.get_loop().call_exception_handler(told)


@dataclass(frozen=True, slots=True)
class _Journal:
    """`CallJournal` of one turn in the store."""

    store: Store
    turn: TurnRecord
    batches: Batches

    async def began(self, call: ToolCall) -> None:
        await self.batches.written()  # what takes effect is in the log first
        await self._keep("began", call.id, {"call_id": call.id, "name": call.name, "arguments": call.arguments})

    async def started(self, call: ToolCall, process: Mapping[str, Any]) -> None:
        await self._keep("process", f"{call.id}/{process['pid']}", {"call_id": call.id, **process})

    async def _keep(self, kind: JournalKind, key: str, data: Mapping[str, Any]) -> None:
        turn = self.turn
        entry = JournalEntry(kind=kind, key=f"{turn.id}/{key}", session_id=turn.session_id, turn_id=turn.id, data=data)
        await self.store.add_journal_entry(entry)
