"""Every fault of a provider, over a real socket, ends a turn as its plan says."""

from __future__ import annotations

import pytest

from agenticx.llms import OpenAIChatModel
from agenticx.runtime import AgentRuntime
from agenticx.settings import load_settings
from agenticx.testing import FakeOpenAIServer, assert_sequence, check_grammar, collect, fault_plans
from agenticx.tools import tool
from tests.support.jumping_clock import VIRTUAL_TIME_OVER_SOCKETS, LoopClock

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]

CLOCK = LoopClock()
SETTINGS = {"llm_invoke_timeout_seconds": 15, "llm_heartbeat_timeout_seconds": 10, "llm_hard_timeout_seconds": 30}


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def anyio_backend():
    """Return the loop for tests that own both ends of every socket, so that it distinguishes silence from delay."""
    return VIRTUAL_TIME_OVER_SOCKETS


@pytest.mark.parametrize("plan", fault_plans(), ids=lambda plan: plan.name)
@pytest.mark.cases(quick=5)
async def test_a_fault_ends_the_turn_as_planned(plan, agx_session):
    async with FakeOpenAIServer(plan.replies, clock=CLOCK) as server:
        model = OpenAIChatModel("fake-model", api_key="sk-test", base_url=server.base_url)
        runtime = AgentRuntime(model, settings=load_settings(SETTINGS), clock=CLOCK)
        events = await collect(runtime.run_turn("go", agx_session, tools=[add]))
        await model.aclose()
    check_grammar(events)
    assert_sequence(events, ["turn_started", "round_start", "...", plan.ending])
