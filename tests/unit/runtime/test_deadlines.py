"""The four clocks of a model call: which one fires, when, and which events never fire any."""

from __future__ import annotations

import asyncio
import time
from itertools import repeat

import pytest

from agenticx.clocks import ScaledClock
from agenticx.llms import Finished, TextDelta, ThinkingDelta, ToolCallDelta, Usage, UsageDelta
from agenticx.runtime import StopSignal
from agenticx.testing import ScriptedModel, call, hang, pause, raw, say, think
from agenticx.tools import tool
from tests.support.timeouts import PATIENCE
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.served import CHAT

pytestmark = [pytest.mark.anyio, pytest.mark.promise("C5")]


CLOCKS = {
    "llm_first_feedback_seconds": 2,
    "llm_invoke_timeout_seconds": 6,
    "llm_heartbeat_timeout_seconds": 4,
    "llm_hard_timeout_seconds": 20,
}


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stalls(run):
    return [(e.data["phase"], e.data["action"], e.data["limit_seconds"]) for e in run.events_of("stall")]


async def test_a_silent_model_causes_a_waiting_token_and_then_expires_the_first_chunk_clock(play):
    run = await play([hang()], settings=CLOCKS)

    assert run.outline == [
        "turn_started",
        "round_start",
        "token:waiting",
        "stall:first_chunk",
        "error:timeout.first_chunk",
    ]
    waiting, stall = dict(run.events_of("token")[0].data), dict(run.events_of("stall")[0].data)
    assert waiting.pop("elapsed_seconds") == pytest.approx(2)
    assert waiting == {"text": "", "message_id": waiting["message_id"], "offset": 0, "waiting": True}
    assert stall.pop("elapsed_seconds") == pytest.approx(6)
    assert stall == {"phase": "first_chunk", "limit_seconds": 6, "action": "failed"}
    assert run.terminal == {
        "text": "the model sent nothing within 6 s (AGX_LLM_INVOKE_TIMEOUT_SECONDS)",
        "code": "timeout.first_chunk",
        "fatal": True,
        "retryable": True,
    }
    assert len(run.model.requests) == 1, "an expired clock is not retried"


async def test_silence_after_the_first_delta_is_reported_and_then_expires_the_heartbeat(play):
    run = await play([[say("Well"), hang()]], settings=CLOCKS)

    assert run.outline == [
        "turn_started",
        "round_start",
        "token",
        "stall:heartbeat",
        "stall:heartbeat",
        "error:timeout.heartbeat",
    ]
    assert stalls(run) == [("heartbeat", "waiting", 4), ("heartbeat", "failed", 4)]
    assert [e.data["elapsed_seconds"] for e in run.events_of("stall")] == pytest.approx([2, 4])
    assert run.rows == [("user", "go"), ("partial", "Well")]


@pytest.mark.parametrize(
    "empty",
    [TextDelta(""), ThinkingDelta(""), ToolCallDelta(0), UsageDelta(Usage(1, 0))],
    ids=["text", "thinking", "call", "usage"],
)
async def test_deltas_that_add_nothing_are_no_progress(play, empty):
    first = call("add", "{", id="a") if isinstance(empty, ToolCallDelta) else say("Well")
    run = await play([[first, *[raw(empty), pause(0.5)] * 20]], settings=CLOCKS, tools=[add])

    assert run.outline[-1] == "error:timeout.heartbeat"
    assert run.events_of("stall")[-1].data["elapsed_seconds"] == pytest.approx(4)


async def test_empty_deltas_before_the_first_character_do_not_start_the_heartbeat(play):
    run = await play([[[raw(TextDelta("")), pause(0.5)] * 20]], settings=CLOCKS)

    assert run.outline[2:] == ["token:waiting", "stall:first_chunk", "error:timeout.first_chunk"]
    assert run.events_of("stall")[0].data["elapsed_seconds"] == pytest.approx(6)


@pytest.mark.parametrize(
    "piece",
    [say("x"), think("x"), raw(ToolCallDelta(0, "a", "add", " "))],
    ids=["text", "reasoning", "arguments"],
)
async def test_a_slow_stream_runs_until_the_hard_limit(play, piece):
    run = await play([[[piece, pause(1)] * 30]], settings=CLOCKS, tools=[add])

    assert stalls(run) == [("hard", "failed", 20)]
    assert run.events_of("stall")[0].data["elapsed_seconds"] == pytest.approx(20)
    assert run.outline[-1] == "error:timeout.hard"


async def test_a_stream_that_never_pauses_ends_at_the_hard_limit(play):
    class Endless:
        name, context_window = "endless", None

        async def stream(self, request):
            for_ever = time.monotonic() + PATIENCE
            while time.monotonic() < for_ever:
                yield [TextDelta("x")] * 64

    run = await play(Endless(), clock=ScaledClock(20), settings={**CLOCKS, "llm_hard_timeout_seconds": 2})

    assert stalls(run) == [("hard", "failed", 2)]
    assert run.events_of("stall")[0].data["elapsed_seconds"] >= 2
    assert run.outline[-1] == "error:timeout.hard"


@pytest.mark.promise("C8")
async def test_a_stream_that_never_pauses_is_stopped_between_two_batches(play):
    stop, tokens_behind_it = StopSignal(), 0

    def press(event):
        nonlocal tokens_behind_it
        tokens_behind_it += stop.is_set() and event.type == "token"
        if event.type == "token":
            stop.set()

    endless = chunk_server(lambda: repeat(CHAT.hi * 100))
    async with endless as server, CHAT.open_model(f"{server.base_url}/v1") as model:
        run = await play(model, stop=stop, on=press)

    assert run.outline[-1].startswith("error:stopped")
    assert tokens_behind_it < 2 * 512


async def test_a_slow_stream_that_ends_before_the_hard_limit_is_an_answer(play):
    run = await play([[[say("x"), pause(1)] * 15]], settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]


async def test_a_call_that_is_announced_is_progress_before_its_arguments(play):
    announced = [pause(5), raw(ToolCallDelta(0, "a", "add", "")), pause(3), raw(ToolCallDelta(0, arguments="{}"))]
    run = await play([announced, "ok"], settings=CLOCKS, tools=[add])

    assert stalls(run) == [("heartbeat", "waiting", 4)]
    assert run.outline[-1] == "final:answer"


async def test_each_model_call_has_clocks_and_a_waiting_token_of_its_own(play):
    slow = [pause(3), call("add", {"a": 1, "b": 2})]
    run = await play([slow, [pause(3), say("3")]], settings=CLOCKS, tools=[add])

    assert run.outline == [
        "turn_started",
        "round_start",
        "token:waiting",
        "tool_call_delta",
        "tool_call:add",
        "tool_result:ok",
        "round_start",
        "token:waiting",
        "token",
        "final:answer",
    ]
    assert run.events_of("token")[1].data["message_id"] == run.terminal["message_id"]


async def test_the_providers_own_time_out_is_longer_than_all_clocks(play):
    run = await play(["ok"], settings=CLOCKS)

    assert run.model.requests[0].timeout == 20 + 15


async def test_the_hard_clock_may_be_the_shortest(play):
    run = await play([hang()], settings={**CLOCKS, "llm_hard_timeout_seconds": 1})

    assert run.outline == ["turn_started", "round_start", "stall:hard", "error:timeout.hard"]
    assert run.events_of("stall")[0].data["elapsed_seconds"] == pytest.approx(1)


async def test_a_model_that_ignores_cancellation_does_not_block_the_turn(play):
    release, ended = asyncio.Event(), asyncio.Event()

    class Deaf(ScriptedModel):
        async def stream(self, request):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            yield (Finished("end", "stop"),)

    runtime = play.runtime(Deaf(), settings=CLOCKS)
    events = [event async for event in runtime.run_turn("go", play.session())]
    release.set()
    await ended.wait()

    assert events[-1].data["code"] == "timeout.first_chunk"
