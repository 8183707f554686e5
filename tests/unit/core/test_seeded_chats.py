"""The examples of handoffs and variables that the project began with, adapted in names only."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agenticx.core import Agent, AgentExecutor, Response, Result, case_resolved
from agenticx.llms import XmlToolModel
from agenticx.testing import ScriptedModel, call, say

websurfer_agent = Agent(name="Web Surfer Agent", instructions="Browse the web.")


def transfer_to_websurfer(context_variables: dict) -> Result:  # type: ignore[type-arg]  # as it was written
    """Transfer control to WebSurferAgent for web browsing tasks."""
    return Result(
        value="Transferring to WebSurferAgent",
        agent=websurfer_agent,
    )


ENVIRONMENTS: list[Any] = []


def run_code(code: str, timeout: int, context_variables: dict) -> Result:  # type: ignore[type-arg]
    """Run code in the environment."""
    ENVIRONMENTS.append(context_variables["code_env"])
    return Result(value=f"ran {code!r} for at most {timeout} s", context_variables={"runs": 1})


def chat(model: Any, *functions: Any, **options: Any) -> Response:
    agent = Agent(name="System Triage Agent", functions=[*functions])
    return AgentExecutor(model).chat(agent, [{"role": "user", "content": "Go."}], **options)


def test_the_defaults_of_the_data_types() -> None:
    agent = Agent()
    assert (agent.name, agent.instructions) == ("Agent", "You are a helpful agent.")
    assert (list(agent.functions), agent.tool_choice, agent.parallel_tool_calls) == ([], None, True)
    assert (Response().messages, Response().agent, Response().context_variables) == ([], None, {})
    assert (Result().value, Result().agent, Result().context_variables) == ("", None, {})


def test_a_result_with_an_agent_hands_over_to_it() -> None:
    with ScriptedModel([call("transfer_to_websurfer"), say("Found.")]) as model:
        response = chat(model, transfer_to_websurfer)
    assert response.agent is websurfer_agent
    assert [row["content"] for row in response.messages] == [None, "Transferring to WebSurferAgent", "Found."]


def test_variables_reach_the_tool_and_not_the_model() -> None:
    environment = object()
    with ScriptedModel([call("run_code", {"code": "1+1", "timeout": 5}), say("2")]) as model:
        response = chat(model, run_code, context_variables={"code_env": environment})
    schema = model.requests[0].tools[0].parameters
    assert {name: field["type"] for name, field in schema["properties"].items()} == {
        "code": "string",
        "timeout": "integer",
    }
    assert schema["required"] == ["code", "timeout"]
    assert ENVIRONMENTS.pop() is environment
    assert response.context_variables == {"code_env": environment, "runs": 1}


def test_a_model_without_function_calling_writes_calls_in_xml() -> None:
    xml = "<function=run_code>\n<parameter=code>1+1</parameter>\n<parameter=timeout>5</parameter>\n</function>"
    with ScriptedModel([say(xml), say("2")]) as model:
        response = chat(XmlToolModel(model), run_code, context_variables={"code_env": None})
    assert (model.requests[0].tools, "run_code" in model.requests[0].messages[0].content) == ((), True)
    assert response.messages[0]["tool_calls"][0]["function"]["name"] == "run_code"
    assert response.messages[1]["content"] == "ran '1+1' for at most 5 s"
    assert response.messages[-1]["content"] == "2"


def test_the_three_ends_of_a_chat() -> None:
    replies = [call("run_code", {"code": "1", "timeout": 1})] * 2
    variables = {"code_env": None}
    with ScriptedModel(replies) as model:
        assert len(chat(model, run_code, context_variables=variables, max_turns=2).messages) == 4
    with ScriptedModel([call("case_resolved", {"result": "42"})]) as model:
        assert chat(model, case_resolved).messages[-1]["content"] == "The case is resolved. 42"
    with ScriptedModel(replies[:1]) as model:
        unrun = chat(model, run_code, context_variables=variables, execute_tools=False)
    assert [row["role"] for row in unrun.messages] == ["assistant"]


def test_calls_handoffs_and_model_calls_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="agenticx")
    with ScriptedModel([call("transfer_to_websurfer"), say("Found.")]) as model:
        chat(model, transfer_to_websurfer)
    logged = [record.getMessage().split()[0] for record in caplog.records]
    assert [name for name in logged if name in {"llm_call", "tool_call", "agent_handoff"}] == [
        "llm_call",
        "tool_call",
        "agent_handoff",
        "llm_call",
    ]
