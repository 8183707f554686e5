"""Documented examples of autogen-agentchat 0.7, with the messages that they produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agenticx.teams import ModelClientStreamingChunkEvent, TaskResult
from agenticx.testing import ScriptedModel, call, say
from tests.examples.ask_the_user import asking_team, user_answer
from tests.examples.counting_team import counting_team
from tests.examples.flight_refund import refund_swarm
from tests.examples.research_team import research_team
from tests.examples.weather_agent import weather_agent

pytestmark = pytest.mark.anyio


def outline(result: TaskResult) -> Sequence[str]:
    """Return each message as `source: text`, without the requests of calls."""
    shown = [message for message in result.messages if message.type != "ToolCallRequestEvent"]
    return [f"{message.source}: {message.to_text()}" for message in shown]


async def test_the_weather_agent_answers_in_chunks() -> None:
    with ScriptedModel([call("get_weather", {"city": "New York"}), say("It is sunny.", pieces=2)]) as model:
        items: list[Any] = [item async for item in weather_agent(model).run_stream(task="The weather in New York?")]
    assert outline(items[-1]) == [
        "user: The weather in New York?",
        "weather_agent: 73 degrees and sunny in New York",
        "weather_agent: It is sunny.",
    ]
    chunks = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    assert (len(chunks), "".join(chunks)) == (2, "It is sunny.")


async def test_the_counting_team_ends_with_a_text() -> None:
    with ScriptedModel([call("increment", {"number": 5}), call("increment", {"number": 6}), say("7 is it.")]) as model:
        result = await counting_team(model).run(task="Count from 5 to 7.")
    results = ["counter: 6", "counter: 6", "counter: 7", "counter: 7"]  # each as an event and as the answer
    assert outline(result) == ["user: Count from 5 to 7.", *results, "counter: 7 is it."]
    assert result.stop_reason == "Text message received from 'counter'"


async def test_the_user_is_asked_by_a_handoff_and_the_answer_goes_on_with_the_conversation() -> None:
    with ScriptedModel([call("handoff_to_user"), say("Sunny. TERMINATE")]) as model:
        team = asking_team(model)
        asked = await team.run(task="The weather in New York?")
        answered = await team.run(task=user_answer("It is sunny."))
    assert asked.stop_reason == "Handoff to user from assistant detected."
    assert outline(asked)[-1] == "assistant: I need the user's help."
    assert outline(answered) == ["user: It is sunny.", "assistant: Sunny. TERMINATE"]
    contents = [message.content for message in model.requests[1].messages]
    assert {"The weather in New York?", "It is sunny."} <= {*contents}


async def test_the_research_team_asks_for_the_workers_only() -> None:
    script = [
        say("1. Find the numbers. 2. Compute."),
        say("searcher"),
        [call("search", {"year": 1999}), call("search", {"year": 2020})],
        say("445000 and 522000."),
        say("Now the change."),
        say("analyst"),
        call("percentage_change", {"start": 445_000, "end": 522_000}),
        say("17.3 percent."),
        say("Lyon grew by 17.3 percent. TERMINATE"),
    ]
    with ScriptedModel(script) as model:
        result = await research_team(model).run(task="How did Lyon grow?")
    assert outline(result)[1:] == [
        "planner: 1. Find the numbers. 2. Compute.",
        "searcher: 445000\n522000",
        "searcher: 445000 and 522000.",
        "planner: Now the change.",
        "analyst: 17.3",
        "analyst: 17.3 percent.",
        "planner: Lyon grew by 17.3 percent. TERMINATE",
    ]
    assert "from ['searcher', 'analyst']" in model.requests[1].messages[0].content


async def test_the_refund_swarm_asks_the_user_for_the_flight() -> None:
    script = [
        call("handoff_to_refunder"),
        call("handoff_to_user", {"reason": "Which flight?"}),
        call("refund_flight", {"flight_id": "507811"}),
        call("handoff_to_travel_agent"),
        say("Your refund is on its way. TERMINATE"),
    ]
    with ScriptedModel(script) as model:
        swarm = refund_swarm(model)
        asked = await swarm.run(task="I need a refund.")
        done = await swarm.run(task=user_answer("507811").model_copy(update={"target": asked.messages[-1].source}))
    assert [message.source for message in asked.messages if message.type == "HandoffMessage"] == [
        "travel_agent",
        "refunder",
    ]
    assert asked.stop_reason == "Handoff to user from refunder detected."
    assert "refunder: Flight 507811 refunded" in outline(done)
    assert outline(done)[-1] == "travel_agent: Your refund is on its way. TERMINATE"
