"""A program over the public names, checked by mypy and pyright against an installed wheel, and run."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from agenticx import (
    AgentRuntime,
    Event,
    EventType,
    RunResult,
    RuntimeEvent,
    Session,
    TurnError,
    open_hub,
    resolve_model,
    tool,
)
from agenticx.core import Agent, AgentExecutor, ChatResponse, ExecutionResult, Task
from agenticx.runtime.events import FinalEvent, TokenEvent
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TaskResult


class City(BaseModel):
    name: str


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def show(event: Event) -> str:
    match event.type:
        case "token":
            assert_type(event.data["offset"], int)
            return event.data["text"]
        case "final":
            assert_type(event.data["reason"], Literal["answer", "resolved", "not_resolved", "handoff", "partial"])
            return event.data["text"]
        case "confirm_required":
            assert_type(event.data["context"].get("sandboxed"), bool | None)
            return event.data["context"]["tool_call_id"]
        case "error":
            assert_type(event.data["fatal"], bool)
            return event.data["code"]
        case _:
            return ""


async def main() -> None:
    runtime = AgentRuntime(resolve_model("demo"), tools=[add], system_prompt="Be brief.")
    session = Session(messages=[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}])
    shown: list[str] = []
    async for event in runtime.run_turn("say one two", session):
        if event.type == "token":
            assert_type(event, TokenEvent)
            shown.append(event.data["text"])
        if isinstance(event, FinalEvent):
            assert event.data["text"] == "".join(shown)
        shown_again: str = show(event)
        assert isinstance(shown_again, str)

    assert_type(await runtime.run("say hi"), RunResult[None])
    city = await runtime.run('Say {"name": "Lyon"}', output_type=City)
    assert_type(city, RunResult[City])
    assert_type(city.output.name, str)
    cities = await runtime.run('Say {"value": [{"name": "Lyon"}]}', output_type=list[City])
    assert_type(cities.output, list[City])
    maybe = await runtime.run('Say {"value": null}', output_type=City | None)
    assert_type(maybe.output, Any)
    rows: list[dict[str, Any]] = session.to_openai()
    assert rows[-1]["content"] == "one two"

    constructed = RuntimeEvent(EventType.TOKEN, {"text": "x"}, "meta")
    assert constructed.type == EventType.TOKEN
    try:
        await AgentRuntime("demo", max_tool_rounds=1).run("list the files and then list the files", tools=[add])
    except TurnError as error:
        assert_type(error.events[-1], Event)

    executor = AgentExecutor("demo")
    assert_type(
        executor.run(Agent(name="Teller", tools=[add]), Task(description="say hi"), max_turns=3), ExecutionResult
    )
    assert_type(await executor.arun(Agent(), Task(description="say hi")), ExecutionResult)
    assert_type(executor.chat(Agent(), [{"role": "user", "content": "say hi"}]), ChatResponse)
    team = RoundRobinGroupChat([AssistantAgent("teller", "demo")], max_turns=1)
    assert_type(await team.run(task="say hi"), TaskResult)

    async with open_hub("memory://", model="demo", tools=[add]) as hub:
        stored = await hub.create(name="Sample")
        async for event in hub.run_turn(stored.id, "say one"):
            assert_type(event, Event)
            shown.append(event.type)
        assert shown[-1] == "final"


if __name__ == "__main__":
    asyncio.run(main())
    print("ok")
