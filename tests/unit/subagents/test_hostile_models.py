"""Sub-agents that start as many others as they can; stops and stricter modes while they work or wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.runtime import AgentRuntime, Session
from agenticx.sessions import Store
from agenticx.settings import load_settings
from agenticx.teams import AgentTeamManager, SubagentLimits
from agenticx.testing import ScriptedGate, ScriptedModel, call, check_grammar, hang
from agenticx.tools import tool
from agenticx.tools.builtin import ask_user
from tests.support.endings import ending_text, told_endings
from tests.support.teams.subagent_sessions import SubagentSession, notices, spawn
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]


@tool(risk="read")
def look(number: int) -> str:
    """Look at one."""
    return f"seen {number}"


@tool(risk="execute")
def act(number: int) -> str:
    """Act."""
    return f"done {number}"


@pytest.mark.ci_lane
async def test_agents_that_start_as_many_as_they_can_stay_within_the_limits_and_all_end(tmp_path: Path) -> None:
    settings = load_settings({}, environ={"AGX_HOME": str(tmp_path)})
    limits = SubagentLimits(depth=3, children=4, running=4)
    greedy = [[call("spawn_subagent", {"task": "Start others"})] * 9, call("wait_subagents"), "end"]
    most = {"running": 0, "queued": 0}

    def runtime(_: str | None) -> AgentRuntime:
        for state in most:
            most[state] = max(most[state], manager.resources()[state])
        return AgentRuntime(ScriptedModel(greedy), ScriptedGate(), settings=settings)

    session = Session(workspace=tmp_path)
    manager = AgentTeamManager(runtime, session=session, limits=limits, settings=settings)
    events = [event async for event in runtime(None).run_turn("go", session, tools=manager.meta_tools())]

    assert events[-1].type == "final"
    states = manager.list()
    assert {one["state"] for one in states} == {"completed"}
    assert [sum(one["depth"] == depth for one in states) for depth in (1, 2, 3, 4)] == [4, 16, 64, 0]
    refused = [e.data["result"] for e in events if e.type == "tool_result" and e.data["outcome"] == "error"]
    assert sum(text.startswith("queue_full: 4 sub-agents have not ended") for text in refused) == 21 * 5
    assert sum(text == "sub-agents may be 3 deep; do the work yourself" for text in refused) == 64 * 9
    assert most["queued"] <= 84


async def test_retries_at_once_do_not_exceed_the_number_of_children(tmp_path: Path) -> None:
    settings = load_settings({}, environ={"AGX_HOME": str(tmp_path)})
    replies = iter([["one"], ["two"], ["three"]])

    async def runtime(_: str | None) -> AgentRuntime:
        await asyncio.sleep(0)
        model = ScriptedModel(next(replies, [hang()]))
        return AgentRuntime(model, ScriptedGate(), settings=settings)

    limits = SubagentLimits(children=1)
    manager = AgentTeamManager(runtime, session=Session(workspace=tmp_path), limits=limits, settings=settings)
    for _number in range(3):
        await manager.spawn("work")
        await manager.wait()
    found = await asyncio.gather(*(manager.retry(one["agent_id"]) for one in manager.list()), return_exceptions=True)
    assert sum(one is None for one in found) == 1
    assert {str(one) for one in found if one} == {"queue_full: 1 sub-agents have not ended; wait for one of them"}
    assert sum(one["state"] in ("queued", "running") for one in manager.list()) == 1
    await manager.aclose()


@pytest.mark.promise("D6")
@pytest.mark.parametrize("is_above_at_work", [True, False])
async def test_a_mode_that_is_tightened_holds_for_subagents_at_work(
    tmp_path: Path, open_store: OpenStore, is_above_at_work: bool
) -> None:
    go_on = asyncio.Event()

    @tool(risk="read")
    async def pause() -> str:
        """Wait."""
        await go_on.wait()
        return "waited"

    session = SubagentSession(tmp_path, open_store, [act, pause], mode="auto")
    inner = [call("act", {"number": 1}), call("pause"), call("act", {"number": 2}), "end"]
    main = [spawn("mid"), *([hang()] if is_above_at_work else ["Later."])]
    mid = [spawn("doer"), call("wait_subagents"), "end"]
    async with session.hub(main, mid=mid, doer=inner) as hub:
        turn = asyncio.create_task(session.run(hub))
        await session.wait_for(lambda one: one["type"] == "tool_call" and one["data"]["name"] == "pause")
        await session.wait_for(lambda one: one["agent_id"] == "meta" and one["type"] == "tool_result")
        if not is_above_at_work:
            await turn
        await hub.change(session.id, {"permission_mode": "plan"})
        go_on.set()
        await session.wait_for_event("subagent_completed", "doer-2")
        await hub.stop(session.id)
        await turn
        log = await session.envelopes()
        results = [one["data"] for one in log if one["type"] == "tool_result" and one["agent_id"] == "doer-2"]
        assert [one["outcome"] for one in results] == ["ok", "ok", "denied"]


@pytest.mark.promise("F2")
@pytest.mark.ci_lane
async def test_a_stop_ends_running_queued_and_asking_subagents_in_time_and_leaves_paused_ones(
    tmp_path: Path, open_store: OpenStore
) -> None:
    settings = {"subagent_max_running": 1, "max_tool_rounds": 10}
    session = SubagentSession(tmp_path, open_store, [look, act, ask_user], **settings)
    rounds = [call("look", {"number": number}) for number in range(10)]
    workers = {
        "paused": rounds,
        "confirms": [call("act", {"number": 1})],
        "asks": [call("ask_user", {"text": "Which?"})],
        "slow": [hang()],
        "queued": ["never"],
    }
    first = [spawn("paused"), call("wait_subagents")]
    others = [spawn("confirms"), spawn("asks"), spawn("slow"), spawn("queued"), hang()]  # one after the other
    async with session.hub([*first, *others, "I see."], **workers) as hub:
        turn = asyncio.create_task(session.run(hub))
        await session.wait_for(lambda one: one["type"] in ("confirm_required", "question_asked"), 2)
        await session.wait_for_event("round_start", "slow-4")
        await wait_until(lambda: len(session.main.requests) == len(first) + len(others))
        began = asyncio.get_running_loop().time()
        await hub.stop(session.id)
        assert (await turn)["data"]["code"] == "stopped"
        await session.wait_for(lambda one: one["type"] == "subagent_error", 4)
        assert asyncio.get_running_loop().time() - began < 10  # on an idle machine a fraction of a second
        states = {one["agent_id"]: one.get("code", one["state"]) for one in await hub.subagents(session.id)}
        stopped = dict.fromkeys(["confirms-2", "asks-3", "slow-4", "queued-5"], "stopped")
        assert states == {"paused-1": "paused", **stopped}
        assert await hub.open_requests(session.id) == []
        await session.run(hub, "And?")
        told = told_endings(*notices(session.main.requests[-1]))
        assert sum(one.endswith("failed: stopped") for one in told) == 4
        check_grammar(await session.envelopes())


class LaterClock(SystemClock):
    """A clock that is ahead by the days for which the program was down."""

    def now(self) -> datetime:  # type: ignore[override]
        return SystemClock.now() + timedelta(days=30)


@pytest.mark.parametrize(
    ("asking", "event", "told"),
    [
        (call("act", {"number": 1}), "confirm_response", "Denied: no answer was given in time."),
        (call("ask_user", {"text": "Which?"}), "question_answered", "answer"),
    ],
)
async def test_a_question_that_expired_while_the_program_was_down_is_told_as_expired(
    tmp_path: Path, open_store: OpenStore, asking: Any, event: str, told: str
) -> None:
    session = SubagentSession(tmp_path, open_store, [act, ask_user])
    async with session.hub([spawn("doer"), "Later."], doer=[asking]) as hub:
        await session.run(hub)
        await session.wait_for(lambda one: one["type"] in ("confirm_required", "question_asked"))
    hub = session.new_hub(["I see."], {"doer": ["I go on."]}, clock=LaterClock())
    await hub.recover()
    assert (await session.wait_for_event("subagent_completed", "doer-1"))["data"]["result"] == "I go on."
    (answer,) = await session.wait_for(lambda one: one["type"] == event)
    assert answer["data"]["by"] == "timeout"
    result = session.model("doer").requests[0].messages[-1]
    assert told in result.content, result.content
    await session.run(hub, "And?")
    assert notices(session.main.requests[-1]) == [ending_text("doer-1 completed", "I go on.")]
    check_grammar(await session.envelopes())
    await hub.close()
    await session.store.aclose()
