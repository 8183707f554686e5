"""A session of a hub with queued messages, and a store whose writes can be made to fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import (
    Hub,
    SessionRecord,
    Store,
    Submission,
    TurnRequest,
    transcript,
)
from agenticx.settings import load_settings
from agenticx.testing import check_grammar
from agenticx.tools import tool
from tests.support.timeouts import explained_timeout
from tests.support.two_hubs import hub_over


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


class QueueHarness:
    """One session of a hub, and what is in its log."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        self._settings = load_settings({"home": folder / "home"}, environ={})
        self.models: dict[str | None, ScriptedModel] = {}
        self.unknown_models: set[str | None] = set()

    async def open(self, model: ScriptedModel) -> Hub:
        """Return a hub that runs the session with `model`, as a new process would make it."""
        self.models = {None: model}
        self.hub: Any = hub_over(
            self.store, models=self._find_model, tools=lambda _record: [note], settings=self._settings
        )
        if self.record.id not in [one.id for one in await self.store.catalog.sessions()]:
            await self.store.create(self.record)
        await self.hub.recover()
        return self.hub

    def _find_model(self, name: str | None) -> ScriptedModel:
        if name in self.unknown_models:
            raise StoreError("no such model")
        return self.models[name]

    async def submit(self, text: str, when_busy: Any = "queue", **fields: Any) -> Submission:
        return await self.hub.submit(self.record.id, TurnRequest(input=text, when_busy=when_busy, **fields))

    async def wait_until(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Return the session's envelopes once they are `done`; they must follow the grammar."""
        wakeup = asyncio.Event()
        with self.store.log.subscribe(self.record.id, wakeup):
            while True:
                wakeup.clear()
                events = [
                    json.loads(event.frame_json) for event in await self.store.log.read(self.record.id, 0, 10_000)
                ]
                if done(events):
                    check_grammar(events, complete=False)
                    return events
                async with explained_timeout(lambda events=events: [event["type"] for event in events[-20:]]):
                    await wakeup.wait()

    async def wait_for(self, type_: str, times: int = 1) -> list[dict[str, Any]]:
        return await self.wait_until(lambda events: sum(event["type"] == type_ for event in events) >= times)

    async def transcript(self) -> list[str]:
        events = await self.store.log.read(self.record.id, 0, 10_000)
        return [f"{message['role']}: {message['content']}" for message in transcript(events)]


def outline_of(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the events other than those of the model and of state: `turn_started one`, `queued two`, `final`, …"""
    wanted = {"turn_started": "input", "queued": "input", "handed_back": "input", "steered": "text", "error": "code"}
    wanted |= {"final": "text", "tool_result": "outcome", "confirm_required": "question"}
    lines = [f"{event['type']} {event['data'][wanted[event['type']]]}" for event in events if event["type"] in wanted]
    return ["confirm_required" if line.startswith("confirm") else line for line in lines]
