"""Tasks and chats run by the executor: results, limits, refused arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenticx.core import (
    Agent,
    AgentExecutor,
    ChatResponse,
    ExecutionResult,
    Response,
    Result,
    Task,
    case_resolved,
)
from agenticx.errors import ModelError, SettingsError
from agenticx.llms import OpenAIProvider
from agenticx.runtime import Budget, Session, TurnError
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, check_grammar, fail, say, usage
from agenticx.tools import tool

pytestmark = pytest.mark.anyio


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


adder = Agent(name="Adder", role="Calculator", goal="Add numbers.", backstory="Was an abacus.", tools=(add,))


def task(description: str = "1 + 2?", **fields: Any) -> Task:
    return Task(description=description, **fields)


# --- agents and tasks -------------------------------------------------------------------------------------------------


def test_every_field_of_an_agent_has_its_default() -> None:
    agent = Agent()
    assert agent.model_dump(exclude={"id"}) == {
        "name": "Agent",
        "role": "",
        "goal": "",
        "backstory": None,
        "organization_id": "default-org",
        "instructions": "You are a helpful agent.",
        "context_variables_description": "",
        "model": None,
        "sampling": None,
        "tools": (),
        "tool_choice": None,
        "parallel_tool_calls": True,
        "handoffs": (),
        "output_type": None,
        "deps_type": None,
        "confirm_gate": None,
        "hooks": (),
        "max_iterations": 25,
        "max_retry_limit": 2,
    }
    assert agent.id != Agent().id
    assert agent == Agent(id=agent.id)
    assert not hasattr(agent, "verbose")


def test_functions_are_another_name_for_tools_and_agents_are_frozen() -> None:
    agent = Agent(functions=[add])
    assert agent.tools == agent.functions == (add,)
    with pytest.raises(
        AttributeError, match=r"Agent is frozen; model_copy\(update={'name': 'other'}\) returns a changed"
    ):
        agent.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match=r"no argument max_iter; did you mean max_iterations\?"):
        Agent(max_iter=3)  # pyright: ignore[reportCallIssue]


class Connection:
    pass


def takes_object(city: str, session: Connection) -> str:
    return city


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"instructions": lambda one, two: "x"}, "takes no argument or context_variables"),
        ({"instructions": lambda *, variables: "x"}, "takes no argument or context_variables"),
        ({"max_iterations": 0}, "max_iterations must be greater than or equal to 1, not 0"),
        ({"max_iterations": True}, "max_iterations must be an int, not bool"),
        ({"max_iterations": "5"}, "max_iterations must be an int, not str"),
        ({"max_retry_limit": True}, "max_retry_limit must be an int, not bool"),
        ({"name": ""}, "name must have at least 1 character"),
        ({"name": "a\nb"}, "one line without control characters"),
        ({"tools": (5,)}, "5 is neither a tool nor a function"),
        ({"tools": ("add",)}, "'add' is neither a tool nor a function; give the function itself, not its name"),
        ({"tools": add}, r"tools must be a list of tools and functions; write tools=\[add\]"),
        ({"tools": [dict]}, "<class 'dict'> cannot be a tool: it has no signature"),
        ({"tools": [lambda *names: ""]}, r"parameter '\*names' of a tool has no single name"),
        ({"tools": [takes_object]}, "parameter 'session' of 'takes_object' has a type without a JSON Schema"),
        ({"instructions": None}, "instructions must be a str or a function, not NoneType"),
        ({"sampling": 0.2}, "sampling must be an instance of Sampling, not float"),
        ({"hooks": [5]}, r"hooks\[0\] must be an object of a class that derives from AgentHook, not int"),
        ({"modle": "demo"}, r"Agent has no argument modle; did you mean model\?"),
        ({"prompt": "Be brief."}, r"Agent has no argument prompt; did you mean instructions\?"),
    ],
)
def test_a_field_of_an_agent_that_cannot_be_used_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        Agent(**fields)


async def test_role_goal_backstory_and_instructions_are_the_system_prompt_and_the_description_is_the_message() -> None:
    model = ScriptedModel(["3"])
    await AgentExecutor(model).arun(adder, task(expected_output="a number"))
    system, user = model.requests[0].messages
    assert system.content == (
        "You are Adder, Calculator.\n\nYour goal: Add numbers.\n\nWas an abacus.\n\nYou are a helpful agent.\n\n"
        "The answer is expected to be: a number"
    )
    assert user.content == "1 + 2?"


@pytest.mark.parametrize(
    "instructions",
    [
        lambda context_variables, /: f"Be {context_variables['mood']}.",
        lambda *, context_variables: f"Be {context_variables['mood']}.",
        lambda **variables: f"Be {variables['context_variables']['mood']}.",
        lambda *variables: f"Be {variables[0]['mood']}.",
        lambda *variables, **more: f"Be {variables[0]['mood']}.",
        lambda variables, end=".": f"Be {variables['mood']}{end}",
        lambda end=".", context_variables=None: f"Be {context_variables['mood']}{end}",
    ],
    ids=["positional", "keyword-only", "any keyword", "any position", "any", "with a default", "by name"],
)
async def test_functions_of_instructions_get_the_context_variables_as_they_take_them(instructions: Any) -> None:
    model = ScriptedModel(["Hi."])
    agent = Agent(instructions=instructions)
    result = await AgentExecutor(model).arun(agent, task(), context_variables={"mood": "kind"})
    assert (result.error, model.requests[0].messages[0].content) == (None, "Be kind.")


async def test_instructions_that_fail_end_the_run_without_success() -> None:
    def instructions() -> str:
        raise LookupError("lost")

    result = await AgentExecutor(ScriptedModel([])).arun(Agent(instructions=instructions), task())
    assert not result.success
    assert result.error == "hook_failed: the instructions of agent 'Agent' raised LookupError: lost"


async def test_the_agent_of_a_task_is_used_and_its_context_comes_first() -> None:
    first, model = task("Name a city"), ScriptedModel(["Lyon", "Rhône"])
    executor = AgentExecutor(model)
    await executor.arun(adder, first)
    await executor.arun(task=task("Name its river", agent=adder, context=(first, "Be short.", task("Name a sea"))))
    assert model.requests[1].messages[1].content == (
        "Name a city\nResult: Lyon\n\nBe short.\n\nName a sea\n\nName its river"
    )


# --- results ----------------------------------------------------------------------------------------------------------


async def test_a_result_has_text_events_stats_and_agent() -> None:
    model = ScriptedModel([[call("add", {"a": 1, "b": 2}), usage(10, 2)], [say("It is 3."), usage(20, 3)]])
    result = await AgentExecutor(model).arun(adder, task())
    assert (result.success, result.result, result.output, result.error) == (True, "It is 3.", None, None)
    assert result.agent is adder
    assert (result.stats.rounds, result.stats.tool_calls) == (2, 1)
    assert result.stats["usage"] == {"input_tokens": 30, "output_tokens": 5}
    assert (result.stats["cost_usd"], result.stats["organization_id"]) == (None, "default-org")
    assert result.stats.usage_by_organization == {"default-org": result.stats.usage}
    with pytest.raises(KeyError):
        result.stats["verbose"]
    check_grammar(result.events)


async def test_the_calls_of_one_reply_run_at_the_same_time() -> None:
    together = asyncio.Barrier(2)

    @tool(risk="read")
    async def measure(river: str) -> str:
        """Measure a river."""
        await together.wait()
        return f"{river}: wide"

    calls = [call("measure", {"river": river}) for river in ("Rhine", "Rhône")]
    model = ScriptedModel([calls, "Both are wide."])
    result = await asyncio.wait_for(AgentExecutor(model).arun(Agent(tools=[measure]), task("How wide?")), 10)
    results = [event.data["result"] for event in result.events if event.type == "tool_result"]
    assert (results, result.result) == (["Rhine: wide", "Rhône: wide"], "Both are wide.")


async def test_stream_yields_the_events_of_the_result() -> None:
    executor = AgentExecutor(ScriptedModel([call("add", {"a": 1, "b": 2}), "3"]))
    events = [event async for event in executor.stream(adder, task())]
    check_grammar(events)
    assert (events[0].data["input"], events[-1].data["text"]) == ("1 + 2?", "3")


def test_run_works_without_a_loop_and_inside_a_running_one() -> None:
    executor = AgentExecutor("demo")

    async def inside() -> ExecutionResult:
        return executor.run(Agent(), task("Say hello"))

    assert executor.run(Agent(), task("Say hello")).result == "hello"
    assert asyncio.run(inside()).result == "hello"


def test_the_example_of_the_documentation_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    answer: list[ExecutionResult] = []

    async def serve_and_run() -> None:
        async with FakeOpenAIServer(["A short report."]) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            answer.append(await asyncio.to_thread(_example))

    asyncio.run(serve_and_run())
    assert (answer[0].success, answer[0].result) == (True, "A short report.")


def _example() -> ExecutionResult:
    agent = Agent(
        name="Research Assistant",
        role="Analyst",
        goal="Summarize findings",
        organization_id="my-org",
    )
    task = Task(
        id="t1",
        description="Research topic X",
        expected_output="Short report",
    )
    executor = AgentExecutor(llm_provider=OpenAIProvider(model="gpt-4o"))
    return executor.run(agent=agent, task=task)


async def test_a_turn_that_fails_is_a_result_without_success() -> None:
    model = ScriptedModel([fail(ModelError("no such key", code="provider.auth"))])
    result = await AgentExecutor(model).arun(adder, task())
    assert (result.success, result.result, result.error) == (False, "", "provider.auth: no such key")
    assert result.events[-1].data["code"] == "provider.auth"


@pytest.mark.parametrize(("executor_limit", "agent_limit", "max_turns"), [(2, 25, None), (50, 2, None), (50, 25, 2)])
async def test_the_smallest_limit_of_model_calls_binds(
    executor_limit: int, agent_limit: int, max_turns: int | None
) -> None:
    model = ScriptedModel([call("add", {"a": n, "b": 2}) for n in range(2)])
    agent = adder.model_copy(update={"max_iterations": agent_limit})
    result = await AgentExecutor(model, max_iterations=executor_limit).arun(agent, task(), max_turns=max_turns)
    assert result.error is not None
    assert result.error.startswith("max_rounds: ")
    assert result.stats.rounds == 2


async def test_calls_are_returned_unrun_if_tools_are_not_to_be_executed() -> None:
    model = ScriptedModel([[say("Adding."), call("add", {"a": 1, "b": 2})]])
    result = await AgentExecutor(model).arun(adder, task(), execute_tools=False)
    assert (result.success, result.result, result.stats.tool_calls) == (True, "Adding.", 0)
    assert [(made.name, made.arguments) for made in result.tool_calls] == [("add", '{"a": 1, "b": 2}')]


@pytest.mark.parametrize("script", [[[say("Adding."), call("add", {"a": 1, "b": 2})], "3"], ["3"]])
async def test_a_result_has_no_calls_if_they_were_run_or_there_were_none(script: list[Any]) -> None:
    result = await AgentExecutor(ScriptedModel(script)).arun(adder, task(), execute_tools=len(script) > 1)
    assert (result.result, result.tool_calls) == ("3", ())


async def test_an_object_is_accepted_where_no_tool_is_to_be_executed() -> None:
    submit, add_ = call("submit_output", {"value": 3}), call("add", {"a": 1, "b": 2})
    for script, output, names in (
        ([call("submit_output", {"value": "x"}), submit], 3, []),
        ([add_], None, ["add"]),
        ([[add_, submit]], None, ["add", "submit_output"]),
    ):
        job = task(output_type=int)
        result = await AgentExecutor(ScriptedModel(script)).arun(adder, job, execute_tools=False)
        assert (result.success, result.output, [made.name for made in result.tool_calls]) == (True, output, names)


# --- chats ------------------------------------------------------------------------------------------------------------

helper = Agent(name="Helper", instructions="Help.")


@tool(risk="read")
def transfer() -> Result:
    """Hand over."""
    return Result(value="ok", agent=helper, context_variables={"asked": True})


async def test_a_chat_returns_new_rows_agent_and_variables_and_changes_nothing_that_was_given() -> None:
    rows, variables = [{"role": "user", "content": "hi"}], {"n": 1}
    agent = Agent(name="First", tools=(transfer,))
    executor = AgentExecutor(ScriptedModel([call("transfer", id="call_a"), "Hello."]))
    response = await executor.achat(agent, rows, context_variables=variables)
    assert isinstance(response, ChatResponse)
    assert Response is ChatResponse
    assert response.messages == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "transfer", "arguments": "{}"}}],
            "sender": "First",
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
        {"role": "assistant", "content": "Hello.", "sender": "Helper"},
    ]
    assert response.agent is helper
    assert response.context_variables == {"n": 1, "asked": True}
    assert (rows, variables) == ([{"role": "user", "content": "hi"}], {"n": 1})


async def test_a_chat_is_continued_with_the_rows_that_it_returned() -> None:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    first = await AgentExecutor(ScriptedModel([call("add", {"a": 1, "b": 2}, id="call_a")])).achat(
        adder, rows, execute_tools=False
    )
    result = {"role": "tool", "tool_call_id": "call_a", "content": "3"}
    model = ScriptedModel(["It is 3."])
    second = await AgentExecutor(model).achat(adder, [*rows, *first.messages, result])
    assert [message.role for message in model.requests[0].messages] == ["system", "user", "assistant", "tool"]
    assert second.messages == [{"role": "assistant", "content": "It is 3.", "sender": "Adder"}]


async def test_a_chat_that_uses_all_of_its_turns_returns_what_there_is() -> None:
    model = ScriptedModel([call("add", {"a": n, "b": 2}) for n in range(2)])
    response = await AgentExecutor(model).achat(adder, [{"role": "user", "content": "hi"}], max_turns=2)
    assert [row["role"] for row in response.messages] == ["assistant", "tool", "assistant", "tool"]


async def test_the_model_of_a_chat_takes_the_place_of_every_agents_model() -> None:
    model = ScriptedModel(["Hello."])
    unused = ScriptedModel([])
    agent = adder.model_copy(update={"model": unused})
    response = await AgentExecutor(unused).achat(agent, [{"role": "user", "content": "hi"}], model=model)
    assert response.messages[0]["content"] == "Hello."


async def test_a_chat_that_fails_raises_the_error_of_the_turn() -> None:
    executor = AgentExecutor(ScriptedModel([fail(ModelError("no such key", code="provider.auth"))]))
    with pytest.raises(TurnError, match="no such key") as raised:
        await executor.achat(adder, [{"role": "user", "content": "hi"}])
    assert raised.value.code == "provider.auth"


# --- refused arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((adder, 5), TypeError, "task must be a Task or a text, not int"),
        ((None, Task(description="x")), TypeError, "agent must be an Agent, given here or with the task"),
        ((Agent(tool_choice="sub"), Task(description="x")), ValueError, "names no tool of it: 'sub'"),
        ((Agent(model="nobody:nothing"), Task(description="x")), SettingsError, "nobody"),
    ],
)
async def test_arguments_that_cannot_be_used_are_refused(
    arguments: tuple[Any, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await AgentExecutor(ScriptedModel([])).arun(*arguments)


async def test_limits_and_rows_that_cannot_be_used_are_refused() -> None:
    executor = AgentExecutor(ScriptedModel([]))
    with pytest.raises(ValueError, match="max_iterations must be at least 1, not 0"):
        AgentExecutor(max_iterations=0)
    with pytest.raises(TypeError, match="max_turns must be an int, not str"):
        await executor.arun(adder, task(), max_turns="3")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="messages must not be empty"):
        await executor.achat(adder, [])
    with pytest.raises(TypeError, match="messages must be a list of dict rows of Chat Completions, not NoneType"):
        await executor.achat(adder, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"messages\[0\]: the role must be one of"):
        await executor.achat(adder, [{"role": "nobody"}])


@pytest.mark.parametrize("name", ["", "nobody:nothing"])
def test_an_executor_whose_model_has_no_known_name_is_refused_when_it_is_made(name: str) -> None:
    with pytest.raises(SettingsError, match=f"model {name!r}"):
        AgentExecutor(name)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        (5, "context_variables must be a dict, not int"),
        ("x", "context_variables must be a dict, not str"),
        ([], "context_variables must be a dict, not list"),
        ({5: 1}, "the keys of context_variables must be str, not int"),
    ],
)
async def test_context_variables_that_are_none_are_refused(variables: Any, problem: str) -> None:
    executor = AgentExecutor(ScriptedModel([]))
    with pytest.raises(TypeError, match=problem):
        await executor.arun(adder, task(), context_variables=variables)
    with pytest.raises(TypeError, match=problem):
        await executor.achat(adder, [{"role": "user", "content": "hi"}], context_variables=variables)


async def test_an_executor_with_a_session_continues_the_conversation() -> None:
    model = ScriptedModel(["Hi Ann.", "Ann."])
    executor = AgentExecutor(model, session=Session())
    await executor.arun(adder, task("I am Ann."))
    result = await executor.arun(adder, task("Who am I?"))
    assert result.result == "Ann."
    assert [message.content for message in model.requests[1].messages][1:] == ["I am Ann.", "Hi Ann.", "Who am I?"]


async def test_text_that_names_a_case_tool_counts_only_if_asked_for() -> None:
    text = "I give up: case_not_resolved"
    plain = await AgentExecutor(ScriptedModel([text])).arun(adder, task())
    asked = await AgentExecutor(ScriptedModel([text]), resolve_on_text=True).arun(adder, task())
    solved = await AgentExecutor(ScriptedModel(["Done: case_resolved"]), resolve_on_text=True).arun(adder, task())
    assert (plain.success, asked.success, solved.success) == (True, False, True)
    reasons = [result.events[-1].data["reason"] for result in (plain, asked, solved)]
    assert reasons == ["answer", "not_resolved", "resolved"]
    assert case_resolved.schema.name == "case_resolved"


# --- budgets ----------------------------------------------------------------------------------------------------------


async def test_all_runs_of_an_executor_share_its_budget() -> None:
    budget = Budget(tokens=1_500)
    model = ScriptedModel([[say("3"), usage(900, 10)], [say("4"), usage(400, 10)]])
    executor = AgentExecutor(model, budget=budget)

    assert (await executor.arun(adder, task("1 + 2?"))).result == "3"
    assert (await executor.achat(adder, [{"role": "user", "content": "2 + 2?"}])).messages[-1]["content"] == "4"
    result = await executor.arun(adder, task("3 + 2?"))

    assert (result.success, result.stats.rounds) == (False, 1)
    assert (result.error or "").startswith("budget_exceeded: the budget of 1500 tokens is exceeded")
    assert budget.spent.tokens == 1_320


def test_a_budget_must_be_a_budget() -> None:
    with pytest.raises(TypeError, match="budget must be a Budget, not int"):
        AgentExecutor("demo", budget=1_000)  # type: ignore[arg-type]
