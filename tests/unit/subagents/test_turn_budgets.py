"""The budgets of turns by the settings, which all agents below a turn share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Store, TurnRequest
from agenticx.testing import call, cut, say, usage
from agenticx.tools import tool
from tests.support.teams.subagent_sessions import SubagentSession, notices, spawn

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]
EXCEEDED = "the budget of 20000 tokens is exceeded"


@tool(risk="execute")
def act() -> str:
    """Act."""
    return "done"


def session_within(folder: Path, open_store: OpenStore) -> SubagentSession:
    return SubagentSession(folder, open_store, [act], turn_budget_tokens=20_000)


def start_and_wait(name: str) -> list[Any]:
    return [spawn(name), call("wait_subagents"), usage(100, 10)]


def granted_tokens(session: SubagentSession) -> int:
    """Return the most output tokens of the main agent's last request."""
    return session.main.requests[-1].sampling.max_output_tokens or 0


async def test_a_turn_and_its_subagents_share_one_budget(tmp_path: Path, open_store: OpenStore) -> None:
    session = session_within(tmp_path, open_store)
    async with session.hub([start_and_wait("a"), "never"], a=[["a ends", usage(19_000, 10)]]) as hub:
        end = await session.run(hub)
        assert end["data"]["code"] == "budget_exceeded"
        assert end["data"]["text"].startswith(EXCEEDED)
        assert len(session.main.requests) == 1


async def test_a_subagent_that_outlives_its_turn_shares_its_budget_and_the_next_turn_has_another(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = session_within(tmp_path, open_store)
    asking = [[call("act"), usage(100, 10)], [call("act"), usage(19_000, 10)], "never"]
    async with session.hub([[spawn("doer"), usage(100, 10)], ["Later.", usage(100, 10)]], doer=asking) as hub:
        await session.run(hub)
        for count in (1, 2):
            await session.wait_for_event("confirm_required", "doer-1", count)
            (asked,) = await hub.open_requests(session.id)
            await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
        error = await session.wait_for_event("subagent_error", "doer-1")
        assert error["data"]["text"].startswith(EXCEEDED)
        assert len(session.model("doer").requests) == 2
    async with session.hub([["I see.", usage(100, 10)]]) as hub:
        assert (await session.run(hub, "And?"))["type"] == "final"
        assert "failed: budget_exceeded, " in notices(session.main.requests[-1])[-1]


async def test_what_a_turn_and_those_below_it_spent_counts_after_a_restart(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = session_within(tmp_path, open_store)
    asking = [start_and_wait("a"), [call("act"), usage(100, 10)]]
    async with session.hub(asking, a=[[say("hal"), cut()]]) as hub:
        await hub.start(session.id, TurnRequest(input="go"))
        await session.wait_for_event("confirm_required", "meta")
        before = granted_tokens(session)
    async with session.hub([["Done.", usage(10, 10)]]) as hub:
        (asked,) = await hub.open_requests(session.id)
        await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
        await session.wait_for(lambda one: one["type"] == "final")
        assert before - 200 < granted_tokens(session) < before < 6_000


async def test_a_message_to_a_subagent_of_a_turn_that_is_over_is_within_its_budget(
    tmp_path: Path, open_store: OpenStore
) -> None:
    session = session_within(tmp_path, open_store)
    async with session.hub([start_and_wait("a"), ["ok", usage(100, 10)]], a=[["a ends", usage(9_000, 100)]]) as hub:
        await session.run(hub)
    async with session.hub([], a=[["again", usage(10_000, 100)], "never"]) as hub:
        await hub.message_subagent(session.id, "a-1", "More!")
        await session.wait_for_event("subagent_completed", "a-1", 2)
        await hub.message_subagent(session.id, "a-1", "And more!")
        error = await session.wait_for_event("subagent_error", "a-1")
        assert error["data"]["text"].startswith(EXCEEDED)


async def test_the_agent_sees_what_is_left_of_the_budget(tmp_path: Path, open_store: OpenStore) -> None:
    session = session_within(tmp_path, open_store)
    async with session.hub([[call("check_resources"), usage(100, 10)], "Fine."]) as hub:
        await session.run(hub)
        (result,) = [one for one in await session.envelopes() if one["type"] == "tool_result"]
    shown = json.loads(result["data"]["result"])
    assert {key: shown[key] for key in ("tokens_used", "tokens", "cost_usd_used", "cost_usd")} == {
        "tokens_used": 110,
        "tokens": 20_000,
        "cost_usd_used": "0",
        "cost_usd": None,
    }


async def test_without_a_price_a_turn_within_a_cost_is_refused(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store, turn_budget_usd=0.5)
    async with session.hub(["never"]) as hub:
        end = await session.run(hub)
    assert end["data"]["code"] == "budget_exceeded"
    assert "the price of scripted is unknown" in end["data"]["text"]


async def test_by_default_there_is_no_budget(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([[call("check_resources"), usage(10**9, 10)], "Fine."]) as hub:
        assert (await session.run(hub))["type"] == "final"
        (result,) = [one for one in await session.envelopes() if one["type"] == "tool_result"]
    assert "tokens" not in json.loads(result["data"]["result"])
