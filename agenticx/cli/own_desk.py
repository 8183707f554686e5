"""Sessions kept and turns run in this process: a store that is ours, and a hub over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any, Literal

from agenticx.cli.desk import Known, NewSession, Place
from agenticx.cli.envelopes import Envelope
from agenticx.clocks import SystemClock, rfc3339
from agenticx.llms.named import NamedModels
from agenticx.messages import UserMessage
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmRequest
from agenticx.sessions.base import SessionRecord, Store
from agenticx.sessions.exporting import as_jsonl, as_markdown
from agenticx.sessions.hub import Hub, TurnRequest
from agenticx.sessions.reading import read_log_pages
from agenticx.sessions.snapshots import SnapshotFolder
from agenticx.sessions.transcript import read_messages
from agenticx.settings import Settings
from agenticx.tools.base import Tool
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.registry import Toolbox

__all__ = ["OwnDesk", "PolicyGate"]

_READ_EVENTS = 1000
_LOOK_SECONDS = 1.0
"""How often a reader that hears nothing makes sure that its turn still runs."""


class PolicyGate(AsyncConfirmGate):
    """Gives every question the same answer at once, for want of a person who would be asked."""

    def __init__(self, answer: ConfirmAnswer) -> None:
        super().__init__()
        self._answer = answer

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        announce()
        return self._answer


class OwnDesk:
    """`Desk` in this process. Of turns that a dead process left waiting for a person, only those of `at_work` go on."""

    def __init__(self, store: Store, settings: Settings, models: NamedModels, gate: AsyncConfirmGate) -> None:
        self._store = store
        self._models = models
        self._toolbox = Toolbox(builtin_tools())
        self._at_work: set[str] = set()
        self._by_policy = isinstance(gate, PolicyGate)
        self._hub = Hub(
            store,
            models=models.named,
            tools=self._tools_of,
            settings=settings,
            gate=gate,
            snapshots=SnapshotFolder(settings.home / "snapshots") if store.is_persistent else None,
        )

    async def recover(self, at_work: Collection[str] = ()) -> None:
        """End the turns of processes that died, and go on with those of `at_work` that can; once for each session."""
        fresh = [session_id for session_id in at_work if session_id not in self._at_work]
        if fresh or not at_work:
            self._at_work.update(fresh)
            await self._hub.recover(taking_up=fresh)

    @property
    def by_policy(self) -> bool:
        return self._by_policy

    @property
    def kept(self) -> bool:
        return self._store.is_persistent

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, wanted: NewSession) -> Known:
        self._models.named(wanted.model)
        record = SessionRecord(**asdict(wanted), created_at=rfc3339(SystemClock().now()))
        await self._store.create(record)
        return Known(record)

    async def get(self, session_id: str) -> Known:
        return await self._known(await self._store.get(session_id))

    async def sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[Known]:
        shelf = "with" if archived else "without"
        if not query:
            records = await self._store.sessions(limit=limit, before=before, archived=shelf)
            return [await self._known(record) for record in records]
        found = await self._store.search(query, limit=limit, before=before, archived=shelf)
        return [await self._known(one.record, [asdict(match) for match in one.matches]) for one in found]

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> Known:
        if "model" in changes:
            self._models.named(changes["model"])
        return await self._known(await self._hub.change(session_id, dict(changes)))

    async def delete(self, session_id: str) -> None:
        await self._hub.delete(session_id)

    async def _known(self, record: SessionRecord, matches: Sequence[Mapping[str, Any]] = ()) -> Known:
        return Known(record, self._hub.running_turn(record.id), matches)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def start(self, session_id: str, said: UserMessage, model: str | None) -> Place:
        request = TurnRequest(input=said.content, attachments=said.attachments, model=model)
        turn = await self._hub.start(session_id, request)
        return Place(turn.id, str(turn.after_seq))

    async def running(self, session_id: str) -> Place | None:
        await self.recover([session_id])
        running = self._hub.running_turn(session_id)
        turn = None if running is None else await self._store.turn(session_id, running)
        return None if turn is None or turn.after_seq is None else Place(turn.id, str(turn.after_seq))

    @asynccontextmanager
    async def follow(self, session_id: str, place: Place) -> AsyncGenerator[AsyncIterator[Envelope]]:
        news = asyncio.Event()
        with self._store.subscribe(session_id, news):
            yield self._turn_events(session_id, place, news)

    async def _turn_events(self, session_id: str, place: Place, news: asyncio.Event) -> AsyncGenerator[Envelope]:
        after, over = int(place.cursor or 0), False
        while True:
            news.clear()
            events = await self._store.read(session_id, after, _READ_EVENTS)
            for event in events:
                yield Envelope.read(event.frame_json)
                if event.terminal and event.turn_id == place.turn_id:
                    return
            if events:
                after = events[-1].seq
            elif over:
                return
            elif not await _rings(news):
                over = self._hub.running_turn(session_id) != place.turn_id

    async def stop(self, session_id: str) -> None:
        await self._hub.stop(session_id)

    async def answer(self, request_id: str, digest: str, answer: ConfirmAnswer) -> None:
        await self._hub.confirms.answer(request_id, answer, digest=digest)

    @asynccontextmanager
    async def log(self, session_id: str) -> AsyncGenerator[AsyncIterator[Envelope]]:
        await self._store.get(session_id)
        yield self._all_events(session_id)

    async def _all_events(self, session_id: str) -> AsyncGenerator[Envelope]:
        async for events in read_log_pages(self._store, session_id):
            for event in events:
                yield Envelope.read(event.frame_json)

    @asynccontextmanager
    async def export(self, session_id: str, form: Literal["jsonl", "markdown"]) -> AsyncGenerator[AsyncIterator[bytes]]:
        record = await self._store.get(session_id)
        yield self._jsonl(session_id) if form == "jsonl" else self._markdown(record)

    async def _jsonl(self, session_id: str) -> AsyncGenerator[bytes]:
        async for events in read_log_pages(self._store, session_id):
            yield as_jsonl(events)

    async def _markdown(self, record: SessionRecord) -> AsyncGenerator[bytes]:
        yield as_markdown(record, await read_messages(self._store, record.id)).encode()

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def model(self, name: str | None) -> str:
        return self._models.named(name).name

    async def tools(self) -> Sequence[tuple[str, str]]:
        return [(tool.schema.name, tool.schema.description) for tool in self._toolbox]

    async def aclose(self) -> None:
        await self._hub.close()
        await self._models.aclose()
        await self._store.aclose()

    def _tools_of(self, record: SessionRecord) -> tuple[Tool, ...]:
        return tuple(self._toolbox if record.tools is None else self._toolbox.only(record.tools))


async def _rings(news: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_SECONDS):
            await news.wait()
    return news.is_set()
