"""Turns that run out of rounds or time, and their terminal events."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.errors import SessionBusy
from agenticx.runtime import AgentHook, AgentRuntime, HookRegistry, Session, StopSignal, TurnContext
from agenticx.testing import ScriptedModel, call, hang, pause, say
from agenticx.tools import tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]

counter = iter(range(10**9))


@tool(risk="read")
def tick() -> int:
    """Count."""
    return next(counter)


LONG = {"compaction_threshold_messages": 1000}
ROUND = ["round_start", "tool_call_delta", "tool_call:tick", "tool_result:ok"]
OUT = "[reminder] You are out of rounds or time. Without calling tools, say what you found and what is missing."


async def test_a_meta_agent_out_of_rounds_fails(play):
    run = await play([call("tick")] * 3, tools=[tick], max_tool_rounds=3)

    assert run.outline == ["turn_started", *ROUND * 3, "error:max_rounds"]
    assert [event.data for event in run.events_of("round_start")] == [{"round": n, "max_rounds": 3} for n in (1, 2, 3)]
    assert run.terminal == {
        "text": "The turn used all of its 3 rounds without an answer.",
        "code": "max_rounds",
        "fatal": True,
    }


@pytest.mark.parametrize(
    ("options", "settings", "rounds"),
    [({}, {}, 10), ({}, {"max_tool_rounds": 50}, 50), ({"max_tool_rounds": 3}, {"max_tool_rounds": 50}, 3)],
)
async def test_max_rounds_is_the_argument_else_the_setting_else_ten(play, options, settings, rounds):
    run = await play(["ok"], settings=settings, **options)

    assert [event.data["max_rounds"] for event in run.events_of("round_start")] == [rounds]


async def test_a_runtime_without_settings_reads_max_tool_rounds_from_the_environment(play, monkeypatch, tmp_path):
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    monkeypatch.setenv("AGX_MAX_TOOL_ROUNDS", "50")
    turn = AgentRuntime(ScriptedModel(["ok"])).run_turn("Go!", Session())

    assert [event.data["max_rounds"] async for event in turn if event.type == "round_start"] == [50]


async def test_other_agents_out_of_rounds_pause_with_a_checkpoint(play):
    run = await play([[say("Looking."), call("tick")]] * 2, tools=[tick], max_tool_rounds=2, agent_id="researcher")

    assert run.outline[-1] == "subagent_paused"
    assert {event.agent_id for event in run.events} == {"researcher"}
    assert run.terminal == {
        "round": 2,
        "max_rounds": 2,
        "parent_agent_id": None,
        "depth": 0,
        "checkpoint": {"messages": 5, "last_text": "Looking.", "todos": []},
    }


async def test_other_agents_report_a_checkpoint_every_eight_rounds(play):
    run = await play([call("tick")] * 17, tools=[tick], max_tool_rounds=17, agent_id="researcher", settings=LONG)

    assert run.outline == [
        "turn_started",
        *ROUND * 8,
        "subagent_checkpoint",
        *ROUND * 8,
        "subagent_checkpoint",
        *ROUND,
        "subagent_paused",
    ]
    assert [event.data["round"] for event in run.events_of("subagent_checkpoint")] == [8, 16]


async def test_a_meta_agent_has_no_checkpoints(play):
    run = await play([*[call("tick")] * 8, "ok"], tools=[tick], max_tool_rounds=9)

    assert run.outline == ["turn_started", *ROUND * 8, "round_start", "token", "final:answer"]


async def test_on_exhausted_partial_requests_an_answer_without_tools(play):
    run = await play(
        [call("tick"), [say("I found 1; the rest is "), say("missing.")]],
        tools=[tick],
        max_tool_rounds=1,
        settings={"on_exhausted": "partial"},
    )

    assert run.outline == ["turn_started", *ROUND, "token", "final:partial"]
    assert run.terminal["text"] == "I found 1; the rest is missing."
    assert run.model.requests[1].tools == ()
    assert run.model.requests[1].tool_choice == "none"
    assert run.rows[-2:] == [("reminder", OUT), ("assistant", "I found 1; the rest is missing.")]


async def test_calls_in_the_partial_answer_are_not_run_and_its_text_stays_as_it_was_streamed(play):
    wrapped = 'So far 1.\n<tool_code>{"name": "tick", "arguments": {}}</tool_code>'
    run = await play(
        [call("tick"), [say(wrapped), call("tick")]],
        tools=[tick],
        max_tool_rounds=1,
        settings={"on_exhausted": "partial"},
    )

    assert run.outline == ["turn_started", *ROUND, "token", "tool_call_delta", "final:partial"]
    assert run.terminal["text"] == wrapped


async def test_other_agents_pause_also_where_partial_is_set(play):
    run = await play(
        [call("tick")], tools=[tick], max_tool_rounds=1, agent_id="sub", settings={"on_exhausted": "partial"}
    )

    assert run.outline[-1] == "subagent_paused"


async def test_on_exhausted_summary_answers_with_the_results_of_the_last_round(play):
    run = await play(
        [call("tick"), [call("tick"), call("tick")]],
        tools=[tick],
        context=TurnContext(max_rounds=2, on_exhausted="summary"),
    )

    assert run.outline[-2:] == ["token", "final:partial"]
    assert run.terminal["text"] == "\n".join(m.content for m in run.session.messages[-2:])
    assert len(run.model.requests) == 2


async def test_on_exhausted_answer_is_a_round_without_tools(play):
    context = TurnContext(max_rounds=1, on_exhausted="answer")
    run = await play([call("tick"), "It is 1."], tools=[tick], context=context)

    assert run.outline == ["turn_started", *ROUND, "round_start", "token", "final:answer"]
    assert [len(request.tools) for request in run.model.requests] == [1, 0]


async def test_a_turn_whose_model_calls_tools_instead_of_its_last_answer_fails(play):
    context = TurnContext(max_rounds=1, on_exhausted="answer")
    run = await play([call("tick"), call("tick")], tools=[tick], context=context)

    assert run.terminal["code"] == "max_rounds"


async def test_a_turn_over_its_time_fails(play):
    run = await play([hang()], settings={"turn_timeout_seconds": 3})

    assert run.outline == ["turn_started", "round_start", "error:timeout.turn"]
    assert run.terminal == {"text": "the turn exceeded its time limit", "code": "timeout.turn", "fatal": True}


async def test_a_turn_over_its_time_answers_its_open_calls(play):
    @tool(risk="read")
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    run = await play(
        [[call("tick"), call("forever")]],
        tools=[tick, forever],
        settings={"turn_timeout_seconds": 1},
    )

    assert run.outline[3:] == [
        "tool_call:tick",
        "tool_call:forever",
        "tool_result:ok",
        "tool_result:cancelled",
        "error:timeout.turn",
    ]


async def test_a_turn_over_its_time_gives_a_partial_answer_if_so_configured(play):
    run = await play(
        [[say("I was abou"), hang()], "Nothing yet."],
        settings={"turn_timeout_seconds": 3, "on_exhausted": "partial"},
    )

    assert run.outline == ["turn_started", "round_start", "token", "final:partial"]
    assert run.rows == [("user", "go"), ("partial", "I was abou"), ("reminder", OUT), ("assistant", "Nothing yet.")]


async def test_the_partial_answer_of_a_turn_over_its_time_has_as_long_again_and_no_longer(play):
    run = await play(
        [[say("I was abou"), hang()], [say("So far"), hang()]],
        settings={"turn_timeout_seconds": 3, "on_exhausted": "partial"},
    )

    assert run.outline == ["turn_started", "round_start", "token", "error:timeout.turn"]
    assert run.rows[-2:] == [("reminder", OUT), ("partial", "So far")]


async def test_a_turn_within_its_time_limit_is_not_affected(play):
    run = await play([[pause(1), say("ok")]], settings={"turn_timeout_seconds": 3})

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]


async def test_a_stop_during_the_partial_answer_is_a_stop(play):
    stop = StopSignal()
    run = await play(
        [call("tick"), [say("So far"), hang()]],
        tools=[tick],
        max_tool_rounds=1,
        settings={"on_exhausted": "partial"},
        stop=stop,
        on=lambda event: stop.set() if event.type == "token" else None,
    )

    assert run.outline == ["turn_started", *ROUND, "token", "error:stopped"]


async def test_a_stop_at_the_moment_of_the_turns_time_out_is_not_lost(play):
    stop = StopSignal()

    @tool(risk="read")
    async def stubborn() -> None:
        """End late."""
        try:
            await asyncio.Event().wait()
        finally:
            stop.set()
            await asyncio.sleep(0.01)

    run = await play(
        [call("stubborn")],
        tools=[stubborn],
        settings={"turn_timeout_seconds": 1, "on_exhausted": "partial"},
        stop=stop,
    )

    assert run.outline[-2:] == ["tool_result:cancelled", "error:stopped"]


async def test_on_agent_end_is_called_for_every_ending(play):
    endings: list[tuple[str, str]] = []

    class Watch(AgentHook):
        async def on_agent_end(self, reason, text, context):
            endings.append((reason, text))

    hooks = HookRegistry([Watch()])
    stopped = StopSignal()
    stopped.set()
    partial = {"on_exhausted": "partial"}
    await play(["Yes."], hooks=hooks)
    await play([call("tick")], tools=[tick], max_tool_rounds=1, hooks=hooks)
    await play([call("tick")], tools=[tick], max_tool_rounds=1, hooks=hooks, agent_id="sub")
    await play([call("tick"), "So far."], tools=[tick], max_tool_rounds=1, hooks=hooks, settings=partial)
    await play(ScriptedModel([]), stop=stopped, hooks=hooks)

    assert endings == [("answer", "Yes."), ("max_rounds", ""), ("paused", ""), ("partial", "So far."), ("stopped", "")]


@pytest.mark.promise("D1")
async def test_a_second_turn_on_a_busy_session_is_refused_and_writes_nothing(play):
    session, refused = play.session(), []

    @tool(risk="read")
    async def intruded() -> str:
        """Let another turn try."""
        runtime = play.runtime(ScriptedModel(["no"]))
        try:
            async for _ in runtime.run_turn("me too", session):
                pass
        except SessionBusy as exc:
            refused.append(str(exc))
        return "tried"

    run = await play([call("intruded"), "ok"], tools=[intruded], session=session)
    again = await play(["fine"], session=session)

    assert refused == [f"session {session.id!r} already runs a turn; wait for its terminal event"]
    assert [row[0] for row in run.rows] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert again.outline[-1] == "final:answer"
