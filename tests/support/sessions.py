"""A harness for tests of the hub, and functions that wait for stored events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmRequest
from agenticx.sessions import Hub, SessionRecord, Store, StoredEvent, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call
from agenticx.tools import Tool, tool
from agenticx.tools.builtin import ask_user
from tests.support.timeouts import explained_timeout
from tests.support.two_hubs import hub_over

__all__ = ["SessionHarness", "wait_for_event", "wait_for_turn_end"]


async def wait_for_turn_end(store: Store, session_id: str, *, ends: int = 1) -> list[StoredEvent]:
    """Return the session's log once it holds that many terminal events."""
    wakeup = asyncio.Event()
    with store.log.subscribe(session_id, wakeup):
        while True:
            wakeup.clear()
            events = list(await store.log.read(session_id, 0, 10_000))
            if sum(event.terminal for event in events) >= ends:
                return events
            async with explained_timeout(lambda events=events: _outline(events)):
                await wakeup.wait()


async def wait_for_event(store: Store, session_id: str, type_: str, *, count: int = 1) -> dict[str, Any]:
    """Return the data of the last of so many events of that type, once they are stored."""
    wakeup = asyncio.Event()
    with store.log.subscribe(session_id, wakeup):
        while True:
            wakeup.clear()
            log = await store.log.read(session_id, 0, 10_000)
            events = [event for event in log if event.type == type_]
            if len(events) >= count:
                return json.loads(events[count - 1].frame_json)["data"]
            async with explained_timeout(lambda log=log: _outline(log)):
                await wakeup.wait()


def _outline(events: Sequence[StoredEvent]) -> str:
    return f"the log has {len(events)} events, the last ones {[str(event.type) for event in events[-20:]]}"


@dataclass
class SessionHarness:
    """A folder with one session, and hubs over it one after another; `noted_texts` lists the tool calls that ran."""

    home: Path
    open_store: Callable[[], Store]
    noted_texts: list[str] = field(default_factory=list[str])
    session_id: str = ""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    note_description: str = "Write a note."

    @property
    def store(self) -> Store:
        return self._store

    @property
    def tools(self) -> list[Tool]:
        return [self._note(), ask_user]

    async def open(self, *script: Any) -> Hub:
        self._store = self.open_store()
        if not self.session_id:
            record = SessionRecord(workspace=str(self.home), created_at="2026-01-01T00:00:00.000Z")
            await self._store.create(record)
            self.session_id = record.id
        self.model = ScriptedModel(script)
        settings = load_settings({"home": self.home, **self.settings}, environ={})
        hub = hub_over(self._store, models=lambda _: self.model, tools=lambda _: self.tools, settings=settings)
        await hub.recover()
        return hub

    async def open_with_confirmation(self, text: str = "x") -> tuple[Hub, ConfirmRequest]:
        """Return a hub whose session waits for a confirmation, and that confirmation."""
        hub = await self.open(call("note", {"text": text}), "done")
        await hub.start(self.session_id, TurnRequest(input="Note something"))
        await wait_for_event(self._store, self.session_id, "confirm_required")
        (confirm,) = await hub.open_requests(self.session_id)
        return hub, confirm

    async def close(self, hub: Hub) -> None:
        await hub.close()
        await self._store.aclose()

    async def responses(self) -> list[tuple[bool, str]]:
        """Return the answers in the log, up to the turn's end."""
        events = await wait_for_turn_end(self._store, self.session_id)
        responses = [json.loads(event.frame_json)["data"] for event in events if event.type == "confirm_response"]
        return [(data["approved"], data["by"]) for data in responses]

    def _note(self) -> Tool:
        @tool(risk="write", description=self.note_description)
        def note(text: str) -> str:
            self.noted_texts.append(text)
            return f"noted {text}"

        return note
