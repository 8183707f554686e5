"""Budgets of teams and of their participants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from agenticx.core import Agent, AgentExecutor, Task
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel
from agenticx.runtime import Budget, ConfirmGate, Session
from agenticx.teams import (
    AssistantAgent,
    BaseChatMessage,
    CancellationToken,
    Response,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SingleThreadedAgentRuntime,
    TeamError,
    UserProxyAgent,
)
from agenticx.testing import ScriptedModel, call, fail, say, usage
from agenticx.tools import tool
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock
from tests.unit.teams.chat_agents import Saying, Waiting

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return VIRTUAL_TIME


class Slow(Saying):
    """An agent whose speeches take three seconds of virtual time."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        await asyncio.sleep(3)
        return await super().on_messages(messages, cancellation_token)


class Stubborn(Saying):
    """An agent that ignores its cancellation for three seconds."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(3)
        return await super().on_messages(messages, cancellation_token)


def assistant(name: str, tokens: int, **options) -> AssistantAgent:
    """Return an agent each of whose replies takes so many tokens."""
    replies = [[say(f"{name} {number}"), usage(tokens - 10, 10)] for number in range(20)]
    return AssistantAgent(name, ScriptedModel(replies), **options)


async def test_all_speeches_of_a_team_share_its_budget():
    budget = Budget(tokens=2_000)
    team = RoundRobinGroupChat([assistant("a", 600), assistant("b", 500)], budget=budget)

    with pytest.raises(TeamError, match="the budget of 2000 tokens is exceeded"):
        await team.run(task="go")
    assert budget.spent.tokens == 600 + 500 + 600


async def test_a_participant_has_a_budget_of_its_own_within_that_of_the_team():
    own, shared = Budget(tokens=1_000), Budget(tokens=50_000)
    team = RoundRobinGroupChat([assistant("a", 800, budget=own), assistant("b", 500)], budget=shared)

    with pytest.raises(TeamError, match="the budget of 1000 tokens is exceeded"):
        await team.run(task="go")
    assert (own.spent.tokens, shared.spent.tokens) == (800, 800 + 500)


async def test_inner_teams_and_the_choice_of_a_speaker_are_within_the_budgets_of_the_outer_ones():
    budget = Budget(tokens=10_000)
    chooser = ScriptedModel([[say("b"), usage(90, 10)], [say("c"), usage(190, 10)]])
    inner = SelectorGroupChat(
        [assistant("a", 600), assistant("b", 500), assistant("c", 700)],
        chooser,
        max_turns=2,
        allow_repeated_speaker=True,
    )

    await RoundRobinGroupChat([inner], max_turns=1, budget=budget).run(task="go")

    assert budget.spent.tokens == 100 + 500 + 200 + 700


async def test_a_choice_beyond_the_budget_is_not_made():
    chooser = ScriptedModel()
    team = SelectorGroupChat([assistant("a", 10), assistant("b", 10)], chooser, budget=Budget(tokens=100))

    with pytest.raises(TeamError, match="the budget of 100 tokens is exceeded"):
        await team.run(task="go " * 500)
    assert chooser.requests == []


@pytest.mark.parametrize("nested", [False, True])
async def test_no_speech_begins_once_the_seconds_are_over_also_of_agents_that_call_no_model(nested: bool):
    agent, budget = Slow("a"), Budget(seconds=6)
    inner = [RoundRobinGroupChat([agent], max_turns=3)] if nested else [agent]

    with pytest.raises(TeamError, match="the budget of 6 s is exceeded") as raised:
        await RoundRobinGroupChat(inner, max_turns=5, budget=budget, clock=LoopClock()).run(task="go")
    assert (raised.value.code, agent.spoken) == ("budget_exceeded", 2)


@pytest.mark.parametrize("where", ["alone", "in a team", "in a message runtime", "in a session"])
async def test_a_speech_ends_once_the_seconds_are_over_also_of_an_agent_that_calls_no_model(where: str):
    agent, budget, clock = Waiting("a", "at last"), Budget(seconds=5), LoopClock()
    options: dict[str, Any] = {"runtime": SingleThreadedAgentRuntime()} if where == "in a message runtime" else {}
    team = RoundRobinGroupChat([agent], max_turns=1, clock=clock, **options)
    if where == "in a team":
        team = RoundRobinGroupChat([team], name="outer", max_turns=1, budget=budget, clock=clock)
    else:
        session = Session() if where == "in a session" else None
        team = RoundRobinGroupChat([agent], max_turns=1, budget=budget, session=session, clock=clock, **options)
    with pytest.raises(TeamError, match="participant 'a': the budget of 5 s is exceeded") as raised:
        await team.run(task="go")
    assert (raised.value.code, raised.value.participant, agent.spoken) == ("budget_exceeded", "a", 0)
    assert (asyncio.get_running_loop().time(), budget.spent.seconds) == pytest.approx((5, 5), abs=0.01)


async def test_a_speech_that_ignores_its_end_is_abandoned():
    team = RoundRobinGroupChat([Stubborn("a")], max_turns=1, budget=Budget(seconds=5), clock=LoopClock())
    with pytest.raises(TeamError, match="the budget of 5 s is exceeded"):
        await team.run(task="go")
    saved = (await team.save_state())["transcript"]
    assert asyncio.get_running_loop().time() == pytest.approx(5.1, abs=0.01)
    await asyncio.sleep(3)
    assert (await team.save_state())["transcript"] == saved


async def test_seconds_that_pass_between_runs_in_a_pause_or_for_a_person_do_not_count():
    async def answer(prompt: str) -> str:
        await asyncio.sleep(60)
        return "yes"

    budget = Budget(seconds=7)
    team = RoundRobinGroupChat(
        [Slow("a"), UserProxyAgent("person", input_func=answer)], max_turns=2, budget=budget, clock=LoopClock()
    )
    await team.run(task="go")
    await asyncio.sleep(60)
    await team.pause()
    asyncio.get_running_loop().call_later(60, lambda: asyncio.ensure_future(team.resume()))
    await team.run()
    assert budget.spent.seconds == pytest.approx(6, abs=0.1)


async def test_a_wait_for_a_person_in_a_turn_below_a_speech_does_not_count():
    class Slow(ConfirmGate):
        async def request_confirm(self, question: str, context: object) -> bool:
            await asyncio.sleep(60)
            return True

    @tool(risk="execute")
    def act() -> str:
        """Act."""
        return "done"

    @tool(risk="read")
    async def delegate() -> str:
        """Have another agent act."""
        result = await AgentExecutor(ScriptedModel([call("act"), "ok"])).arun(
            Agent(tools=[act]), Task(description="do")
        )
        return str(result.success)

    agent = AssistantAgent("a", ScriptedModel([call("delegate"), "yes"]), tools=[delegate], confirm_gate=Slow())
    budget = Budget(seconds=5)
    result = await RoundRobinGroupChat([agent], max_turns=1, budget=budget, clock=LoopClock()).run(task="go")
    assert (result.messages[-1].to_text(), budget.spent.seconds) == ("yes", pytest.approx(0, abs=1))


async def test_a_wait_for_a_person_in_a_turn_of_another_agent_does_not_count():
    class Late(ConfirmGate):
        async def request_confirm(self, question: str, context: object) -> bool:
            await asyncio.sleep(60)
            return True

    @tool(risk="execute")
    def act() -> str:
        """Act."""
        return "done"

    class Delegating(Saying):
        async def on_messages(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> Response:
            executor = AgentExecutor(ScriptedModel([call("act"), "ok"]), confirm_gate=Late())
            await executor.arun(Agent(tools=[act]), Task(description="do"))
            return await super().on_messages(messages, cancellation_token)

    budget = Budget(seconds=5)
    team = RoundRobinGroupChat([Delegating("a", "yes")], max_turns=1, budget=budget, clock=LoopClock())
    result = await team.run(task="go")
    assert (result.messages[-1].to_text(), budget.spent.seconds) == ("yes", pytest.approx(0, abs=1))


async def test_a_budget_must_be_a_budget():
    with pytest.raises(TypeError, match="budget must be a Budget, not int"):
        RoundRobinGroupChat([assistant("a", 10)], budget=5)  # pyright: ignore[reportArgumentType]


async def test_a_failed_attempt_of_a_choice_of_the_speaker_is_spent_and_counted():
    down = ModelError("down", code="provider.overloaded", retryable=True)
    script = [[usage(1_000, 1), fail(down)], [say("b"), usage(90, 10)]]
    budget = Budget(tokens=50_000)
    selector = RetryingModel(ScriptedModel(script), clock=LoopClock())
    agents = [assistant(name, 500) for name in "abc"]
    team = SelectorGroupChat(agents, selector, max_turns=1, budget=budget)
    await team.run(task="go")
    assert budget.spent.tokens == 1_001 + 100 + 500


async def test_a_failed_attempt_of_a_run_is_in_its_stats():
    down = ModelError("down", code="provider.overloaded", retryable=True)
    budget = Budget(tokens=50_000)
    model = ScriptedModel([[usage(1_000, 1), fail(down)], [say("ok"), usage(90, 10)]])
    executor = AgentExecutor(RetryingModel(model, clock=LoopClock()), budget=budget)
    result = await executor.arun(Agent(), Task(description="go"))
    assert result.stats.usage == {"input_tokens": 1_090, "output_tokens": 11}
    assert budget.spent.tokens == 1_101


async def test_a_choice_of_the_speaker_is_within_the_budget_of_the_turn_that_runs_the_team():
    budget = Budget(tokens=50_000)
    selector = ScriptedModel([[say("b"), usage(90, 10)]])
    team = SelectorGroupChat([assistant(name, 500) for name in "abc"], selector, max_turns=1)

    @tool(risk="read")
    async def talk() -> str:
        """Let the team talk."""
        return str((await team.run(task="go")).stop_reason)

    model = ScriptedModel([[call("talk"), usage(90, 10)], [say("ok"), usage(90, 10)]])
    await AgentExecutor(model, budget=budget).arun(Agent(tools=[talk]), Task(description="go"))
    assert budget.spent.tokens == 100 + 100 + 500 + 100
