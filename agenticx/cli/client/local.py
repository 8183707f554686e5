"""The client that stores sessions and runs turns in this process, on a store and a hub of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agenticx.assembly import close_images, configured_images, default_tools, make_hub
from agenticx.cli.client.base import (
    DEFAULT_OPTIONS,
    ResolvedModel,
    RewindReport,
    SessionInfo,
    SessionOptions,
    TurnOptions,
    TurnPosition,
)
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.client.reading import ReadingClient
from agenticx.cli.client.sharing import SessionSharing, SharedParts
from agenticx.clocks import SystemClock, rfc3339
from agenticx.core.session_notes import SessionNotes
from agenticx.errors import AgenticXError, SessionNotFound, StoreError
from agenticx.llms.model_cache import ModelCache
from agenticx.llms.providers.resolve import list_models
from agenticx.messages import UserMessage
from agenticx.permissions.rules import Rule
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmRequest, QuestionAnswer, QuestionRequest
from agenticx.runtime.user_requests.requests import UserAnswer
from agenticx.sessions.history.fork import fork
from agenticx.sessions.hub.hub import TurnRequest
from agenticx.sessions.hub.submission import NotQueued
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.attachments import find_attachment
from agenticx.sessions.store.base import Store
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.artifacts.files import Artifact
from agenticx.tools.registry import Toolbox

__all__ = ["LocalClient", "PolicyGate"]

_READ_EVENTS = 1000


class PolicyGate(AsyncConfirmGate):
    """A confirm gate that gives every confirmation in the sessions of this terminal the same answer.

    The terminals that use other sessions of this process answer their own confirmations.
    """

    def __init__(self, answer: ConfirmAnswer) -> None:
        super().__init__()
        self._answer = answer
        self.sessions = set[str]()
        """The ids of the sessions of this terminal."""

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        if request.session_id not in self.sessions:
            return await super().ask(request, announce)
        announce()
        return self._answer

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        if request.session_id not in self.sessions:
            return await super().ask_question(request, announce)
        announce()
        return QuestionAnswer(by="policy")


class LocalClient(ReadingClient):
    """A `Client` in this process.

    A turn that awaited a confirmation when its process died is resumed only if its session is given to `recover`.
    """

    def __init__(self, store: Store, settings: Settings, models: ModelCache, gate: AsyncConfirmGate) -> None:
        super().__init__(store)
        self._store = store
        self._settings = settings
        self._models = models
        self._images = configured_images(settings)
        self._toolbox = Toolbox(default_tools(self._images))
        self._resumed: set[str] = set()
        self._used: set[str] = set()  # ids of the sessions whose turns were started or followed
        self._own_turns: set[str] = set()  # ids of the turns that were started here
        self._confirms_by_policy = isinstance(gate, PolicyGate)
        if isinstance(gate, PolicyGate):
            gate.sessions = self._used
        self._notes = SessionNotes(settings, SystemClock(), store)
        self._hub = make_hub(
            store, models=models, toolbox=self._toolbox, settings=settings, gate=gate, notes=self._notes
        )
        self._sharing: SessionSharing | None = None

    def share(self, sharing: SessionSharing) -> None:
        """Serve the sessions to other terminals until this client is closed."""
        self._sharing = sharing
        sharing.serve(
            SharedParts(
                settings=self._settings,
                store=self._store,
                hub=self._hub,
                toolbox=self._toolbox,
                images=self._images,
                notes=self._notes,
            )
        )

    @property
    def runs_turns_of_others(self) -> bool:
        """True while a turn of another terminal runs here that does not wait for its user."""
        return not self._hub.working_turns <= self._own_turns

    async def recover(self, resume: Collection[str] = ()) -> None:
        """End the turns of dead processes; resume the turns of the sessions `resume` if possible, once per session."""
        not_yet_resumed = [session_id for session_id in resume if session_id not in self._resumed]
        if not_yet_resumed or not resume:
            self._resumed.update(not_yet_resumed)
            await self._hub.recover(resume_only=not_yet_resumed)

    @property
    def confirms_by_policy(self) -> bool:
        return self._confirms_by_policy

    @property
    def persistent(self) -> bool:
        return self._store.log.durability != "memory"

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, options: SessionOptions) -> SessionInfo:
        return SessionInfo(await self._hub.create(**asdict(options)))

    async def get(self, session_id: str) -> SessionInfo:
        return await self._session_info(await self._store.catalog.get(session_id))

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        listed = await self._store.catalog.sessions(
            query=query or None, limit=limit, before=before, archived="with" if archived else "without"
        )
        return [replace(SessionInfo.of(one), running_turn_id=self._hub.running_turn_id(one.id)) for one in listed]

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> SessionInfo:
        if "model" in changes:
            self._models.get(changes["model"])
        return await self._session_info(await self._hub.change(session_id, dict(changes)))

    async def fork(self, session_id: str, message_id: str | None) -> SessionInfo:
        now = rfc3339(SystemClock().now())
        return await self._session_info(await fork(self._store, session_id, message_id, now=now))

    async def rewind(self, session_id: str, message_id: str | None) -> RewindReport:
        result = await self._hub.rewind(session_id, message_id)
        files = [{"path": file.shown, "outcome": file.outcome, "reason": file.reason} for file in result.files]
        return RewindReport(result.rewound_to, result.undo, files)

    async def pick(self, session_id: str, option: int) -> None:
        await self._hub.pick(session_id, option)

    async def delete(self, session_id: str) -> None:
        await self._hub.delete(session_id)

    async def _session_info(self, record: SessionRecord) -> SessionInfo:
        return SessionInfo(record, self._hub.running_turn_id(record.id))

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(
        self, session_id: str, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS
    ) -> TurnPosition:
        request = TurnRequest(
            input=message.content,
            attachments=message.attachments,
            client_turn_id=options.client_turn_id,
            model=options.model,
            permission_mode=options.permission_mode,
            mode=options.mode,
            vaults=options.vaults,
            variants=options.variants,
            compact=options.compact,
            when_busy=options.when_busy or "reject",
        )
        self._used.add(session_id)
        submission = await self._hub.submit(session_id, request)
        self._own_turns.add(submission.turn.id)
        queued_id = submission.message_id if submission.state in ("queued", "handed_back") else None
        return TurnPosition(submission.turn.id, str(submission.after_seq), queued_id)

    async def running_turn(self, session_id: str) -> TurnPosition | None:
        self._used.add(session_id)
        await self.recover([session_id])
        running = self._hub.running_turn_id(session_id)
        turn = None if running is None else await self._store.log.turn(session_id, running)
        return None if turn is None or turn.after_seq is None else TurnPosition(turn.id, str(turn.after_seq))

    @asynccontextmanager
    async def follow(self, session_id: str, position: TurnPosition) -> AsyncGenerator[AsyncIterator[Envelope]]:
        news = asyncio.Event()
        if position.queued_message_id is not None:  # the turn has not begun
            with self._store.log.subscribe(session_id, news):
                yield self._events_after(session_id, int(position.cursor or 0), news, turn_id=position.turn_id)
            return
        running = asyncio.create_task(self._hub.wait_for_turn(session_id, position.turn_id), name="agx turn to follow")
        running.add_done_callback(lambda _: news.set())
        try:
            with self._store.log.subscribe(session_id, news):
                after = int(position.cursor or 0)
                yield self._events_after(session_id, after, news, turn_id=position.turn_id, has_ended=running.done)
        finally:
            running.cancel()

    @asynccontextmanager
    async def follow_log(self, session_id: str, after: int) -> AsyncGenerator[AsyncIterator[Envelope]]:
        news = asyncio.Event()
        with self._store.log.subscribe(session_id, news):
            yield self._events_after(session_id, after, news)

    async def _events_after(
        self,
        session_id: str,
        after: int,
        news: asyncio.Event,
        *,
        turn_id: str | None = None,
        has_ended: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[Envelope]:
        """Yield the events of the session up to the turn's end, or up to the last one once that turn `has_ended`.

        `news` is set after each commit, and at that end.
        """
        while True:
            news.clear()
            ended = has_ended()
            events = await self._store.log.read(session_id, after, _READ_EVENTS)
            for event in events:
                yield Envelope.parse(event.frame_json)
                if turn_id is not None and event.terminal and event.turn_id == turn_id:
                    return
            if events:
                after = events[-1].seq
            elif ended:
                return
            else:
                await news.wait()

    async def working_subagents(self) -> int:
        working = 0
        for session_id in self._used:
            with suppress(SessionNotFound, StoreError):  # deleted, or another process has it
                states = [agent["state"] for agent in await self._hub.subagents(session_id)]
                working += states.count("queued") + states.count("running")
        return working

    async def stop(self, session_id: str) -> None:
        await self._hub.stop(session_id)

    async def remove_queued(self, session_id: str, message_id: str) -> bool:
        try:
            await self._hub.remove_queued(session_id, message_id)
        except NotQueued:
            return False
        return True

    async def answer(self, request_id: str, answer: UserAnswer, digest: str) -> None:
        await self._hub.answer(request_id, answer, digest=digest)

    async def rules(self, session_id: str | None, workspace: Path) -> Sequence[Rule]:
        store = self._hub.rules
        stored = () if store is None else await run_in_thread(store.list, name="agx rules")
        own = () if session_id is None else await self._hub.session_rules(session_id)
        return [*(rule for rule in stored if rule.holds_in(workspace)), *own]

    async def remove_rule(self, rule_id: str) -> Rule:
        return await self._hub.remove_rule(rule_id)

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Sequence[Artifact]:
        return (await self._hub.artifacts(session_id, option=option)).listed()

    async def option_numbers(self, session_id: str) -> Sequence[int]:
        return [option.number for option, _ in await self._hub.options(session_id)]

    async def read_attachment(self, session_id: str, digest: str) -> bytes:
        file = await find_attachment(self._store, session_id, digest)
        if file is None:
            raise AgenticXError("a file of the message is not stored any more")
        return file.content()

    async def read_artifact(
        self, session_id: str, path: str, revision: int | None = None, *, option: int | None = None
    ) -> bytes:
        artifacts = await self._hub.artifacts(session_id, option=option)
        return await artifacts.read(artifacts.find(path, revision))

    # --- models and tools ---------------------------------------------------------------------------------------------

    async def resolve_model(self, name: str | None) -> ResolvedModel:
        model = self._models.get(name)
        return ResolvedModel(name or model.name, model.context_window)  # with the address that it has in `name`

    async def models(self) -> Sequence[str]:
        return [model.spec for model in await list_models(self._settings)]

    async def tools(self) -> Sequence[tuple[str, str]]:
        return [(tool.schema.name, tool.schema.description) for tool in self._toolbox]

    async def aclose(self) -> None:
        if self._sharing is not None:
            self._sharing.stop_accepting()
        await self._hub.close()
        if self._sharing is not None:
            await self._sharing.aclose()
        await self._models.aclose()
        await close_images(self._images)
        await self._store.aclose()
        if self._sharing is not None:
            self._sharing.remove()
