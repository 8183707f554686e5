"""Patterns of agents that work together, and the model calls and tokens that they take."""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import add

import pytest

from agenticx.errors import ModelError
from agenticx.runtime import Budget
from agenticx.teams import RequestUsage
from agenticx.testing import ScriptedModel, call, fail, say, usage
from agenticx.tools import tool
from tests.examples.planner_and_workers import work_out
from tests.examples.writer_and_critic import last_draft, writers

pytestmark = pytest.mark.anyio


async def test_a_text_is_written_anew_until_it_is_approved() -> None:
    script = [
        [say("Leaves."), usage(20, 2)],
        [say("Too short."), usage(24, 3)],
        [say("Red leaves fall."), usage(26, 4)],
        [say("APPROVE"), usage(30, 1)],
    ]
    with ScriptedModel(script) as model:
        result = await writers(model).run(task="Write about autumn.")
    assert (last_draft(result), result.stop_reason) == ("Red leaves fall.", "Text 'APPROVE' mentioned")
    used = [message.models_usage for message in result.messages if message.models_usage is not None]
    assert (len(used), reduce(add, used)) == (4, RequestUsage(100, 10))
    assert [message.content for message in model.requests[3].messages][1:] == [
        "Write about autumn.",
        "writer said:\nLeaves.",
        "Too short.",
        "writer said:\nRed leaves fall.",
    ]


async def test_a_text_that_is_never_approved_ends_with_its_last_draft() -> None:
    with ScriptedModel([say(f"Number {number}.") for number in range(10)]) as model:
        result = await writers(model).run(task="Write about autumn.")
    assert (last_draft(result), result.stop_reason) == ("Number 8.", "Maximum number of turns 10 reached.")


async def test_the_steps_of_a_plan_are_done_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    @tool(risk="read")
    async def measure(city: str) -> str:
        """Measure a river."""
        await together.wait()
        return f"{city}: wide"

    plan = {"value": ["Lyon", "Basel", "Vienna"]}
    script = [
        [call("submit_output", plan), usage(30, 9)],
        *[[call("measure", {"city": "x"}), usage(20, 5)] for _ in range(3)],
        *[[say("It is wide."), usage(25, 4)] for _ in range(3)],
        [say("All are wide."), usage(60, 4)],
    ]
    budget = Budget()
    with ScriptedModel(script) as model:
        report, steps = await asyncio.wait_for(work_out("Compare the rivers.", model, [measure], budget), 10)
    assert report.result == "All are wide."
    assert [step.stats.rounds for step in steps] == [2, 2, 2]
    assert [step.stats.usage for step in steps] == [{"input_tokens": 45, "output_tokens": 9}] * 3
    assert report.stats.usage == {"input_tokens": 60, "output_tokens": 4}
    assert (len(model.requests), budget.spent.tokens) == (8, 39 + 3 * 25 + 3 * 29 + 64)  # the plan's call is the first
    question = model.requests[7].messages[-1].content
    assert question == (
        "Lyon\nResult: It is wide.\n\nBasel\nResult: It is wide.\n\nVienna\nResult: It is wide.\n\nCompare the rivers."
    )


async def test_a_step_that_fails_is_left_out_of_the_report() -> None:
    broken = fail(ModelError("broken", code="provider.bad_request"))
    script = [call("submit_output", {"value": ["Lyon"]}), broken, say("Nothing to report.")]
    with ScriptedModel(script) as model:
        report, steps = await work_out("Compare the rivers.", model)
    assert (report.result, [step.success for step in steps]) == ("Nothing to report.", [False])
    assert model.requests[2].messages[-1].content == "Compare the rivers."
