"""The checklist of the runner: tools only where needed, states in order, timed steps, a clean stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx import tool
from agenticx.core import AgentChainRunner, reasoning_of
from agenticx.knowledge import Vaults
from agenticx.llms import ScriptedModel
from agenticx.messages import ToolMessage
from agenticx.runtime import Session, StopSignal
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang, outline, say, think

pytestmark = pytest.mark.anyio


@tool(risk="read")
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Sun in {city}."


class Chat:
    """A session of a runner, with a tool and a vault of one note."""

    def __init__(self, folder: Path, *script: Any) -> None:
        self.notes = folder / "Notes"
        self.notes.mkdir()
        (self.notes / "Lease.md").write_text("# Lease\n\nIt ends in May 2027.\n")
        self.model, self.session, self.vaults = ScriptedModel(script), Session(workspace=folder), Vaults(folder / "h")
        settings = load_settings({"home": folder / "h"}, environ={})
        self.runner = AgentChainRunner(self.model, vaults=self.vaults, tools=[weather], settings=settings)

    async def __aenter__(self) -> Chat:
        await self.vaults.add(self.notes)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.vaults.close()

    async def turn(self, text: str, on: Callable[[Any], object] = lambda event: None, **options: Any) -> list[Any]:
        events: list[Any] = []
        async for event in self.runner.run_turn(text, self.session, **options):
            events.append(event)
            on(event)
        check_grammar(events)
        return events


async def test_a_simple_prompt_is_answered_without_a_tool(tmp_path: Path) -> None:
    async with Chat(tmp_path, "Hello!") as chat:
        events = await chat.turn("Hello, how are you?")

    assert outline(events, state=True, detail=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "state:done",
        "final:answer",
    ]
    assert events[0].data["mode"] == "chat"
    assert {schema.name for schema in chat.model.requests[0].tools} >= {"weather", "note_search"}  # a hint, no lock


async def test_a_prompt_that_needs_tools_runs_the_loop_through_its_states(tmp_path: Path) -> None:
    script = [[think("I look it up."), call("weather", {"city": "Graz"})], call("note_search", {"query": "lease"})]
    async with Chat(tmp_path, *script, "Sun, and it ends in May 2027 [^1].") as chat:
        events = await chat.turn("Check the weather in Graz and when the lease ends")

    assert outline(events, state=True, detail=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "thinking",
        "tool_call_delta",
        "state:executing",
        "tool_call:weather",
        "tool_result:ok",
        "state:observing",
        "round_start",
        "state:planning",
        "tool_call_delta",
        "state:executing",
        "tool_call:note_search",
        "tool_result:ok",
        "state:observing",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "citation",
        "state:done",
        "final:answer",
    ]


async def test_the_steps_of_a_turn_have_their_time_roll_while_it_runs_and_are_all_there_afterwards(
    tmp_path: Path,
) -> None:
    calls = [call("weather", {"city": city}) for city in ("Graz", "Linz", "Wels", "Enns")]
    async with Chat(tmp_path, [think("Four cities."), calls[0]], *calls[1:], "Sun.") as chat:
        events = await chat.turn("What is the weather in the four cities?", mode="agent")

    timed = [(event, 0.1 * at) for at, event in enumerate(events)]
    running, ended = reasoning_of(timed[:-1]).to_json(), reasoning_of(timed).to_json()
    assert running["steps"] == ["Called weather"] * 4
    assert (running["done"], ended["done"]) == (False, True)
    assert ended["steps"][1:] == ["Four cities", *["Called weather"] * 4]
    assert 0 < running["elapsed_seconds"] < ended["elapsed_seconds"] == round(0.1 * (len(events) - 1), 3)


@pytest.mark.parametrize("last", [hang(), [say("It en"), hang()]], ids=["before the reply", "in the reply"])
async def test_a_stop_is_said_as_such_and_what_was_found_stays(tmp_path: Path, last: Any) -> None:
    stop, calls = StopSignal(), 0

    def stop_in_second_round(event: Any) -> None:
        nonlocal calls
        calls += event.type == "round_start"
        if event.type == "state" and event.data["state"] == "planning" and calls == 2:
            stop.set()

    script = [call("note_search", {"query": "lease"}), [last] if not isinstance(last, list) else last, "May 2027 [^1]."]
    async with Chat(tmp_path, *script) as chat:
        events = await chat.turn("When does it end?", stop_in_second_round, mode="agent", should_stop=stop)
        found = [message for message in chat.session.messages if isinstance(message, ToolMessage)]
        after = await chat.turn("What do my notes say about the lease?")

    assert events[-1].data == {"text": "the turn was stopped", "code": "stopped", "fatal": True}
    assert outline(events, detail=True).count("error:stopped") == 1
    assert "It ends in May 2027." in found[0].content
    assert reasoning_of((event, 0.0) for event in events).steps[1:] == (
        "Searched notes for 'lease': 1 found",
        "Stopped",
    )
    assert [event.data["status"] for event in after if event.type == "citation"] == ["verified"]
    assert after[-1].type == "final"
