"""The testing package over turns of the real runtime: its results match the wire contract."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.errors import ModelError
from agenticx.runtime import AgentRuntime, StopSignal
from agenticx.testing import (
    ScriptedGate,
    ScriptedModel,
    assert_sequence,
    call,
    check_grammar,
    collect,
    cut,
    fail,
    finish,
    hang,
    outline,
    say,
    stall_after,
    think,
    usage,
)
from agenticx.tools import tool
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def launch(target: str) -> str:
    """Launch something."""
    return f"launched {target}"


@tool(risk="read")
async def wait_forever() -> None:
    """Wait."""
    await asyncio.Event().wait()


async def turn(model, session, gate=None, **options):
    """Run a turn, check its events by the grammar and return them."""
    events = await collect(AgentRuntime(model, gate or ScriptedGate()).run_turn("go", session, **options))
    check_grammar(events)
    return events


async def test_a_text_turn_matches_the_contract(agx_session, scripted_model):
    events = await turn(scripted_model([[say("hello there", pieces=3), usage(5, 2)]]), agx_session)
    assert outline(events) == ["turn_started", "round_start", "token", "final"]
    assert outline(events, state=True, usage=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "usage",
        "state:done",
        "final",
    ]
    assert_sequence(events, ["turn_started", "round_start", "token+", ("usage", {"input_tokens": 5}), "final:answer"])


async def test_a_turn_with_thinking_and_two_parallel_calls(agx_session, scripted_model):
    model = scripted_model(
        [
            [think("Two sums."), call("add", {"a": 1, "b": 2}, pieces=2), call("add", {"a": 3, "b": 4})],
            say("3 and 7"),
        ]
    )
    events = await turn(model, agx_session, tools=[add])
    assert outline(events, detail=True) == [
        "turn_started",
        "round_start",
        "thinking",
        "tool_call_delta",
        "tool_call:add",
        "tool_call:add",
        "tool_result:ok",
        "tool_result:ok",
        "round_start",
        "token",
        "final:answer",
    ]
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["3", "7"]


async def test_an_approved_call_runs(agx_session, scripted_model, scripted_gate):
    gate = scripted_gate(True)
    model = scripted_model([call("launch", {"target": "a kite"}), say("done")])
    events = await turn(model, agx_session, gate, tools=[launch])
    assert_sequence(
        events,
        [
            "turn_started",
            "round_start",
            "tool_call_delta*",
            "tool_call:launch",
            ("confirm_required", {"context": {"tool": "launch", "arguments": {"target": "a kite"}}}),
            ("confirm_response:approved", {"by": "user"}),
            ("tool_result:ok", {"result": "launched a kite"}),
            "round_start",
            "token+",
            "final",
        ],
    )
    assert [request.context["tool"] for request in gate.requests] == ["launch"]


@pytest.mark.parametrize("answer", [False, RuntimeError("the gate broke")])
async def test_a_denied_call_does_not_run(agx_session, scripted_model, scripted_gate, answer):
    model = scripted_model([call("launch", {"target": "a kite"}), say("all right")])
    events = await turn(model, agx_session, scripted_gate(answer), tools=[launch])
    assert_sequence(events, ["...", "confirm_required", "confirm_response:denied", "tool_result:denied", "..."])


async def test_unknown_tools_and_bad_arguments_get_error_results(agx_session, scripted_model):
    model = scripted_model([[call("nope"), call("add", {"a": 1}), call("add", '{"a": 1')], say("sorry")])
    events = await turn(model, agx_session, tools=[add, launch])
    assert_sequence(
        events,
        [
            "...",
            "tool_result:unknown_tool",
            "tool_result:invalid_arguments",
            "tool_result:invalid_arguments|tool_result:ok",
            "...",
            "final",
        ],
    )


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        ([say("half an ans"), cut()], "error:provider.truncated"),
        ([say("half"), finish("length")], "final:partial"),
        ([say("half"), finish("content_filter")], "error:provider.content_filter"),
        (fail(ModelError("no key", code="provider.auth", status=401)), "error:provider.auth"),
        ([say("half"), fail(ModelError("lost", code="provider.transport"))], "error:provider.transport"),
        ([call("add", {"a": 1, "b": 2}), cut()], "error:provider.truncated"),
    ],
)
async def test_a_failed_reply_ends_the_turn_with_its_error_code(agx_session, scripted_model, reply, ending):
    events = await turn(scripted_model([reply]), agx_session, tools=[add])
    assert outline(events, detail=True)[-1] == ending


@pytest.mark.parametrize(
    ("reply", "ending"),
    [
        (hang(), "error:timeout.first_chunk"),
        ([say("some words", pieces=4), stall_after(2)], "error:timeout.heartbeat"),
    ],
)
@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME])
async def test_silence_ends_the_turn_with_the_timeout_that_expired(agx_session, reply, ending):
    with ScriptedModel([reply]) as model:
        runtime = AgentRuntime(model, ScriptedGate(), clock=LoopClock())
        events = await collect(runtime.run_turn("go", agx_session))
    check_grammar(events)
    assert outline(events, detail=True)[-1] == ending
    assert model.open_streams == 0


@pytest.mark.parametrize("script", [hang(), [say("a few words", pieces=3), hang()], call("wait_forever")])
async def test_a_stopped_turn_follows_the_grammar(agx_session, script):
    stop = StopSignal()
    model = ScriptedModel([script])
    events = []
    async for event in AgentRuntime(model).run_turn("go", agx_session, stop, tools=[wait_forever]):
        events.append(event)
        if event.type in {"token", "tool_call"} or (event.type == "state" and script == hang()):
            stop.set()
    check_grammar(events)
    assert outline(events, detail=True)[-1] == "error:stopped"
    assert model.open_streams == 0


async def test_a_turn_without_rounds_left_ends(agx_session):
    model = ScriptedModel([call("add", {"a": n, "b": n}) for n in range(3)])
    runtime = AgentRuntime(model, max_tool_rounds=3)
    events = await collect(runtime.run_turn("go", agx_session, tools=[add]))
    check_grammar(events)
    assert outline(events, detail=True)[-1] == "error:max_rounds"


async def test_a_paused_sub_agent_is_a_terminal_event_too(agx_session):
    runtime = AgentRuntime(ScriptedModel([call("add", {"a": 1, "b": 2})]), max_tool_rounds=1)
    events = await collect(runtime.run_turn("go", agx_session, tools=[add], agent_id="scout"))
    check_grammar(events)
    assert outline(events)[-1] == "subagent_paused"
