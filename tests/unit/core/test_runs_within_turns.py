"""Executors that a tool calls: their runs are child turns of that of the tool, or are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agenticx.core import Agent, AgentExecutor, Task
from agenticx.runtime import AgentRuntime, Budget, Session, TurnContext
from agenticx.sessions import MemoryStore
from agenticx.testing import ScriptedGate, ScriptedModel, call, check_grammar, collect, say, usage
from agenticx.tools import tool

pytestmark = pytest.mark.anyio

USER = {"role": "user", "content": "Delete 7."}
CALL = {"id": "c1", "type": "function", "function": {"name": "delete", "arguments": '{"number": 6}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "gone"}
TASK = Task(description="Delete 7.")

Delegate = Callable[[AgentExecutor, Agent], Awaitable[str]]


def chat(*rows: dict[str, Any]) -> Delegate:
    async def delegate(executor: AgentExecutor, agent: Agent) -> str:
        return str((await executor.achat(agent, rows)).messages[-1]["content"])

    return delegate


async def run(executor: AgentExecutor, agent: Agent) -> str:
    return (await executor.arun(agent, TASK)).result


async def events_of(tool_: Any, gate: ScriptedGate, budget: Budget | None = None) -> list[Any]:
    runtime = AgentRuntime(ScriptedModel([[call(tool_.schema.name), usage(10, 1)], "Done."]), gate, tools=[tool_])
    events = await collect(runtime.run_turn("Go", Session(), context=TurnContext(budget=budget)))
    check_grammar(events)
    return events


def results(events: list[Any]) -> list[str]:
    return [event.data["result"] for event in events if event.type == "tool_result"]


@pytest.mark.promise("D6")
@pytest.mark.parametrize(
    "delegate",
    [run, chat(USER), chat(USER, CALLS, ANSWERED), chat(CALLS, ANSWERED), chat(USER, CALLS, ANSWERED, USER)],
    ids=["task", "message", "results", "results without a message", "message after results"],
)
async def test_what_an_executor_does_in_a_tool_is_visible_asked_about_and_charged(delegate: Delegate) -> None:
    deleted: list[int] = []

    def delete(number: int) -> str:
        deleted.append(number)
        return f"{number} is gone"

    inner = ScriptedModel([[call("delete", {"number": 7}), usage(500, 1)], [say("It was refused."), usage(500, 1)]])

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent."""
        return await delegate(AgentExecutor(inner), Agent(name="Inner", tools=[delete]))

    gate, budget = ScriptedGate(False), Budget(tokens=1_000_000)
    events = await events_of(ask, gate, budget)
    assert deleted == []
    assert [request.agent_path for request in gate.requests] == [("meta", "Inner")]
    assert results(events)[-1] == "It was refused."
    assert [event.agent_id for event in events if event.type == "turn_started"] == ["meta", "Inner"]
    assert [event.data["input_tokens"] for event in events if event.agent_id == "Inner" and event.type == "usage"] == [
        500,
        500,
    ]
    assert budget.spent.tokens >= 1_002


async def test_a_turn_below_that_goes_on_after_results_names_the_message_that_they_answer() -> None:
    executor = AgentExecutor(ScriptedModel(["It is gone."]))

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent."""
        return await chat(USER, CALLS, ANSWERED)(executor, Agent(name="Inner"))

    events = await events_of(ask, ScriptedGate())
    assert [event.data["input"] for event in events if event.type == "turn_started"] == ["Go", "Delete 7."]


@pytest.mark.promise("D6")
@pytest.mark.parametrize("method", ["run", "chat"])
async def test_a_blocking_run_on_the_event_loop_of_a_turn_is_refused(method: str) -> None:
    model = ScriptedModel([])
    executor = AgentExecutor(model)

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent."""
        argument: Any = TASK if method == "run" else [USER]
        return str(getattr(executor, method)(Agent(name="Inner"), argument))

    (text,) = results(await events_of(ask, ScriptedGate()))
    assert text == (
        f"Error: tool 'ask' raised RuntimeError: {method} cannot be called on the event loop of a turn, such as in an "
        f"async tool; use `await executor.a{method}(...)`"
    )
    assert model.requests == []


@pytest.mark.promise("D6")
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_an_executor_with_a_store_is_refused_within_a_turn(is_blocking: bool) -> None:
    model = ScriptedModel([])
    executor = AgentExecutor(model, store=MemoryStore())

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent."""
        return await run(executor, Agent(name="Inner"))

    @tool(risk="read", name="ask")
    def ask_and_wait() -> str:
        """Ask another agent."""
        return executor.run(Agent(name="Inner"), TASK).result

    (text,) = results(await events_of(ask_and_wait if is_blocking else ask, ScriptedGate()))
    assert "an executor with a store cannot be used within a turn, here of agent 'meta'" in text
    assert model.requests == []


async def test_a_blocking_run_in_a_task_that_outlives_its_turn_is_a_run_of_its_own() -> None:
    is_over, tasks = asyncio.Event(), list[asyncio.Task[str]]()

    async def later() -> str:
        await is_over.wait()
        return AgentExecutor(ScriptedModel(["Late."])).run(Agent(name="Inner"), TASK).result

    @tool(risk="read")
    async def ask() -> str:
        """Ask another agent later."""
        tasks.append(asyncio.create_task(later()))
        return "ok"

    await events_of(ask, ScriptedGate())
    is_over.set()
    assert await tasks[0] == "Late."
