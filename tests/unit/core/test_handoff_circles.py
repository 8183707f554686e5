"""Agents that hand over in circles, which are a loop unless there is work in between."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.core import Agent, AgentExecutor, ExecutionResult, Result, Task
from agenticx.core.run_agents import TurnAgents
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, HookRegistry, Steering, TurnContext
from agenticx.testing import ScriptedModel, call, check_grammar, say
from agenticx.tools import Tool, tool

pytestmark = pytest.mark.anyio


@tool(risk="read")
def count(to: int) -> str:
    """Count."""
    return " ".join(map(str, range(to)))


def in_circle(names: str) -> Agent:
    """Return the first of agents that each hand over to the next one, giving reasons, the last one to the first."""
    agents: dict[str, Agent] = {}

    def passing_on(successor: str) -> Tool:
        @tool(risk="read")
        def pass_on(reason: str) -> Result:
            """Hand over."""
            return Result(value=f"{successor} takes over.", agent=agents[successor])

        return pass_on

    for name, successor in zip(names, names[1:] + names[0], strict=True):
        agents[name] = Agent(name=name, tools=(passing_on(successor), count), max_iterations=40)
    return agents[names[0]]


async def execute(model: ScriptedModel, names: str) -> ExecutionResult:
    result = await AgentExecutor(model).arun(in_circle(names), Task(description="Go"))
    check_grammar(result.events)
    return result


@pytest.mark.parametrize("names", ["A", "AB", "ABC"])
async def test_agents_that_only_hand_over_to_each_other_are_stopped_whatever_their_reasons(names: str) -> None:
    model = ScriptedModel([[say("Over to you."), call("pass_on", {"reason": f"reason {n}"})] for n in range(30)])
    result = await execute(model, names)
    assert not result.success
    assert result.events[-1].data["code"] == "loop_detected"
    assert result.stats.rounds <= 12


@pytest.mark.parametrize("names", ["A", "AB", "ABC"])
@pytest.mark.parametrize("is_same_round", [False, True])
@pytest.mark.cases(quick=3)
async def test_agents_that_work_before_they_hand_over_are_no_loop(names: str, is_same_round: bool) -> None:
    pairs = [[call("count", {"to": n}), call("pass_on", {"reason": "next"})] for n in range(1, 16)]
    script: list[Any] = pairs if is_same_round else [one for pair in pairs for one in pair]
    result = await execute(ScriptedModel([*script, "Done."]), names)
    assert result.result == "Done."
    assert [event for event in result.events if event.type == "error"] == []


@pytest.mark.parametrize("names", ["A", "AB", "ABC"])
@pytest.mark.parametrize("news", ["text", "text before", "argument", "variables", "object", "changed in place"])
@pytest.mark.cases(quick=4)
async def test_handoffs_that_bring_new_work_are_no_loop(names: str, news: str) -> None:
    work: list[Any] = []

    def passing_on(successor: str) -> Tool:
        @tool(risk="read")
        def pass_on(context_variables: dict[str, Any], draft: str = "") -> Result:
            """Hand over."""
            work.append(object())
            if news == "changed in place":
                context_variables["done"].append(len(work))
            changed = {"variables": {"done": len(work)}, "object": {"done": work[-1]}}.get(news, {})
            return Result(value="Yours.", agent=agents[successor], context_variables=changed)

        return pass_on

    agents: dict[str, Agent] = {}
    for name, successor in zip(names, names[1:] + names[0], strict=True):
        agents[name] = Agent(name=name, tools=(passing_on(successor), count), max_iterations=40)
    texts = ["Roses are red", "Violets are blue", "Sugar is sweet"] if news[:4] == "text" else ["Yours."]
    replies: list[Any] = []
    for n in range(15):
        text = say(f"{texts[n % len(texts)]} ({n // len(texts)})" if news[:4] == "text" else "Yours.")
        passing = call("pass_on", {"draft": f"verse {n}"} if news == "argument" else {})
        replies += [[text, call("count", {"to": 3})], passing] if news == "text before" else [[text, passing]]
    result = await AgentExecutor(ScriptedModel([*replies, "Done."])).arun(
        agents[names[0]], Task(description="Go"), context_variables={"done": []}
    )
    assert (result.result, len(work)) == ("Done.", 15)
    assert [event for event in result.events if event.type == "error"] == []


@pytest.mark.parametrize("news", ["text", "variables"])
async def test_handoffs_that_alternate_between_the_same_texts_or_variables_are_a_loop(news: str) -> None:
    agents: list[Agent] = []

    @tool(risk="read")
    def pass_on(context_variables: dict[str, int]) -> Result:
        """Hand over."""
        turn = {"turn": 1 - context_variables["turn"]} if news == "variables" else {}
        return Result(agent=agents[1 - context_variables["turn"]], value="Yours.", context_variables=turn)

    agents += [Agent(name=name, tools=(pass_on,), max_iterations=40) for name in ("A", "B")]
    texts = ["Your turn.", "No, yours.", "YOURS, please."] if news == "text" else [""]
    model = ScriptedModel([[say(texts[n % len(texts)]), call("pass_on")] for n in range(30)])
    result = await AgentExecutor(model).arun(agents[0], Task(description="Go"), context_variables={"turn": 0})
    assert result.events[-1].data["code"] == "loop_detected"


async def test_a_word_of_the_user_ends_a_streak_of_handoffs() -> None:
    model = ScriptedModel([*[call("pass_on", {"reason": str(n)}) for n in range(10)], "Done."])
    steering, agents = Steering(), TurnAgents(lambda _: model, HookRegistry())
    context = TurnContext(agent=agents.of(in_circle("AB")), steering=steering, max_rounds=20)
    runtime = AgentRuntime(model, AutoApproveConfirmGate())
    errors: list[str] = []
    async for event in runtime.run_turn("Go", context=context):
        if event.type == "round_start" and event.data["round"] % 3 == 0:
            steering.put("Go on, please.")
        if event.type == "error":
            errors.append(event.data["code"])
    assert errors == []


async def test_work_that_is_handed_back_as_a_result_is_no_loop() -> None:
    agents: dict[str, Agent] = {}

    @tool(risk="read")
    def to_worker(item: int) -> Result:
        """Have an item done."""
        return Result(value=f"item {item}", agent=agents["worker"])

    @tool(risk="read")
    def hand_back(done: str) -> Result:
        """Report."""
        return Result(value=done, agent=agents["manager"])

    agents["manager"] = Agent(name="manager", tools=[to_worker], max_iterations=40)
    agents["worker"] = Agent(name="worker", tools=[hand_back])
    rounds = [[call("to_worker", {"item": n}), call("hand_back", {"done": f"item {n} is {n * n}"})] for n in range(8)]
    model = ScriptedModel([*(step for pair in rounds for step in pair), "all done"])
    result = await AgentExecutor(model).arun(agents["manager"], Task(description="Go"))
    assert (result.success, result.result) == (True, "all done")
