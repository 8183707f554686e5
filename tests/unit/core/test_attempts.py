"""Tasks whose result is refused: guide rails, typed outputs, and the attempts of a run."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx.core import (
    Agent,
    AgentExecutor,
    GuideRailContext,
    GuideRailVerdict,
    Result,
    Task,
    case_not_resolved,
    case_resolved,
)
from agenticx.runtime import Budget, Session
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, check_grammar, finish, hang, say, usage
from agenticx.tools import tool
from tests.support.jumping_clock import LoopClock

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


adder = Agent(name="Adder", tools=(add,))


def task(description: str = "1 + 2?", **fields: Any) -> Task:
    return Task(description=description, **fields)


class Rail:
    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.seen: list[tuple[str, GuideRailContext]] = []

    async def check(self, text: str, context: GuideRailContext) -> Any:
        self.seen.append((text, context))
        verdict = self.verdicts.pop(0) if self.verdicts else GuideRailVerdict("pass")
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


def without_ids(line: str) -> str:
    """Return a log line without the id of its session, which it must have."""
    line, count = re.subn(r" session='ses_\w+'", "", line)
    assert count == 1
    return line


async def test_guide_rails_pass_and_modify_in_order() -> None:
    first, second = Rail(GuideRailVerdict("modify", text="three", reason="words")), Rail()
    result = await AgentExecutor(ScriptedModel(["3"]), guide_rails=[first, second]).arun(adder, task())
    assert (result.success, result.result) == (True, "three")
    assert [verdict.action for verdict in result.guide_rails] == ["modify", "pass"]
    assert second.seen[0][0] == "three"
    assert (second.seen[0][1].agent, second.seen[0][1].attempt) == (adder, 1)


async def test_a_result_that_a_guide_rail_aborts_is_tried_again_up_to_the_limit_and_never_returned() -> None:
    rail = Rail(*[GuideRailVerdict("abort", reason=f"wrong {n}") for n in range(3)])
    model = ScriptedModel(["1", "2", "3"])
    result = await AgentExecutor(model, guide_rails=[rail]).arun(adder, task())
    assert (result.success, result.result, result.error) == (False, "", "guide_rail: wrong 2")
    assert [event.type for event in result.events].count("turn_started") == 3
    assert [len(request.messages) for request in model.requests] == [2, 2, 2]
    assert [context.attempt for _, context in rail.seen] == [1, 2, 3]


async def test_a_second_attempt_may_succeed(caplog: pytest.LogCaptureFixture) -> None:
    rail = Rail(GuideRailVerdict("abort", reason="too short"))
    with caplog.at_level(logging.WARNING, logger="agenticx"):
        result = await AgentExecutor(ScriptedModel(["3", "three"]), guide_rails=[rail]).arun(adder, task())
    assert (result.success, result.result) == (True, "three")
    assert [without_ids(record.message) for record in caplog.records] == [
        "retry agent='Adder' organization='default-org' attempt=1 error='guide_rail: too short'"
    ]


async def test_the_attempts_of_a_run_share_its_model_calls() -> None:
    def refusing() -> Rail:
        return Rail(*[GuideRailVerdict("abort", reason=f"wrong {n}") for n in range(3)])

    model, adding = ScriptedModel(["1", "2"]), call("add", {"a": 1, "b": 2})
    result = await AgentExecutor(model, guide_rails=[refusing()]).arun(adder, task(), max_turns=2)
    error = "guide_rail: wrong 1; not tried again: no model call of the run is left (limit 2)"
    assert (result.success, result.error, result.stats.rounds) == (False, error, 2)

    executor = AgentExecutor(ScriptedModel([adding, "3", adding]), guide_rails=[refusing()], max_iterations=3)
    result = await executor.arun(adder, task())
    error = "max_rounds: no model call of the run is left (limit 3); attempt 1 ended with guide_rail: wrong 0"
    assert (result.success, result.error, result.stats.rounds) == (False, error, 3)

    wrong, agent = call("submit_output", {"nom": "Lyon"}), Agent(max_iterations=4)
    result = await AgentExecutor(ScriptedModel([wrong] * 4)).arun(agent, task("Name a city", output_type=City))
    assert result.stats.rounds == 4
    assert (result.error or "").startswith("max_rounds: no model call of the run is left (limit 4); attempt 1 ended")


async def test_model_calls_of_turns_below_and_of_guide_rails_are_not_among_those_of_the_run() -> None:
    class AsksFirst:
        async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
            await context.ask("Right?")
            return GuideRailVerdict("abort" if context.attempt == 1 else "pass")

    @tool(risk="read")
    async def delegate() -> str:
        """Delegate."""
        return (await AgentExecutor(ScriptedModel(["3"])).arun(Agent(name="Other"), task())).result

    model = ScriptedModel([call("delegate"), "3", "No.", "three", "Yes."])
    executor = AgentExecutor(model, guide_rails=[AsksFirst()])
    result = await executor.arun(Agent(tools=(delegate,)), task(), max_turns=3)
    assert (result.success, result.result, result.stats.rounds) == (True, "three", 4)


@pytest.mark.parametrize(
    ("verdict", "text"), [(RuntimeError("lost"), "RuntimeError: lost"), ("pass", "must return a GuideRailVerdict")]
)
async def test_a_guide_rail_that_fails_refuses_the_result(verdict: Any, text: str) -> None:
    agent = adder.model_copy(update={"max_retry_limit": 0})
    result = await AgentExecutor(ScriptedModel(["3"]), guide_rails=[Rail(verdict)]).arun(agent, task())
    assert not result.success
    assert text in (result.error or "")


async def test_an_output_type_makes_the_result_an_object_and_a_refused_one_is_tried_again() -> None:
    wrong, right = call("submit_output", {"nom": "Lyon"}), call("submit_output", {"name": "Lyon"})
    model = ScriptedModel([wrong, wrong, wrong, right])
    result = await AgentExecutor(model).arun(Agent(), task("Name a city", output_type=City))
    assert (result.success, result.output) == (True, City(name="Lyon"))
    assert [event.type for event in result.events].count("turn_started") == 2


async def test_a_reply_that_is_cut_before_the_output_is_complete_is_tried_again_and_then_the_error() -> None:
    half, whole = [say('{"name": "Ly'), finish("length")], call("submit_output", {"name": "Lyon"})
    job = task("Name a city", output_type=City)
    result = await AgentExecutor(ScriptedModel([half, whole])).arun(Agent(), job)
    assert (result.success, result.output) == (True, City(name="Lyon"))
    result = await AgentExecutor(ScriptedModel([half, half])).arun(Agent(max_retry_limit=1), job)
    problem = "provider.bad_reply: the model gave no usable City: its reply was not finished"
    assert (result.success, result.result, result.output, result.error) == (False, "", None, problem)
    assert result.stats.rounds == 2


async def test_a_result_that_a_guide_rail_modifies_is_validated_as_the_output_again() -> None:
    rail = Rail(GuideRailVerdict("modify", text='```json\n{"name": "Nice"}\n```'))
    model = ScriptedModel([call("submit_output", {"name": "Lyon"})])
    result = await AgentExecutor(model, guide_rails=[rail]).arun(Agent(), task("Name a city", output_type=City))
    assert rail.seen[0][0] == '{"name": "Lyon"}'
    assert (result.success, result.output) == (True, City(name="Nice"))


async def test_a_modified_result_that_is_no_output_is_tried_again_and_then_the_error() -> None:
    rail = Rail(*[GuideRailVerdict("modify", text=text) for text in ('{"nom": "Nice"}', " ")])
    model = ScriptedModel([call("submit_output", {"name": "Lyon"}) for _ in range(2)])
    agent = Agent(max_retry_limit=1)
    result = await AgentExecutor(model, guide_rails=[rail]).arun(agent, task("Name a city", output_type=City))
    problem = "guide_rail: the modified result is no usable City: the answer is empty"
    assert (result.success, result.result, result.output, result.error) == (False, "", None, problem)
    assert [context.attempt for _, context in rail.seen] == [1, 2]


async def test_a_case_that_is_resolved_needs_no_output_and_has_none_of_an_earlier_attempt() -> None:
    rail = Rail(GuideRailVerdict("abort"), GuideRailVerdict("modify", text="Lyon!"))
    model = ScriptedModel([call("submit_output", {"name": "Nice"}), call("case_resolved", {"result": "Lyon"})])
    executor, job = AgentExecutor(model, guide_rails=[rail]), task("Name a city", output_type=City)
    result = await executor.arun(Agent(tools=(case_resolved,)), job)
    assert (result.success, result.result, result.output, result.error) == (True, "Lyon!", None, None)


async def test_only_attempts_that_follow_are_logged_as_retries(caplog: pytest.LogCaptureFixture) -> None:
    rail = Rail(*[GuideRailVerdict("abort", reason=f"wrong {n}") for n in range(2)])
    agent = adder.model_copy(update={"max_retry_limit": 1})
    with caplog.at_level(logging.WARNING, logger="agenticx"):
        await AgentExecutor(ScriptedModel(["1", "2"]), guide_rails=[rail]).arun(agent, task())
    assert [without_ids(record.message) for record in caplog.records] == [
        "retry agent='Adder' organization='default-org' attempt=1 error='guide_rail: wrong 0'"
    ]


@pytest.mark.parametrize(
    ("case", "argument", "text", "error"),
    [
        ("case_resolved", {"result": "42"}, "42", None),
        ("case_resolved", {}, "Closing.", None),
        ("case_not_resolved", {"reason": "no network"}, "no network", "not_resolved: no network"),
        ("case_not_resolved", {}, "Closing.", "not_resolved: Closing."),
    ],
)
async def test_the_text_of_the_call_that_ends_a_case_comes_before_that_of_its_reply(
    case: str, argument: dict[str, str], text: str, error: str | None
) -> None:
    model = ScriptedModel([[say("Closing."), call(case, argument)]])
    result = await AgentExecutor(model).arun(Agent(tools=(case_resolved, case_not_resolved)), task())
    assert (result.success, result.result, result.error) == (error is None, text, error)


async def test_guide_rails_check_what_is_said_of_a_case_that_is_not_resolved() -> None:
    agent = Agent(tools=(case_not_resolved,), max_retry_limit=1)
    script = [call("case_not_resolved", {"reason": "the password is 1234"})]
    rail = Rail(GuideRailVerdict("modify", text="(left out)"))
    result = await AgentExecutor(ScriptedModel(script), guide_rails=[rail]).arun(agent, task())
    assert rail.seen[0][0] == "the password is 1234"
    assert (result.success, result.result, result.error) == (False, "(left out)", "not_resolved: (left out)")
    assert [verdict.action for verdict in result.guide_rails] == ["modify"]

    rail = Rail(*[GuideRailVerdict("abort", reason="a secret")] * 2)
    result = await AgentExecutor(ScriptedModel(script * 2), guide_rails=[rail]).arun(agent, task())
    assert (result.success, result.result, result.error) == (False, "", "guide_rail: a secret")


async def test_guide_rails_check_a_case_that_the_text_says_is_not_resolved() -> None:
    rail = Rail(GuideRailVerdict("modify", text="(left out)"))
    executor = AgentExecutor(ScriptedModel(["case_not_resolved: 1234"]), guide_rails=[rail], resolve_on_text=True)
    result = await executor.arun(Agent(), task())
    assert (result.success, result.result, result.error) == (False, "(left out)", "not_resolved: (left out)")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"guide_rails": 5}, "guide_rails must be a list of objects with a method check(text, context), not int"),
        (
            {"guide_rails": [5]},
            "guide_rails must be a list of objects with a method check(text, context), which int is not",
        ),
        ({"guide_rails": [lambda text, context: None]}, "which function is not"),
        ({"guide_rails": [Rail]}, "not the class Rail itself"),
        (
            {"confirm_gate": 5},
            "confirm_gate must be a ConfirmGate, or a function of the request that",
        ),
    ],
)
def test_guide_rails_and_gates_that_are_none_are_refused_when_the_executor_is_made(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(problem)):
        AgentExecutor(ScriptedModel([]), **options)


class Hung:
    async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
        return await asyncio.get_running_loop().create_future()


async def test_a_guide_rail_that_hangs_refuses_the_result_after_the_time_limit_of_tools() -> None:
    agent, settings = Agent(max_retry_limit=0), load_settings({"tool_timeout_seconds": 30})
    result = await AgentExecutor(ScriptedModel(["3"]), guide_rails=[Hung()], settings=settings).arun(agent, task())
    assert (result.success, result.error) == (False, "guide_rail: guide rail Hung did not answer within 30 s")


async def test_the_time_of_guide_rails_counts_in_the_budget_and_ends_with_it() -> None:
    budget, model = Budget(seconds=10), ScriptedModel(["3"])
    executor = AgentExecutor(model, guide_rails=[Hung()], budget=budget, clock=LoopClock())
    result = await executor.arun(Agent(), task())
    assert (result.success, (result.error or "").partition(":")[0]) == (False, "budget_exceeded")
    assert 10 <= budget.spent.seconds < 11


async def test_a_guide_rail_that_uses_up_the_time_of_the_budget_ends_the_run_as_exceeded() -> None:
    executor = AgentExecutor(ScriptedModel(["3"]), guide_rails=[Hung()], budget=Budget(seconds=10), clock=LoopClock())
    result = await executor.arun(Agent(max_retry_limit=0), task())
    assert (result.success, (result.error or "").partition(":")[0]) == (False, "budget_exceeded")


async def test_what_a_guide_rail_used_that_is_cut_while_it_asks_a_model_is_part_of_the_run() -> None:
    class Asks:
        async def check(self, text: str, context: GuideRailContext) -> GuideRailVerdict:
            await context.ask("Right?", model=ScriptedModel([[say("Hm"), usage(100, 50), hang()]]))
            raise AssertionError("unreachable")

    settings, model = load_settings({"tool_timeout_seconds": 5}), ScriptedModel([[say("3"), usage(1, 1)]])
    executor = AgentExecutor(model, guide_rails=[Asks()], settings=settings)
    result = await executor.arun(Agent(max_retry_limit=0), task())
    assert result.error == "guide_rail: guide rail Asks did not answer within 5 s"
    assert result.stats.usage == {"input_tokens": 101, "output_tokens": 51}
    check_grammar(result.events)


@pytest.mark.parametrize("is_continued", [False, True])
async def test_each_attempt_has_the_context_variables_of_the_beginning(is_continued: bool) -> None:
    @tool(risk="read")
    def count(context_variables: dict[str, Any]) -> Result:
        """Count."""
        context_variables["rows"].append("new")
        variables = {"count": context_variables.get("count", 0) + 1, "own": context_variables.get("own", 0) + 1}
        return Result(value=str(variables), context_variables=variables)

    session = Session() if is_continued else None
    held = {} if session is None else session.state.context_variables
    if session is not None:
        held["own"] = 10
    model = ScriptedModel([call("count"), "3", call("count"), "three"])
    executor = AgentExecutor(model, guide_rails=[Rail(GuideRailVerdict("abort"))], session=session)
    result = await executor.arun(Agent(tools=(count,)), task(), context_variables={"rows": []})
    own = 11 if is_continued else 1
    assert (result.result, result.context_variables) == ("three", {"count": 1, "own": own, "rows": ["new"]})
    assert session is None or session.state.context_variables == result.context_variables
    assert session is None or session.state.context_variables is held


async def test_in_a_session_a_refused_answer_is_followed_by_the_reason() -> None:
    session, model = Session(), ScriptedModel(["3", "three", "You are welcome."])
    rail = Rail(GuideRailVerdict("abort", reason="too short"))
    executor = AgentExecutor(model, guide_rails=[rail], session=session)
    assert (await executor.arun(adder, task())).result == "three"
    await executor.arun(adder, task("Thank you."))
    refused = "[reminder] The answer to this task was refused: guide_rail: too short"
    assert [message.content for message in model.requests[1].messages][1:] == ["1 + 2?", "3", refused, "1 + 2?"]
    assert [message.content for message in session.messages][-2:] == ["Thank you.", "You are welcome."]
