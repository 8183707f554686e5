"""A program over the public names, checked by mypy and pyright against an installed wheel, and run."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from agenticx import (
    Agent,
    AgentRuntime,
    Event,
    EventType,
    RunResult,
    RuntimeEvent,
    Session,
    ToolContext,
    TurnError,
    open_hub,
    resolve_model,
    tool,
)
from agenticx.core import AgentExecutor, ChatResponse, ExecutionResult, Task
from agenticx.runtime.events import FinalEvent, TokenEvent
from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TaskResult


class City(BaseModel):
    name: str


class Stock(BaseModel):
    apples: int


@tool(risk="read")
def count(context: ToolContext[Stock]) -> int:
    """Count the apples."""
    return context.deps.apples


shop = Agent(name="shop", model="demo", tools=[count], deps_type=Stock, output_type=City)
teller = Agent(name="teller", handoffs=["desk"])
desk = Agent(
    name="desk",
    model="demo",
    tools=[shop.as_tool()],
    handoffs=[shop, lambda: teller],
    confirm_gate=lambda request: request.tool == "count" and request.risk == "read",
)


async def run_agents() -> None:
    assert_type(shop, Agent[Stock, City])
    inferred: Agent[Stock, str] = Agent(tools=[count, add])  # by pyright; mypy takes Any for the deps
    assert inferred.deps_type is None
    assert_type(Agent(tools=[add], deps_type=Stock), Agent[Stock, str])
    assert_type(Agent(tools=[add]), Agent[Any, str])
    assert_type(await desk.run("say hi"), RunResult[str])
    assert_type((await desk.run("say hi")).output, str)
    city = await shop.run('Say {"name": "Lyon"}', deps=Stock(apples=3), session=Session())
    assert_type(city.output, City)
    assert_type((await shop.run('Say {"value": [1]}', output_type=list[int], deps=Stock(apples=3))).output, list[int])
    async with shop.stream('Say {"name": "Lyon"}', deps=Stock(apples=3)) as turn:
        async for event in turn:
            assert_type(event, Event)
            if event.type == "confirm_required":
                event.approve()
            elif event.type == "question_asked":
                event.answer(event.data["text"])
    assert_type(turn.result.output, City)
    async with open_hub("memory://", model="demo", agents=[desk]) as hub:
        stored = await hub.create(agent="desk")
        assert_type((await shop.run('Say {"name": "Lyon"}', session=stored, deps=Stock(apples=3))).output, City)
        answer = await hub.run(stored.id, 'Say {"name": "Lyon"}', agent=shop, deps=Stock(apples=3))
        assert_type(answer.output, City)


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Shop:
    @tool
    async def price(self, item: str, *, count: int = 1) -> float:
        """Return a price."""
        return count * len(item)


def show(event: Event) -> str:
    match event.type:
        case "token":
            assert_type(event.data["offset"], int)
            return event.data["text"]
        case "final":
            assert_type(event.data["reason"], Literal["answer", "resolved", "not_resolved", "handoff", "partial"])
            return event.data["text"]
        case "confirm_required":
            assert_type(event.data["context"].get("sandboxed"), Literal["bubblewrap", "landlock", False] | None)
            return event.data["context"]["tool_call_id"]
        case "error":
            assert_type(event.data["fatal"], bool)
            return event.data["code"]
        case _:
            return ""


async def main() -> None:
    assert_type(add(1, 2), int)
    assert_type(await Shop().price("tea", count=2), float)
    runtime = AgentRuntime(resolve_model("demo"), tools=[add, Shop().price], system_prompt="Be brief.")
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

    assert_type(await runtime.run("say hi"), RunResult[str])
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
    asyncio.run(run_agents())
    print("ok")
