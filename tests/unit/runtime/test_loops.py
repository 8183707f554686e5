"""A model that repeats itself is reminded, and then stopped."""

from __future__ import annotations

import pytest

from agenticx import builtin_tools
from agenticx.errors import ToolError
from agenticx.runtime import AutoApproveConfirmGate
from agenticx.testing import ScriptedGate, ScriptedModel, call
from agenticx.tools import ToolContext, tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read", read_only=False)
def same(n: int = 0) -> str:
    """Answer the same each time."""
    return f"same {n}"


ROUND = ["round_start", "tool_call_delta", "tool_call:same", "tool_result:ok"]
SHORT = {"loop_warning_threshold": 3, "loop_critical_threshold": 5}
LONG = {"compaction_threshold_messages": 1_000, "compaction_threshold_chars": 100_000_000}
REMEDY = "Try something else, or answer with what you have and say what is missing."


async def test_the_same_call_with_the_same_result_is_warned_of_at_four_and_ended_at_eight(play):
    run = await play([call("same")] * 8, tools=[same])

    assert run.outline == ["turn_started", *ROUND * 4, "error:loop_warning", *ROUND * 4, "error:loop_detected"]
    assert run.events_of("error")[0].data == {
        "text": "Loop warning: the same call gave the same result 4 times in a row.",
        "code": "loop_warning",
        "fatal": False,
        "detector": "generic_repeat",
    }
    assert run.terminal == {
        "text": "The turn was ended because the same call gave the same result 8 times in a row.",
        "code": "loop_detected",
        "fatal": True,
        "detector": "generic_repeat",
    }


async def test_the_reminder_is_sent_to_the_model_after_the_results(play):
    run = await play([[call("same"), call("same")], call("same"), call("same"), "ok"], tools=[same], **SHORT)

    reminder = ("reminder", f"[reminder] The same call gave the same result 3 times in a row. {REMEDY}")
    assert [row[0] for row in run.rows] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "reminder",
        "assistant",
    ]
    assert run.rows[8] == reminder
    assert run.model.requests[3].messages[-1].content == reminder[1]


async def test_two_alternating_calls_are_ping_pong(play):
    calls = [call("same", {"n": n % 2}) for n in range(5)]
    run = await play(calls, tools=[same], **SHORT)

    assert run.outline == ["turn_started", *ROUND * 3, "error:loop_warning", *ROUND * 2, "error:loop_detected"]
    assert [event.data["detector"] for event in run.events_of("error")] == ["ping_pong", "ping_pong"]


async def test_repeated_calls_in_any_order_are_no_progress(play):
    order = [0, 1, 2, 0, 1, 2, 0, 1]
    run = await play([call("same", {"n": n}) for n in order], tools=[same], **SHORT)

    assert run.outline == ["turn_started", *ROUND * 6, "error:loop_warning", *ROUND * 2, "error:loop_detected"]
    assert [event.data["detector"] for event in run.events_of("error")] == ["no_progress", "no_progress"]


async def test_the_same_call_with_a_new_result_is_progress(play):
    counter = iter(range(100))

    @tool(risk="read")
    def poll() -> int:
        """Poll."""
        return next(counter)

    run = await play([*[call("poll")] * 9, "done"], tools=[poll])

    assert run.events_of("error") == []
    assert run.terminal["text"] == "done"


async def test_a_streak_that_breaks_does_not_count(play):
    order = [0, 0, 0, 1, 2, 2, 2, 3]
    run = await play([*[call("same", {"n": n}) for n in order], "done"], tools=[same], **SHORT)

    assert [event.data["code"] for event in run.events_of("error")] == ["loop_warning", "loop_warning"]
    assert run.outline[-1] == "final:answer"


async def test_repeated_refused_calls_are_a_loop(play):
    run = await play([call("nope")] * 5, tools=[same], **SHORT)

    assert run.outline[-1] == "error:loop_detected"


async def test_calls_within_one_round_are_no_loop(play):
    @tool(risk="read")
    def missing(n: int) -> str:
        """Fail."""
        raise ToolError("there is no such file")

    alike = [[call("same") for _ in range(9)], [call("missing", {"n": n}) for n in range(9)], "done"]
    run = await play(alike, tools=[same, missing])

    assert run.events_of("error") == []
    assert run.terminal["text"] == "done"


async def test_eight_denials_by_the_user_are_no_loop(play):
    @tool
    def launch() -> str:
        """Launch."""
        return "launched"

    run = await play([*[call("launch")] * 9, "I give up"], tools=[launch], gate=ScriptedGate(*[False] * 9))

    assert {outcome for _, outcome, _ in run.results} == {"denied"}
    assert run.events_of("error") == []


async def test_different_searches_without_a_match_are_a_loop(play):
    @tool(risk="read")
    def search(query: str) -> str:
        """Find nothing."""
        return "[no match in 12 files]"

    run = await play([call("search", {"query": f"word {n}"}) for n in range(8)], tools=[search])

    assert [event.data["code"] for event in run.events_of("error")] == ["loop_warning", "loop_detected"]
    assert run.terminal["detector"] == "no_progress"


@pytest.mark.ci_lane
async def test_shell_searches_without_results_are_a_loop_and_silent_commands_are_not(play):
    auto = play.session(permission_mode="auto")
    find = [call("bash_exec", {"command": f"find . -name {word} | head"}) for word in "abcdefgh"]
    run = await play(find, tools=builtin_tools(), session=auto, gate=AutoApproveConfirmGate())
    assert [event.data["code"] for event in run.events_of("error")] == ["loop_warning", "loop_detected"]

    make = [call("bash_exec", {"command": f"mkdir {word}"}) for word in "abcdefghijkl"]
    auto = play.session(permission_mode="auto")
    run = await play(
        [*make, "done"], tools=builtin_tools(), session=auto, gate=AutoApproveConfirmGate(), max_tool_rounds=20
    )
    assert run.events_of("error") == []


async def test_rounds_with_large_results_are_detected_too(play):
    @tool(risk="read", read_only=False)
    def huge() -> str:
        """Answer at length."""
        return "x" * 300_000

    run = await play([call("huge")] * 8, tools=[huge], settings={"tool_result_chars": 1_000_000, **LONG})

    assert run.outline[-1] == "error:loop_detected"


async def test_notes_to_dos_and_artifacts_are_progress(play):
    @tool(risk="read", read_only=False)
    def keep(where: str, n: int, context: ToolContext) -> str:
        """Keep something, and say no more than that."""
        match where:
            case "note":
                context.state.scratchpad["n"] = f"{n}"
            case "to-do":
                context.state.todos = [{"text": f"{n}", "status": "pending"}]
            case _:
                context.emit("artifact", {"path": "a.html", "content": f"{n}", "final": True})
        return "nothing found"

    script = [call("keep", {"where": where, "n": n}) for where in ("note", "to-do", "artifact") for n in range(6)]
    run = await play([*script, "done"], tools=[keep], max_tool_rounds=20)
    assert run.events_of("error") == []

    run = await play([call("keep", {"where": "note", "n": 1})] * 9, tools=[keep])
    assert run.outline[-1] == "error:loop_detected"


async def test_counting_restarts_with_each_turn(play):
    session = play.session()
    for _ in range(3):
        run = await play([call("same"), call("same"), "ok"], tools=[same], session=session, **SHORT)
        assert run.events_of("error") == []


async def test_bad_thresholds_are_refused_at_once(play):
    with pytest.raises(ValueError, match="2 <= warning <= critical"):
        play.runtime(ScriptedModel(), loop_warning_threshold=5, loop_critical_threshold=4)
