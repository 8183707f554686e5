"""Owns running turns: one per session, each drained into the store whoever watches, and ended come what may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agenticx.attachments import Attachment, check_attachments, fingerprint
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, StoreError
from agenticx.llms.base import ChatModel
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import UserMessage
from agenticx.runtime import (
    AgentHook,
    AgentRuntime,
    AsyncConfirmGate,
    EventType,
    HookRegistry,
    RuntimeEvent,
    Session,
    StopSignal,
)
from agenticx.runtime.system_prompt import default_system_prompt
from agenticx.sessions.base import SessionRecord, Store, StoredEvent, TurnRecord
from agenticx.sessions.batches import write_in_batches
from agenticx.settings import Settings
from agenticx.tools.base import Tool

__all__ = ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"]

_log = get_logger(__name__)

_CLOSING_SECONDS = 3.5  # a stopped turn may spend 3 s ending processes


class HubClosed(AgenticXError):
    """The hub is shutting down and starts nothing any more."""


class TurnConflict(AgenticXError):
    """That `client_turn_id` was used before, for another input."""


class TurnFailed(AgenticXError):
    """The turn broke before its first event was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a client asks for; `model` overrides the session's for this turn."""

    input: str
    attachments: tuple[Attachment, ...] = ()
    client_turn_id: str | None = None
    model: str | None = None


@dataclass(slots=True, eq=False)
class _Running:
    """A turn from its claim until its generator is exhausted; `over` once its terminal event is stored."""

    turn: TurnRecord
    stop: StopSignal = field(default_factory=StopSignal)
    started: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Live:
    """A session in use: its conversation, and the one writer of its log in this process."""

    session: Session
    seq: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    running: _Running | None = None


class Hub:
    """Runs turns for whoever asks.

    `models` finds a model by name (None: the default) and `tools` the tools of a session; both raise an
    `AgenticXError` that says what would be right; `hooks` run in every turn. All calls belong on one event loop.
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
    ) -> None:
        self.gate = gate or AsyncConfirmGate()
        self._store = store
        self._models = models
        self._tools = tools
        self._settings = settings
        self._hooks = HookRegistry.of(hooks)
        self._clock = clock or SystemClock()
        self._live: dict[str, _Live] = {}
        self._running: set[_Running] = set()
        self._closing = False

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, request: TurnRequest) -> TurnRecord:
        """Begin a turn and return once its first event is stored, `after_seq` being the place just before it.

        The same `client_turn_id` again gives the same turn, running or over. Raises `AttachmentRefused`,
        `SessionNotFound`, `SessionBusy` (nothing was written), `TurnConflict`, `TurnFailed`, `HubClosed`, or what the
        model's name got wrong.
        """
        if self._closing:
            raise HubClosed("the server is shutting down; try again when it is back")
        check_attachments(request.attachments)
        record = await self._store.get(session_id)
        model, tools = self._models(request.model or record.model), self._tools(record)
        live = await self._open(record)
        wanted = TurnRecord(
            session_id=session_id,
            input=request.input,
            attached=fingerprint(request.attachments),
            client_turn_id=request.client_turn_id,
        )
        turn = await self._store.claim(wanted)
        if turn.id != wanted.id:
            return await self._known(turn, request)
        running = live.running = _Running(turn)
        self._running.add(running)
        with bound_ids(session=session_id, turn=turn.id):
            message = UserMessage(content=request.input, attachments=request.attachments)
            work = self._run(live, running, message, model, tools)
            running.task = asyncio.create_task(work, name=f"agx hub {turn.id}")
        return await _started(running)

    async def stop(self, session_id: str) -> TurnRecord | None:
        """Ask the session's running turn to end; returns it, None when none runs."""
        await self._store.get(session_id)
        running = self._current(session_id)
        if running is None:
            return None
        running.stop.set()
        return running.turn

    def running_turn(self, session_id: str) -> str | None:
        """The id of the turn that the session runs."""
        running = self._current(session_id)
        return None if running is None else running.turn.id

    async def close(self) -> None:
        """Stop all turns and wait for them, bounded; nothing starts afterwards."""
        self._closing = True
        await self._end_all(list(self._running))

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and tell its readers."""
        record = replace(await self._store.get(session_id), **changes)
        live = await self._open(record)
        await self._store.update(record)
        live.session.permission_mode = record.permission_mode
        await self._append(live, None, [RuntimeEvent(EventType.SESSION_CHANGED, changes)])
        return record

    async def delete(self, session_id: str) -> None:
        """End what the session runs, then forget it."""
        await self._store.get(session_id)
        await self._end_all([running for running in self._running if running.turn.session_id == session_id])
        await self._store.delete(session_id)
        self._live.pop(session_id, None)

    async def _open(self, record: SessionRecord) -> _Live:
        live = self._live.get(record.id)
        if live is None:
            seq = await self._store.last_seq(record.id)
            session = Session(id=record.id, workspace=Path(record.workspace), permission_mode=record.permission_mode)
            live = self._live.setdefault(record.id, _Live(session, seq))
        return live

    def _current(self, session_id: str) -> _Running | None:
        live = self._live.get(session_id)
        running = live.running if live else None
        return None if running is None or running.over else running

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _known(self, turn: TurnRecord, request: TurnRequest) -> TurnRecord:
        if (turn.input, turn.attached) != (request.input, fingerprint(request.attachments)):
            raise TurnConflict(
                f"client_turn_id {turn.client_turn_id!r} was used for another input; a new message takes a new id"
            )
        for running in self._running:
            if running.turn.id == turn.id:
                return await _started(running)
        return turn

    async def _run(
        self, live: _Live, running: _Running, message: UserMessage, model: ChatModel, tools: Sequence[Tool]
    ) -> None:
        turn = running.turn

        async def write(batch: Sequence[RuntimeEvent]) -> None:
            await self._write(live, running, batch)

        try:
            runtime = AgentRuntime(
                model,
                self.gate,
                max_tool_rounds=self._settings.max_tool_rounds,
                hooks=self._hooks,
                settings=self._settings,
                clock=self._clock,
            )
            session = live.session
            events = runtime.run_turn(
                message,
                session,
                running.stop,
                tools=tools,
                system_prompt=default_system_prompt(session.workspace, self._clock.now().date()),
                client_turn_id=turn.client_turn_id,
            )
            await write_in_batches(events, write)
            if not running.over:
                await self._break_off(live, running, "internal", "The turn ended without saying how.")
        except asyncio.CancelledError:
            await self._break_off(live, running, "interrupted", "The server shut down before the turn had ended.")
            raise
        except StoreError as exc:
            _log.error("the log refused a turn's events", error=str(exc))
            await self._break_off(live, running, "storage", f"The session's log could not be written: {exc}")
        except Exception:
            _log.exception("a turn broke")
            await self._break_off(live, running, "internal", "The turn broke off because of an error in AgenticX.")
        finally:
            self._running.discard(running)

    async def _write(self, live: _Live, running: _Running, batch: Sequence[RuntimeEvent]) -> None:
        if running.over:
            _log.error("events after the terminal one were dropped", count=len(batch))
            return
        last = next((place for place, event in enumerate(batch) if event.terminal), len(batch) - 1)
        stored = await self._append(live, running.turn.id, batch[: last + 1])
        running.over = stored[-1].terminal
        if not running.started.done():
            running.started.set_result(stored[0].seq - 1)

    async def _append(self, live: _Live, turn_id: str | None, events: Sequence[RuntimeEvent]) -> Sequence[StoredEvent]:
        async with live.lock:
            stored = await self._store.append(live.session.id, turn_id, events, expected_seq=live.seq)
            live.seq = stored[-1].seq
            return stored

    async def _break_off(self, live: _Live, running: _Running, code: str, text: str) -> None:
        """Give a turn that cannot go on its terminal event; where even that fails, at least free the session."""
        if running.over:
            return
        running.over = True
        try:
            if running.started.done():
                done = RuntimeEvent(EventType.STATE, {"state": "done"})
                error = RuntimeEvent(EventType.ERROR, {"text": text, "code": code, "fatal": True})
                await self._append(live, running.turn.id, [done, error])
            else:
                running.started.set_exception(TurnFailed(text))
                await self._store.release(running.turn)
        except StoreError as exc:
            _log.error("a turn's end could not be stored", error=str(exc))
            with suppress(StoreError):
                await self._store.release(running.turn)

    async def _end_all(self, turns: Sequence[_Running]) -> None:
        for running in turns:
            running.stop.set()
        tasks = [running.task for running in turns if running.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._clock.real(_CLOSING_SECONDS))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)


async def _started(running: _Running) -> TurnRecord:
    """Wait for the turn's first stored event; whoever waits may leave without disturbing it."""
    return replace(running.turn, after_seq=await asyncio.shield(running.started))
