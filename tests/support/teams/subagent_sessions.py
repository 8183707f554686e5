"""A session of a hub whose agents have scripts by their names, and helpers that wait for what they do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from agenticx import UserMessage
from agenticx.clocks import rfc3339
from agenticx.llms import ChatModel, ModelRequest, ScriptedModel
from agenticx.sessions import (
    Durability,
    Hub,
    Log,
    MemoryStore,
    Ownership,
    OwnershipLost,
    SessionRecord,
    Store,
    StoredEvent,
    TurnRequest,
)
from agenticx.settings import load_settings
from agenticx.subagents import session_tools
from agenticx.testing import call
from agenticx.tools import Tool
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.memory_store import expire_lease
from tests.support.timeouts import explained_timeout
from tests.support.two_hubs import hub_over

__all__ = ["MortalStore", "SubagentSession", "notices", "spawn"]


def spawn(name: str, task: str = "work", **options: Any) -> Any:
    """Return the call that starts a sub-agent, which uses the model of its name."""
    return call("spawn_subagent", {"task": task, "name": name, "model": name, **options})


def notices(request: ModelRequest) -> list[str]:
    """Return the messages of the engine in a request."""
    return [one.content for one in request.messages if isinstance(one, UserMessage) and one.injected]


class _LogThatLasts:
    """The log of a store in memory, which outlives the processes of a test."""

    durability: Durability = "replicas"
    is_shared = True

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


class MortalStore(InterceptedStore):
    """A store of one process, which dies as by a kill before its commit number `dies_at`: it writes nothing more."""

    def __init__(self, memory: MemoryStore, dies_at: int = 0) -> None:
        super().__init__(memory, self._commit)
        self.memory = memory
        self.dies_at = dies_at
        self.is_dead = False
        self._commits = 0

    def die(self, session_id: str) -> None:
        """Write nothing from now on, and lose the session."""
        self.is_dead = True
        expire_lease(self.memory, session_id)

    @property
    def log(self) -> Log:
        return cast("Log", _LogThatLasts(self.memory))

    @property
    def ownership(self) -> Ownership:
        if self.is_dead:
            raise OwnershipLost("the process has died")
        return super().ownership

    async def _commit(self, write: Write) -> Sequence[StoredEvent]:
        self._commits += 1
        if self._commits == self.dies_at:
            self.die(write.session_id)
        if self.is_dead:
            raise OwnershipLost("the process has died")
        return await write.make()


class SubagentSession:
    """A session over a store, whose main agent has the model `main`; `models` are those of the sub-agents by name."""

    def __init__(
        self,
        folder: Path,
        open_store: Callable[[], Store],
        tools: Sequence[Tool] = (),
        *,
        mode: Any = "default",
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.open_store = open_store
        self.tools = [*session_tools(), *tools]
        self.settings = load_settings({"home": folder, **settings}, environ={})
        self.record = SessionRecord(
            name="x", workspace=str(folder), permission_mode=mode, created_at="2026-01-01T00:00:00.000Z"
        )
        self.models: dict[str | None, ChatModel] = {}
        self._is_created = False

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def main(self) -> ScriptedModel:
        model = self.models[None]
        assert isinstance(model, ScriptedModel)
        return model

    def model(self, name: str) -> ScriptedModel:
        model = self.models[name]
        assert isinstance(model, ScriptedModel)
        return model

    def new_hub(self, main: Sequence[Any], workers: Mapping[str, Sequence[Any]], **options: Any) -> Any:
        """Return a hub over a newly opened store, without what an earlier one left."""
        self.store = self.open_store()
        self.models = {None: ScriptedModel(main), **{name: ScriptedModel(script) for name, script in workers.items()}}
        models = self.models
        options = {"settings": self.settings, **options}
        return hub_over(self.store, models=models.__getitem__, tools=lambda _: self.tools, **options)

    @asynccontextmanager
    async def hub(self, main: Sequence[Any], **workers: Sequence[Any]) -> AsyncGenerator[Hub]:
        """Yield a hub that has recovered, and close it."""
        hub = self.new_hub(main, workers)
        if not self._is_created:
            self._is_created = True
            self.record = replace(self.record, created_at=rfc3339(datetime.now(UTC)))  # by this hub
            await self.store.create(self.record)
        await hub.recover()
        yield hub
        await hub.close()
        await self.store.aclose()

    async def run(self, hub: Any, text: str = "go") -> dict[str, Any]:
        """Run a turn of the main agent and return its terminal event."""
        turn = await hub.start(self.id, TurnRequest(input=text))
        return (await self.wait_for(lambda one: one["turn_id"] == turn.id and _is_end(one)))[-1]

    async def envelopes(self) -> list[dict[str, Any]]:
        """Return the log."""
        return [json.loads(event.frame_json) for event in await self.store.log.read(self.id, 0, 100_000)]

    async def wait_for(self, condition: Callable[[dict[str, Any]], bool], count: int = 1) -> list[dict[str, Any]]:
        """Return the envelopes that fulfil the condition, once there are so many."""
        wakeup = asyncio.Event()
        with self.store.log.subscribe(self.id, wakeup):
            async with explained_timeout(self._outline):
                while len(found := [one for one in await self.envelopes() if condition(one)]) < count:
                    await wakeup.wait()
                    wakeup.clear()
        return found

    async def _outline(self) -> list[tuple[str, str]]:
        return [(one["type"], one["agent_id"]) for one in (await self.envelopes())[-20:]]

    async def wait_for_event(self, type_: str, agent_id: str, count: int = 1) -> dict[str, Any]:
        """Return the last of so many events of an agent, once they are stored."""
        return (await self.wait_for(lambda one: (one["type"], one["agent_id"]) == (type_, agent_id), count))[-1]


def _is_end(envelope: dict[str, Any]) -> bool:
    return envelope["type"] == "final" or (envelope["type"] == "error" and envelope["data"]["fatal"])
