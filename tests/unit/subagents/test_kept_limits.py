"""The rounds and the own budgets of sub-agents, which go on after a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.runtime import Budget, ConfirmAnswer, EventType, RuntimeEvent
from agenticx.runtime.budgets.budget import Spent
from agenticx.sessions import MemoryStore, Store, StoredEvent
from agenticx.sessions.hub.subagents.budgets import SpentCounter
from agenticx.sessions.log.events import encode
from agenticx.subagents.tools import CURRENT_OWNER
from agenticx.testing import call, cut, hang, say, usage
from agenticx.tools import Tool, tool
from tests.support.stores import asked, final
from tests.support.teams.subagent_sessions import MortalStore, SubagentSession, notices, spawn

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]


@tool(risk="read")
def look(number: int) -> str:
    """Look at one."""
    return f"seen {number}"


@tool(risk="execute")
def act() -> str:
    """Act."""
    return "done"


def start_within(budget: Budget) -> Tool:
    """Return a tool that starts a sub-agent with a budget of its own."""

    @tool(name="start", risk="read", read_only=False)
    async def start(name: str) -> str:
        """Start a sub-agent."""
        owner = CURRENT_OWNER.get()
        assert owner is not None
        return await owner.manager.spawn("work", name=name, model=name, budget=budget)

    return start


async def rounds(hub: Any, session: SubagentSession) -> dict[str, int]:
    return {one["agent_id"]: one["rounds"] for one in await hub.subagents(session.id)}


async def test_rounds_are_counted_on_after_a_restart(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store, [look])
    script = [call("look", {"number": 1}), "first"]
    async with session.hub([spawn("scout"), call("wait_subagents"), "done"], scout=script) as hub:
        await session.run(hub)
        assert await rounds(hub, session) == {"scout-1": 2}
    async with session.hub(["I see."], scout=[call("look", {"number": 2}), "second"]) as hub:
        assert await rounds(hub, session) == {"scout-1": 2}
        await hub.message_subagent(session.id, "scout-1", "More!")
        await session.wait_for_event("subagent_completed", "scout-1", 2)
        assert await rounds(hub, session) == {"scout-1": 4}
        await session.run(hub, "And?")
    async with session.hub([], scout=["anew"]) as hub:
        assert await rounds(hub, session) == {"scout-1": 4}
        await hub.retry_subagent(session.id, "scout-1")
        await session.wait_for_event("subagent_completed", "scout-1", 3)
        assert await rounds(hub, session) == {"scout-1": 1}


async def test_rounds_of_a_run_that_a_kill_ended_are_counted(tmp_path: Path) -> None:
    memory = MemoryStore()
    stores = iter([MortalStore(memory), memory.other_worker()])
    session = SubagentSession(tmp_path, lambda: next(stores), [look])
    await memory.create(session.record)
    hub = session.new_hub([spawn("scout"), "Later."], {"scout": [call("look", {"number": 1}), hang()]})
    await session.run(hub)
    await session.wait_for_event("round_start", "scout-1", 2)
    session.store.die(session.id)  # type: ignore[attr-defined]
    await hub.close()
    hub = session.new_hub([], {})
    await hub.recover()
    assert await rounds(hub, session) == {"scout-1": 2}
    await hub.close()


async def test_what_an_earlier_process_spent_of_a_budget_counts(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store, [start_within(Budget(tokens=2_500)), look])
    inner = [[spawn("leaf"), usage(400, 100)], [call("wait_subagents"), usage(400, 100)], ["mid ends", usage(400, 100)]]
    main = [call("start", {"name": "mid"}), call("wait_subagents"), "done"]
    async with session.hub(main, mid=inner, leaf=[["leaf ends", usage(400, 100)]]) as hub:
        await session.run(hub)
    for agent, name in (("mid-1", "mid"), ("leaf-2", "leaf")):
        script = [[call("look", {"number": number}), usage(400, 100)] for number in range(3)]
        async with session.hub(["I see."], **{name: script}) as hub:
            await hub.message_subagent(session.id, agent, "More!")
            error = await session.wait_for_event("subagent_error", agent)
            assert error["data"]["code"] == "budget_exceeded"
            assert error["data"]["text"].startswith("the budget of 2500 tokens is exceeded")
            assert len(session.model(name).requests) <= 1
            await session.run(hub, "And?")
            assert "failed: budget_exceeded, " in notices(session.main.requests[-1])[-1]


async def test_a_cut_reply_without_counts_is_spent_after_a_restart_too(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store, [start_within(Budget(tokens=10_000))])
    main = [call("start", {"name": "doer"}), call("wait_subagents"), "done"]
    granted: list[int] = []
    async with session.hub(main, doer=[[say("hal"), cut()]]) as hub:
        await session.run(hub)
        granted += granted_tokens(session)
    for _ in range(2):
        async with session.hub(["I see."], doer=[[say("hal"), cut()]]) as hub:
            await hub.message_subagent(session.id, "doer-1", "More!")
            await session.wait_for_event("subagent_error", "doer-1", len(granted) + 1)
            granted += granted_tokens(session)
    assert len(granted) == 3
    assert granted[0] > 4_000
    assert all(later < earlier / 2 for earlier, later in itertools.pairwise(granted))


def granted_tokens(session: SubagentSession) -> list[int]:
    """Return the most output tokens of each request of the sub-agent."""
    return [request.sampling.max_output_tokens or 0 for request in session.model("doer").requests]


async def test_a_subagent_that_waited_for_a_person_goes_on_within_its_budget(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = SubagentSession(tmp_path, open_store, [start_within(Budget(tokens=2_000)), act])
    asking = [[call("act"), usage(1_500, 100)]]
    async with session.hub([call("start", {"name": "doer"}), "Later."], doer=asking) as hub:
        await session.run(hub)
        await session.wait_for_event("confirm_required", "doer-1")
    async with session.hub([], doer=["never", "never"]) as hub:
        (asked,) = await hub.open_requests(session.id)
        await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
        error = await session.wait_for_event("subagent_error", "doer-1")
        assert error["data"]["code"] == "budget_exceeded"
        assert session.model("doer").requests == []


def stored(events: Sequence[tuple[str, EventType, int, dict[str, Any]]]) -> list[StoredEvent]:
    """Return events of turns, at these seconds, as the log has them."""
    found: list[StoredEvent] = []
    for seq, (turn_id, type_, second, data) in enumerate(events, 1):
        ts = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
        event = RuntimeEvent(type_, data)
        found.append(encode(event, session_id="ses_1", turn_id=turn_id, seq=seq, position=seq, ts=ts))
    return found


def test_time_counts_without_waiting_for_a_person_and_without_the_death_of_a_process() -> None:
    counter, started = SpentCounter({"one", "two"}), {"input": "", "model": "m", "message_id": "m"}
    for event in stored(
        [
            ("one", EventType.TURN_STARTED, 0, started),
            ("one", EventType.CONFIRM_REQUIRED, 10, asked("c").data),
            ("below", EventType.TURN_STARTED, 20, started | {"parent_turn_id": "one"}),
            ("below", EventType.USAGE, 25, {"model": "m", "input_tokens": 3, "output_tokens": None, "cost_usd": "0.5"}),
            ("one", EventType.CONFIRM_RESPONSE, 110, {"id": "c", "approved": True, "by": "user"}),
            ("one", EventType.USAGE, 115, {"model": "m", "input_tokens": 1, "output_tokens": 1}),
            (
                "one",
                EventType.USAGE,
                115,
                {"model": "m", "input_tokens": 1, "output_tokens": None, "reserved_tokens": 7},
            ),
            ("one", EventType.FINAL, 120, final().data),
            ("other", EventType.USAGE, 130, {"model": "m", "input_tokens": 100, "output_tokens": 100}),
            ("two", EventType.TURN_STARTED, 200, started),
            ("two", EventType.ROUND_START, 205, {"round": 1, "max_rounds": 9}),
            ("two", EventType.STATE, 900, {"state": "done"}),
            ("two", EventType.ERROR, 900, {"text": "", "code": "interrupted", "fatal": True}),
        ]
    ):
        counter.count(event)
    cost = counter.spent.cost_usd
    assert counter.spent == Spent(tokens=13, cost_usd=cost, seconds=25.0)
    assert str(cost) == "0.5"
