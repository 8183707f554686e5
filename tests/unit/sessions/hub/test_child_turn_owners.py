"""Child turns of a session whose owner changes, in a store that refuses commits."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from agenticx import AgenticXError
from agenticx.llms import ScriptedModel
from agenticx.messages import new_id
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session, TurnContext, current_turn
from agenticx.sessions import Hub, MemoryStore, SessionRecord, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar
from agenticx.tools import Tool, tool
from tests.support.commits import load
from tests.support.lanes import Count
from tests.support.memory_store import expire_lease
from tests.support.timeouts import PATIENCE, PatientClock
from tests.support.two_hubs import UnreliableStore

pytestmark = pytest.mark.anyio

TURNS = 4


class Case:
    """A session whose agent asks two others at once, one of which asks a third one; `noted` has the texts of notes."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.noted: list[str] = []
        self.rng = rng
        self.store = UnreliableStore(
            MemoryStore(), rng, failure_rate=rng.choice([0.0, 0.02, 0.1]), loss_rate=rng.choice([0.0, 0.02, 0.1])
        )
        self.session = SessionRecord(name="x", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        self._settings = load_settings({"home": folder}, environ={})

    def open_hub(self, store: UnreliableStore) -> Hub:
        """Return a hub of a worker of its own."""
        calls = [call("note"), call("ask_a"), call("ask_b")]
        model, tools = ScriptedModel([calls, "done"] * TURNS), [self._note(), self._asks("a"), self._asks("b")]
        clock = PatientClock()
        return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=self._settings, clock=clock)

    def _note(self) -> Tool:
        @tool(risk="read", idempotent=False)
        async def note() -> str:
            """Note the call."""
            await asyncio.sleep(self.rng.random() * 0.001)
            turn = current_turn()
            assert turn is not None
            self.noted.append(turn.id)
            return "noted"

        return note

    def _asks(self, name: str) -> Tool:
        @tool(name=f"ask_{name}", risk="read", idempotent=False)
        async def ask() -> str:
            """Ask another agent."""
            tools = [self._note(), self._asks("leaf")] if name == "a" else [self._note()]
            first = [call("note"), call("ask_leaf")] if name == "a" else call("note")
            runtime = AgentRuntime(ScriptedModel([first, "ok"]), AutoApproveConfirmGate(), settings=self._settings)
            below = TurnContext(parent=current_turn())
            return (await runtime.run("go", Session(), agent_id=name, tools=tools, context=below)).text

        return ask


async def use(case: Case, hubs: tuple[Hub, Hub]) -> None:
    """Begin turns and stop some of them, at either hub."""
    for number in range(TURNS):
        hub = case.rng.choice(hubs)
        with suppress(AgenticXError):
            request = TurnRequest(input=str(number), client_turn_id=new_id("ctid"), when_busy="queue")
            await asyncio.wait_for(hub.submit(case.session.id, request), PATIENCE)
        await asyncio.sleep(case.rng.random() * 0.01)
        if case.rng.random() < 0.3:
            with suppress(AgenticXError):
                await case.rng.choice(hubs).stop(case.session.id)
        if case.rng.random() < 0.3:
            expire_lease(case.store.memory, case.session.id, noticed=case.rng.random() < 0.5)


async def finish(case: Case, hubs: tuple[Hub, Hub]) -> None:
    """Wait until no turn runs, and end both hubs."""
    case.store.failure_rate = case.store.loss_rate = 0.0
    async with asyncio.timeout(PATIENCE):
        while await case.store.memory.turn(case.session.id):
            await hubs[0].recover()
            await asyncio.sleep(0.002)
    await asyncio.gather(*(hub.close() for hub in hubs))
    expire_lease(case.store.memory, case.session.id)
    last = case.open_hub(case.store.other_worker())
    await last.recover()
    await last.close()


@pytest.mark.ci_lane
async def test_all_turns_end_whoever_owns_the_session(tmp_path: Path, rng: random.Random, count: Count) -> None:
    codes = set[str]()
    for number in range(count(5, 50, 1_000)):
        case = Case(tmp_path, rng)
        await case.store.memory.create(case.session)
        hubs = case.open_hub(case.store), case.open_hub(case.store.other_worker())
        for hub in hubs:
            await hub.recover()
        await use(case, hubs)
        await finish(case, hubs)
        events = [json.loads(event.frame_json) for event in await case.store.memory.read(case.session.id, 0, 10_000)]
        if any(event["type"] == "turn_started" for event in events):
            check_grammar(events)
        loaded = await load(case.store.other_worker(), case.session.id)
        assert (loaded.main_turn, list(loaded.child_turns)) == (None, []), number
        assert len(case.noted) == len(set(case.noted)), number
        codes |= {event["data"].get("code", event["type"]) for event in events if event["type"] in ("final", "error")}
    assert "final" in codes
