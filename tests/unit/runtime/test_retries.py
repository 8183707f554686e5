"""Retries and fallbacks of model calls: reported, bounded, and only before anything was shown."""

from __future__ import annotations

import pytest

from agenticx.errors import ModelError
from agenticx.llms import Finished, RetryingModel, RetryPolicy, Usage, UsageDelta
from agenticx.runtime import StopSignal
from agenticx.testing import ScriptedModel, fail, hang, pause, raw, say, usage
from tests.support.histories import conversation
from tests.support.jumping_clock import LoopClock

pytestmark = [pytest.mark.anyio, pytest.mark.promise("C5")]

DOWN = ModelError("down", code="provider.overloaded", retryable=True)
CLOCKS = {
    "llm_first_feedback_seconds": 60,
    "llm_invoke_timeout_seconds": 6,
    "llm_heartbeat_timeout_seconds": 6,
    "llm_hard_timeout_seconds": 20,
}
CLOCK = LoopClock()
QUICK = RetryPolicy(shortest_wait=1, longest_wait=1)


def retrying(*scripts, policy=QUICK):
    first, *others = (ScriptedModel(script, name=f"model {n}", clock=CLOCK) for n, script in enumerate(scripts, 1))
    return RetryingModel(first, others, policy, CLOCK), [first, *others]


def stalls(run):
    return [(event.data["phase"], event.data["action"]) for event in run.events_of("stall")]


async def test_a_call_that_failed_before_its_first_delta_is_made_again(play):
    model, [first] = retrying([DOWN, DOWN, say("Hello.", pieces=2)])
    run = await play(model, settings=CLOCKS)

    assert run.outline == [
        "turn_started",
        "round_start",
        "stall:first_chunk",
        "stall:first_chunk",
        "token",
        "final:answer",
    ]
    stall = dict(run.events_of("stall")[0].data)
    assert stall.pop("retry_at").endswith("Z")
    assert stall.pop("elapsed_seconds") == pytest.approx(0)
    assert (stall.pop("reason"), stall.pop("model")) == (str(DOWN), "model 1")
    assert stall == {"phase": "first_chunk", "limit_seconds": 6, "action": "retrying", "code": DOWN.code}
    assert run.rows == [("user", "go"), ("assistant", "Hello.")]
    first.assert_done()


async def test_after_three_attempts_the_error_is_final(play):
    model, [first] = retrying([DOWN, DOWN, DOWN])
    run = await play(model, settings=CLOCKS)

    assert run.outline[2:] == ["stall:first_chunk", "stall:first_chunk", "error:provider.overloaded"]
    first.assert_done()


async def test_an_error_that_another_attempt_cannot_help_is_not_retried(play):
    model, [first] = retrying([ModelError("no key", code="provider.auth")])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "error:provider.auth"]
    first.assert_done()


async def test_no_call_is_retried_after_the_first_delta(play):
    model, models = retrying([[say("Hel"), fail(DOWN)]], ["never asked"])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "token", "error:provider.overloaded"]
    assert run.rows == [("user", "go"), ("partial", "Hel")]
    assert models[1].requests == []


async def test_a_fallback_takes_over_and_its_usage_is_reported_under_its_own_name(play):
    model, models = retrying([ModelError("no key", code="provider.auth")], [[say("Hi."), usage(3, 1)]])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "stall:first_chunk", "token", "final:answer"]
    assert [(event.data["reason"], event.data["model"]) for event in run.events_of("stall")] == [("no key", "model 2")]
    assert [event.data["model"] for event in run.events_of("usage")] == ["model 2"]
    assert [len(model.requests) for model in models] == [1, 1]


async def test_a_silent_model_is_replaced_by_its_fallback_and_not_called_again(play):
    model, models = retrying([hang()], [[pause(3), say("Hi.")]])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "stall:first_chunk", "token", "final:answer"]
    [stall] = [event.data for event in run.events_of("stall")]
    assert stall["elapsed_seconds"] == pytest.approx(6)
    assert (stall["reason"], stall["model"]) == ("model 1 sent nothing within 6 s", "model 2")
    assert [model.open_streams for model in models] == [0, 0]


async def test_a_silent_model_without_a_fallback_runs_into_its_clock(play):
    model, _ = retrying([hang()])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "stall:first_chunk", "error:timeout.first_chunk"]
    assert stalls(run) == [("first_chunk", "failed")]


async def test_the_first_clock_starts_anew_with_each_attempt_and_the_hard_one_does_not(play):
    late = [pause(5), fail(DOWN)]
    model, _ = retrying([late, late, late, late], policy=RetryPolicy(attempts=9, shortest_wait=3, longest_wait=3))
    run = await play(model, settings=CLOCKS)

    assert stalls(run) == [("first_chunk", "retrying")] * 2 + [("hard", "failed")]
    assert run.outline[-1] == "error:timeout.hard"
    assert run.events_of("stall")[-1].data["elapsed_seconds"] == pytest.approx(20)


@pytest.mark.parametrize(("asked", "waits"), [(2.0, True), (61.0, False)])
async def test_retry_after_is_honoured_up_to_a_ceiling(play, asked, waits):
    busy = ModelError("busy", code="provider.rate_limited", retryable=True, retry_after=asked)
    model, [first] = retrying([busy, "Hi."])
    started = CLOCK.monotonic()
    run = await play(model, settings=CLOCKS)

    assert run.outline[-1] == ("final:answer" if waits else "error:provider.rate_limited")
    assert CLOCK.monotonic() - started == pytest.approx(2 if waits else 0)
    assert len(first.requests) == 1 + waits


@pytest.mark.promise("C8")
async def test_a_stop_ends_the_wait_at_once(play):
    model, [first] = retrying([DOWN], policy=RetryPolicy(shortest_wait=100, longest_wait=100))
    stop, times = StopSignal(), []

    def on(event):
        if event.type == "stall":
            times.append(CLOCK.monotonic())
            stop.set()
        elif event.terminal:
            times.append(CLOCK.monotonic())

    run = await play(model, settings={}, stop=stop, on=on)

    assert run.outline == ["turn_started", "round_start", "stall:first_chunk", "error:stopped"]
    assert times[1] == times[0]
    first.assert_done()


def usages(run):
    all_data = [event.data for event in run.events_of("usage")]
    return [(data["model"], data["input_tokens"], data["output_tokens"]) for data in all_data]


async def test_the_counts_of_a_failed_attempt_are_a_usage_of_their_own_before_the_retry(play):
    model, _ = retrying([[usage(1_000, 1), fail(DOWN)], [say("Hello."), usage(100, 10)]])
    run = await play(model, settings=CLOCKS)

    shown = [event.type.value for event in run.events if event.type in ("usage", "stall", "token", "final")]
    assert shown == ["usage", "stall", "token", "usage", "final"]
    assert usages(run) == [("model 1", 1_000, 1), ("model 1", 100, 10)]
    assert (run.terminal["usage"]["input_tokens"], run.terminal["usage"]["output_tokens"]) == (1_100, 11)


async def test_the_counts_of_the_last_attempt_are_reported_before_its_error(play):
    model, _ = retrying([[usage(7, 1), fail(DOWN)], [usage(8), fail(DOWN)]], policy=RetryPolicy(attempts=2))
    run = await play(model, settings=CLOCKS)

    assert run.outline[2:] == ["stall:first_chunk", "error:provider.overloaded"]
    assert usages(run) == [("model 1", 7, 1), ("model 1", 8, None)]


async def test_the_counts_of_a_model_have_its_name_when_a_fallback_takes_over(play):
    failed = ModelError("no key", code="provider.auth")
    model, _ = retrying([[usage(5, 1), fail(failed)]], [[say("Hi."), usage(3, 1)]])
    run = await play(model, settings=CLOCKS)

    assert usages(run) == [("model 1", 5, 1), ("model 2", 3, 1)]


async def test_the_counts_of_a_model_that_sent_nothing_else_in_its_time_are_reported(play):
    model, _ = retrying([[usage(5), hang()]], [[say("Hi."), usage(3, 1)]])
    run = await play(model, settings=CLOCKS)

    assert run.outline == ["turn_started", "round_start", "stall:first_chunk", "token", "final:answer"]
    assert usages(run) == [("model 1", 5, None), ("model 2", 3, 1)]


async def test_a_finish_reason_of_failure_beside_the_counts_leaves_them_reported(play):
    model, _ = retrying([raw(UsageDelta(Usage(9, 2)), Finished("failed", "engine_overloaded")), "Hello."])
    run = await play(model, settings=CLOCKS)

    assert run.outline[2:] == ["stall:first_chunk", "token", "final:answer"]
    assert usages(run)[0] == ("model 1", 9, 2)


async def test_a_failed_attempt_of_a_summary_is_counted_beside_it(play):
    model, _ = retrying([[usage(1_000, 1), fail(DOWN)], [say("They asked 0 to 11."), usage(100, 9)], "Hi."])
    run = await play(model, settings=CLOCKS, session=play.session(messages=conversation()))

    assert usages(run)[:2] == [("model 1", 1_000, 1), ("model 1", 100, 9)]
    assert [event.data["tokens_spent"] for event in run.events_of("compaction")] == [1_110]
