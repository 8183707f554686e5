"""A read-only call whose result was unchanged waits before it is repeated, and longer each time."""

from __future__ import annotations

import asyncio

import pytest

from agenticx import builtin_tools
from agenticx.runtime import StopSignal
from agenticx.testing import call
from agenticx.tools import tool
from tests.support.jumping_clock import LoopClock

pytestmark = pytest.mark.anyio


def job(states):
    """Return a tool that returns one state after the other, and the list of the times of its calls."""
    remaining, asked = iter(states), []

    @tool(risk="read", timeout=0.5)
    async def job_status(id: int = 1) -> str:
        """Say how the job stands."""
        asked.append(LoopClock().monotonic())
        return next(remaining)

    return job_status, asked


def waits(run):
    """Return the (limit, elapsed) of each wait that was reported."""
    shown = [event.data for event in run.events_of("stall")]
    assert all((data["phase"], data["action"]) == ("tool", "waiting") for data in shown)
    return [(data["limit_seconds"], data["elapsed_seconds"]) for data in shown]


async def test_an_unchanged_read_is_repeated_after_one_two_four_and_then_eight_seconds(play):
    status, asked = job([*["queued"] * 7, "done"])
    run = await play([*[call("job_status")] * 8, "ok"], tools=[status])

    assert asked == pytest.approx([0, 0, 1, 3, 7, 15, 23, 31])
    assert waits(run) == [(1, 0), (2, 0), (4, 0), (8, 0), (8, 0), (8, 0)]
    again = ["round_start", "tool_call_delta", "tool_call:job_status", "stall:tool", "tool_result:ok"]
    assert run.outline[9:14] == again
    assert {outcome for _, outcome, _ in run.results} == {"ok"}, "the wait is no part of the tool's own time"


async def test_after_a_changed_result_nothing_waits_and_the_next_wait_is_one_second(play):
    status, asked = job(["queued", "queued", "queued", "10 %", "20 %", "20 %", "done"])
    await play([*[call("job_status")] * 7, "ok"], tools=[status])

    assert asked == pytest.approx([0, 0, 1, 3, 3, 3, 4])


async def test_the_time_since_the_last_result_counts(play):
    status, asked = job(["pending"] * 4)

    @tool(risk="read")
    async def think() -> str:
        """Take a moment and a half."""
        await asyncio.sleep(1.5)
        return f"thought at {LoopClock().monotonic()}"

    script = [*[call("job_status"), call("think")] * 3, call("job_status"), "ok"]
    run = await play(script, tools=[status, think])

    assert asked == pytest.approx([0, 1.5, 3, 5])
    assert waits(run) == [(2, 1.5)]


async def test_other_arguments_and_equal_calls_within_one_round_do_not_wait(play):
    status, asked = job(["pending"] * 5)
    first, second = call("job_status", {"id": 1}), call("job_status", {"id": 2})
    run = await play([[first, first], second, first, first, "ok"], tools=[status])

    assert asked == pytest.approx([0, 0, 0, 0, 1])
    assert waits(run) == [(1, 0)]


async def test_a_call_with_side_effects_is_not_delayed(play):
    @tool(risk="read", read_only=False)
    def submit() -> str:
        """Submit."""
        return "pending"

    run = await play([*[call("submit")] * 3, "ok"], tools=[submit])

    assert run.events_of("stall") == []


async def test_a_read_only_command_is_delayed_too(play):
    (play.workspace / "job.state").write_text("queued\n")
    look = call("bash_exec", {"command": "cat job.state"})
    run = await play([look, look, look, "ok"], tools=builtin_tools())

    assert [result for _, _, result in run.results] == ["queued\n[exit code 0]"] * 3
    assert [limit for limit, _ in waits(run)] == [1]


async def test_the_stop_button_ends_the_wait(play):
    status, asked = job(["queued"] * 2)
    stop, times = StopSignal(), []

    def press(event):
        if event.type == "stall":
            asyncio.get_running_loop().call_later(0.5, stop.set)
        times.append(LoopClock().monotonic())

    run = await play([call("job_status")] * 3, tools=[status], stop=stop, on=press)

    assert run.outline[-3:] == ["stall:tool", "tool_result:cancelled", "error:stopped"]
    assert times[-1] - 0.5 < 0.2
    assert asked == [0, 0]


async def test_a_read_that_stays_unchanged_is_a_loop_after_twenty_four_rounds(play):
    status, asked = job(["running"] * 24)
    run = await play([call("job_status")] * 24, tools=[status], max_tool_rounds=30)

    assert [event.data["code"] for event in run.events_of("error")] == ["loop_warning", "loop_detected"]
    assert len(asked) == 24
