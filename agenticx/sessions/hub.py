"""Owns the sessions in use: takes in what is posted to them, one turn at a time, and lets go on what waits."""

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
from agenticx.runtime.turn_log import log_cut_turn
from agenticx.sessions.at_hand import AtHand
from agenticx.sessions.base import SessionRecord, Store, TurnRecord
from agenticx.sessions.confirming import Confirming
from agenticx.sessions.damage import map_decode_errors
from agenticx.sessions.live import LiveSession, RunningTurn, to_its_end
from agenticx.sessions.naming import Naming
from agenticx.sessions.posting import HubClosed, Posted, TurnConflict, TurnFailed, TurnRequest, check_same
from agenticx.sessions.queueing import Queueing, turn_of
from agenticx.sessions.recovery import resume_point
from agenticx.sessions.rewinding import RewindResult, rewind
from agenticx.sessions.snapshots import SnapshotFolder
from agenticx.sessions.titles import title_of
from agenticx.sessions.turns import Turns
from agenticx.sessions.waiting import WaitingMessage
from agenticx.settings import Settings
from agenticx.threads import run_in_thread, run_sized
from agenticx.tools.base import Tool, is_idempotent

__all__ = ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"]

_log = get_logger(__name__)

_INTERRUPT_SECONDS = 2.0  # what a turn may take to end before its interrupter is told to wait


class Hub:
    """Runs turns for whoever asks.

    `models` finds a model by name (None: the default) and `tools` the tools of a session; both raise an
    `AgenticXError` that says what would be right; `hooks` run in every turn; `snapshots` keeps what files held that
    turns change. A turn runs with `settings` as they are in its workspace. All calls belong on one event loop.
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
        self.confirms = Confirming(self.gate, store)
        self._store = store
        self._models = models
        self._tools = tools
        self._clock = clock or SystemClock()
        self._at_hand = AtHand(store, snapshots)
        self._naming = Naming(store, self._at_hand)
        self._turns = Turns(
            store=store,
            gate=self.gate,
            confirms=self.confirms,
            settings=settings,
            hooks=HookRegistry.of(hooks),
            clock=self._clock,
            begin_log=self._naming.begin,
            behind=self._tell_name,
            ended=lambda live, running: self._queueing.on_ended(live, running),
            refused=lambda session_id: self._queueing.settle_soon(session_id, failed=True),
        )
        self._queueing = Queueing(
            store,
            self._clock,
            open_=self._open,
            free=self._turns.end_belatedly,
            begin=self._begin_waiting,
            gone=self._turns.forget,
        )
        self._snapshots = snapshots
        self._private = settings.private_paths
        self._closing = False

    # --- posting ------------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, request: TurnRequest) -> TurnRecord:
        """The turn of `post`."""
        return (await self.post(session_id, request)).turn

    async def post(self, session_id: str, request: TurnRequest) -> Posted:
        """Take in a message; what is returned is durable. A free session begins its turn at once.

        A turn that began is told once its first event is stored, `after_seq` being the place just before it. While
        another one runs, `when_busy` decides; a turn that is about to end takes no steering any more, so such a message
        begins the next one. The same `client_turn_id` again tells what has become of the message, and does nothing.
        Raises `AttachmentRefused`, `SessionNotFound`, `SessionBusy` (nothing was written), `TurnConflict`,
        `TurnFailed`, `HubClosed`, `StoreError`, what the model's name got wrong, or `SettingsError` (nothing was
        written) where the settings file of the session's workspace cannot be used.
        """
        size = sum(len(attachment.data) for attachment in request.attachments)
        await run_sized(check_attachments, request.attachments, size=size, name="agx attachments")
        record = await self._store.get(session_id)
        model, tools = self._models(request.model or record.model), self._tools(record)
        live = await self._at_hand.open(record)
        message = WaitingMessage.of_request(session_id, request)
        admitted = await to_its_end(self._admit(live, request, message, _Means(record, model, tools)))
        if isinstance(admitted, Posted):
            return admitted
        if isinstance(admitted, RunningTurn):
            turn = await admitted.begun()
            return Posted(state="started", turn=turn, after_seq=turn.after_seq or 0)
        if request.when_busy == "interrupt":
            with suppress(TimeoutError):
                await asyncio.wait_for(message.gone.wait(), self._clock.real(_INTERRUPT_SECONDS))
        return await self._queueing.fate(live, message)

    async def _admit(
        self, live: LiveSession, request: TurnRequest, message: WaitingMessage, means: _Means
    ) -> Posted | RunningTurn | None:
        """What the session knows of `message` already, or the turn that it began; None once it waits."""
        async with live.door:
            while True:
                self._check_open()
                await self._queueing.settle(live)
                if (known := await self._queueing.posted_before(live, request)) is not None:
                    return known
                before = live.current
                try:
                    turn = await self._claim(message)
                except SessionBusy:
                    if request.when_busy == "reject":
                        raise
                    return await self._queueing.join(live, message, request)
                if turn.id != message.turn_id:
                    return self._known(turn, request)
                if before is None or not live.waiting:
                    return self._begin(live, turn, message, means)
                await self._turns.release(turn)  # the one before is over just now, and what waits for it comes first
                await before.finished.wait()

    async def _claim(self, message: WaitingMessage) -> TurnRecord:
        """Claim the session for the turn of `message`, as `Store.claim`; raises `HubClosed` too."""
        turn = await self._turns.claim(turn_of(message))
        if self._closing and turn.id == message.turn_id:
            await self._turns.release(turn)
        self._check_open()
        return turn

    def _check_open(self) -> None:
        if self._closing:
            raise HubClosed("the server is shutting down; try again when it is back")

    def _known(self, turn: TurnRecord, request: TurnRequest) -> Posted | RunningTurn:
        """The earlier turn of the same `client_turn_id`; raises `TurnConflict` if that said something else."""
        check_same(turn.client_turn_id, turn, request)
        return self._turns.known(turn.id) or Posted(state="started", turn=turn, after_seq=turn.after_seq or 0)

    async def _begin_waiting(self, live: LiveSession, message: WaitingMessage) -> bool:
        """Begin the turn of a message that waited, or give it up; False if the session is not free yet."""
        record = await self._store.get(live.session.id)
        try:
            model, tools = self._models(message.model or record.model), self._tools(record)
        except AgenticXError as exc:
            _log.warning("a message that waited cannot begin its turn", error=str(exc))
            message.given_up = True
            return True
        try:
            turn = await self._claim(message)
        except SessionBusy:
            return False
        except HubClosed:
            message.given_up = True
            return True
        self._begin(live, turn, message, _Means(record, model, tools))
        return True

    def _begin(self, live: LiveSession, turn: TurnRecord, message: WaitingMessage, means: _Means) -> RunningTurn:
        running = RunningTurn(turn, title=title_of(turn.input) if means.record.name is None else None)
        self._turns.begin(live, running, message.message, means.model, means.tools)
        return running

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop(self, session_id: str) -> TurnRecord | None:
        """Ask the session's running turn to end; returns it, None when none runs. What waits is handed back then."""
        await self._store.get(session_id)
        live = self._at_hand.get(session_id)
        if live is None:
            return None
        live.waiting.give_up()
        running = live.current
        if running is not None:
            running.stop.set()
            return running.turn
        await self._queueing.settle_alone(live)
        return None

    def running_turn(self, session_id: str) -> str | None:
        """The id of the turn that the session runs."""
        live = self._at_hand.get(session_id)
        return live.current.turn.id if live and live.current else None

    async def close(self) -> None:
        """Stop all turns and wait for them, bounded; nothing starts afterwards, and what waits is handed back.

        Turns that wait for a person are left as they are if the store outlives the process, and so is what waits for
        them: they go on after a restart.
        """
        self._closing = self._queueing.closing = True
        self._turns.park()
        await self._turns.end_all(list(self._turns.running))
        await self._queueing.close()

    async def _open(self, session_id: str) -> LiveSession:
        return await self._at_hand.open(await self._store.get(session_id))

    # --- after a restart ----------------------------------------------------------------------------------------------

    async def recover(self, *, taking_up: Collection[str] | None = None) -> None:
        """Take up or end the turns of the process before this one; to be called before any other method.

        What waited for a turn that goes on waits on. Everything else that waited is handed back: nothing begins by
        itself at a start. A process that is there for some sessions only names them in `taking_up`: a turn that could
        go on in another one is left as it lies, with what waits for it, for a later call or start.
        """
        await self._find_waiting(lambda session_id: taking_up is None or session_id in taking_up)
        for turn in await self._store.unfinished_turns():
            if self._turns.known(turn.id) is None:
                with self._alone(turn.session_id, turn):
                    await self._turns.end_processes(turn)
                    await self._recover(turn, goes_on=taking_up is None or turn.session_id in taking_up)
        going_on = {turn.session_id for turn in await self._store.unfinished_turns()}
        await self._find_waiting(lambda session_id: session_id not in going_on)
        await self._queueing.wait_on()
        for entry in await self._store.open_journal_entries("named", "told"):
            if entry.session_id not in going_on:
                with self._alone(entry.session_id):
                    await self._naming.tell(await self._open(entry.session_id), entry.turn_id)

    @contextmanager
    def _alone(self, session_id: str, turn: TurnRecord | None = None) -> Generator[None]:
        """A session that cannot be recovered keeps no other from it; its turn is ended before its next one begins."""
        with bound_ids(session=session_id, turn=turn.id if turn else None):
            try:
                yield
            except StoreError as exc:
                _log.error("a session could not be taken up", error=str(exc))
                if turn is not None:
                    self._turns.end_later(turn)

    async def _find_waiting(self, wanted: Callable[[str], bool]) -> None:
        for entry in await self._store.open_journal_entries("posted", "taken"):
            if wanted(entry.session_id):
                with self._alone(entry.session_id):
                    self._queueing.find(await self._open(entry.session_id), entry)

    async def _recover(self, turn: TurnRecord, *, goes_on: bool) -> None:
        if turn.after_seq is None:
            return await self._store.release(turn)
        record = await self._store.get(turn.session_id)
        live = await self._at_hand.open(record)
        cut = await self._turns.cut(turn)
        with map_decode_errors("the log of a turn"):
            point = resume_point(cut, live.session.messages, self._repeatable(record)) if self._turns.resumes else None
        if point is not None and not goes_on:
            return None
        if point is not None:
            try:
                model, tools = self._models(record.model), self._tools(record)
                settings = await self._turns.settings_in(live.session.workspace)
            except AgenticXError as exc:
                _log.warning("a turn that waited for a person cannot go on", error=str(exc))
            else:
                running = RunningTurn(turn, title=title_of(turn.input))
                running.started.set_result(turn.after_seq)
                return self._turns.begin(live, running, point, model, tools, settings)
        events = await self._turns.end(live, turn, "interrupted", "The program ended while this turn was running.")
        log_cut_turn(events, cut.questions, rounds=cut.round, usage=cut.usage)

    def _repeatable(self, record: SessionRecord) -> Callable[[str], bool]:
        """Whether the session has a tool of a name whose calls may be run again."""

        def repeatable(name: str) -> bool:
            try:
                tools = self._tools(record)
            except AgenticXError:
                return False
            return any(is_idempotent(tool) for tool in tools if tool.schema.name == name)

        return repeatable

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and tell its readers."""
        return await self._naming.change(session_id, changes)

    async def delete(self, session_id: str) -> None:
        """End what the session runs, then forget it, and what waits in it; nothing of it has to be readable."""
        live = await self._at_hand.to_delete(session_id)
        await to_its_end(self._delete(live))

    async def _delete(self, live: LiveSession) -> None:
        session_id = live.session.id
        async with live.door:  # nothing begins meanwhile, and whoever waits here finds no session
            self._queueing.forget(live)
            await self._turns.end_all([one for one in self._turns.running if one.turn.session_id == session_id])
            if self._snapshots is not None:
                await run_in_thread(self._snapshots.delete, session_id)
            await self._store.delete(session_id)
            self._queueing.forget(live)
            self._turns.forget(session_id)
            self._at_hand.forget(session_id)

    async def rewind(self, session_id: str, message_id: str | None) -> RewindResult:
        """Let the session's conversation end with that message (None: begin anew), and restore files with it.

        Raises `SessionNotFound`, `MessageNotFound`, `SessionBusy` while a turn runs, `HubClosed`, `StoreError`.
        """
        return await to_its_end(self._rewind(await self._open(session_id), message_id))

    async def _rewind(self, live: LiveSession, message_id: str | None) -> RewindResult:
        async with live.door:
            self._check_open()
            await self._queueing.settle(live)
            claim = await self._turns.claim(TurnRecord(session_id=live.session.id, input=""))
            try:
                return await rewind(self._store, live, message_id, self._snapshots, private=self._private)
            finally:
                await self._turns.release(claim)

    async def _tell_name(self, live: LiveSession, running: RunningTurn) -> None:
        if running.title is not None and not self._closing:
            await self._naming.tell(live, running.turn.id)


@dataclass(frozen=True, slots=True)
class _Means:
    """What a turn is run with."""

    record: SessionRecord
    model: ChatModel
    tools: Sequence[Tool]
