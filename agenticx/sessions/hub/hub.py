"""The hub: the sessions that this process owns, and the operations on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from agenticx.attachments import check_attachments
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, StoreError
from agenticx.llms.base import ChatModel
from agenticx.logs import bound_ids, get_logger
from agenticx.runtime import AgentHook, AsyncConfirmGate, ConfirmAnswer, ConfirmRequest, HookRegistry
from agenticx.sessions.hub.cache import ActorCache
from agenticx.sessions.hub.commands import (
    Answer,
    Change,
    Command,
    Delete,
    Rewind,
    Stop,
    Submit,
    decode_command,
    decode_result,
    encode_command,
    encode_error,
    encode_result,
)
from agenticx.sessions.hub.confirmations import open_question, unknown_confirm
from agenticx.sessions.hub.rewind import RewindResult
from agenticx.sessions.hub.session_actor import SessionActor
from agenticx.sessions.hub.submission import HubClosed, Submission, TurnConflict, TurnFailed, TurnRequest
from agenticx.sessions.hub.turn_services import TurnServices
from agenticx.sessions.store.base import NoOwner, SessionOwnedElsewhere, Store
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.records import SessionRecord, TurnRecord
from agenticx.settings import Settings
from agenticx.threads import run_sized
from agenticx.tools.base import Tool

__all__ = ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest"]

_ATTEMPTS = 5  # at a session whose owner changes meanwhile

_log = get_logger(__name__)


class Hub:
    """The owner of the sessions of one store, each of which has a `SessionActor` while it is in use.

    `models` finds a model by name (None: the default) and `tools` returns the tools of a session; both raise an
    `AgenticXError` whose message names the accepted values. `hooks` run in every turn, with `system_prompt` instead of
    `config/prompts/system.md`. If the store has `blobs`, the previous contents of the files that turns change are kept.
    A turn runs with `settings` as they apply in its session's workspace. All methods must be called on one event loop.
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
        system_prompt: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.gate = gate or AsyncConfirmGate()
        self._store = store
        self._services = TurnServices(
            store=store,
            models=models,
            tools=tools,
            settings=settings,
            gate=self.gate,
            hooks=HookRegistry.from_hooks(hooks),
            clock=clock or SystemClock(),
            own_system_prompt=system_prompt,
        )
        self._actors = ActorCache(self._claim)
        self._resume_only: Collection[str] | None = ()  # no turn resumes before `recover`
        self._serving, self._is_serving = AsyncExitStack(), False

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
        if request.attachments:
            size = sum(len(attachment.data) for attachment in request.attachments)
            await run_sized(check_attachments, request.attachments, size=size, name="agx attachments")
        return await self._perform(session_id, Submit(request=request))

    async def stop(self, session_id: str) -> TurnRecord | None:
        """Request the end of the session's running turn and return it, None when none runs.

        Queued messages are handed back once no turn runs.
        """
        return await self._perform(session_id, Stop())

    def running_turn_id(self, session_id: str) -> str | None:
        """Return the id of the turn that the session runs in this process, None when none runs."""
        actor = self._actors.get(session_id)
        return actor.turns.running.turn.id if actor and actor.turns.running else None

    async def running_turn_ids(self, session_ids: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the turns that these sessions run, here or at another owner, by session id."""
        actors = {session_id: self._actors.get(session_id) for session_id in session_ids}
        elsewhere = [session_id for session_id, actor in actors.items() if actor is None]
        running = {id_: actor.turns.running.turn.id for id_, actor in actors.items() if actor and actor.turns.running}
        return running | dict(await self._store.catalog.running_turns(elsewhere) if elsewhere else {})

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and append a `session_changed` event."""
        return await self._perform(session_id, Change(changes=changes))

    async def rewind(self, session_id: str, message_id: str | None) -> RewindResult:
        """Truncate the session's conversation after that message (None: to nothing) and restore files to that point.

        Raises `SessionNotFound`, `MessageNotFound`, `SessionBusy` while a turn runs, `HubClosed`, `StoreError`.
        """
        return await self._perform(session_id, Rewind(message_id=message_id))

    async def delete(self, session_id: str) -> None:
        """Stop the session's turn and delete the session with its queued messages; it may be unreadable."""
        try:
            await self._perform(session_id, Delete())
        except DamagedData as exc:
            _log.error("unreadable session is being deleted", error=str(exc))
            if self._store.blobs is not None:
                await self._store.blobs.forget(session_id)
            await self._store.delete(await self._store.ownership.claim(session_id))

    # --- questions ----------------------------------------------------------------------------------------------------

    async def open_confirms(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """Return the open questions of a session or of all whose `confirm_required` is stored, oldest first."""
        return [open_question(event) for event in await self._store.catalog.open_questions(session_id)]

    async def answer_confirm(self, request_id: str, answer: ConfirmAnswer, *, digest: str) -> ConfirmAnswer:
        """Answer a question and return the decision, which is durable; the first valid answer counts.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for another answer that comes too late.
        """
        session_id = await self._store.catalog.session_of("question_asked", request_id)
        if session_id is None:
            raise unknown_confirm(request_id)
        return await self._perform(session_id, Answer(request_id=request_id, answer=answer, digest=digest))

    # --- owners -------------------------------------------------------------------------------------------------------

    async def _perform(self, session_id: str, command: Command) -> Any:
        """Carry out a command: here, if this process owns the session or can claim it, else at its owner."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._perform_here(session_id, command)
            except SessionOwnedElsewhere:
                try:
                    answer = await self._store.ownership.call(session_id, encode_command(command))
                except NoOwner:
                    continue
                return decode_result(command, answer)
        raise StoreError(f"session {session_id!r} changes its owner; try again")

    async def _perform_here(self, session_id: str, command: Command) -> Any:
        actor = await self._actors.open(session_id)
        try:
            return await actor.perform(command)
        finally:
            if actor.deleted or self._actors.is_closed:
                await self._actors.finish(actor)

    async def _handle(self, session_id: str, data: bytes) -> bytes:
        """Carry out the command of another process for a session that this one owns."""
        command = decode_command(data)
        if self._actors.get(session_id) is None:
            raise NoOwner(f"session {session_id!r} is not owned here")
        try:
            return encode_result(command, await self._perform_here(session_id, command))
        except AgenticXError as exc:
            return encode_error(exc)

    # --- start and end ------------------------------------------------------------------------------------------------

    async def recover(self, *, resume_only: Collection[str] | None = None) -> None:
        """Resume or end the turns of the previous process; call it before any other method.

        Messages queued after a turn that resumes stay queued. All other queued messages are handed back: nothing begins
        by itself at a start. A process that serves only some sessions names them in `resume_only`: a resumable turn of
        any other session is left unchanged, with the messages queued after it, for a later call or process.
        """
        self._resume_only = resume_only
        if not self._is_serving:
            self._is_serving = True
            await self._serving.enter_async_context(self._store.ownership.serve(self._handle))
        session_ids = [session_id async for session_id in self._store.ownership.orphans()]
        for session_id in (*session_ids, *(resume_only or ())):
            with bound_ids(session=session_id):
                try:
                    actor = await self._actors.open(session_id)
                    if actor.unresumed is not None:
                        await actor.recover(may_resume=self._may_resume(session_id))
                except StoreError as exc:
                    _log.error("session recovery failed", error=str(exc))

    async def close(self) -> None:
        """Stop all turns and wait for them, bounded; no turn begins afterwards and queued messages are handed back.

        If the store outlives the process, turns that wait for a confirmation stay as they are, and so do the messages
        queued after them: they continue after a restart.
        """
        self._services.closing = True
        actors = list(self._actors)
        for actor in actors:
            actor.turns.suspend()
        await asyncio.gather(*(actor.turns.stop() for actor in actors))
        await asyncio.gather(*(actor.close() for actor in actors))
        for actor in actors:
            self._actors.discard(actor)
        self._actors.is_closed = True
        await self._serving.aclose()

    async def _claim(self, session_id: str) -> SessionActor:
        """Become the owner of the session and go on with what an earlier owner left."""
        lease = await self._store.ownership.claim(session_id)
        try:
            loaded = await lease.load()
            actor = SessionActor(lease, loaded, self._services)
            if not self._services.closing and (loaded.running or loaded.open_facts):
                await self._recover(actor)
        except StoreError:  # the next operation, here or elsewhere, claims the session again
            with suppress(StoreError):
                await lease.release(work_left=True)
            raise
        return actor

    async def _recover(self, actor: SessionActor) -> None:
        """Go on with what an earlier owner left; end all tasks of the actor if that fails."""
        try:
            await actor.recover(may_resume=self._may_resume(actor.id))
        except StoreError:
            await actor.abandon()
            raise

    def _may_resume(self, session_id: str) -> bool:
        return self._resume_only is None or session_id in self._resume_only
