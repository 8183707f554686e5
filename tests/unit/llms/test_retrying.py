"""Retries and fallbacks: only before the first delta, announced before each wait, limited in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms import Attempt, ModelRequest, Reply, RetryingModel, RetryPolicy, Usage, complete
from agenticx.runtime import AgentRuntime, Session, StopSignal
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, check_grammar, collect, cut, fail, finish, hang, outline, say, usage
from tests.support.jumping_clock import LoopClock

pytestmark = pytest.mark.anyio
CLOCK = LoopClock()
REQUEST = ModelRequest(messages=[], attempt_seconds=30)


def overloaded(retry_after: float | None = None, *, retryable: bool = True) -> ModelError:
    return ModelError("busy", code="provider.overloaded", retryable=retryable, retry_after=retry_after)


async def attempts(model: RetryingModel) -> list[Attempt]:
    """Return the attempts that a call yields."""
    attempts_made: list[Attempt] = []
    async for batch in model.stream(REQUEST):
        attempts_made.extend(delta for delta in batch if isinstance(delta, Attempt))
    return attempts_made


async def text_and_error_code(model: RetryingModel) -> tuple[str, str | None]:
    reply, error = await complete(model, REQUEST)
    assert isinstance(reply, Reply)
    return reply.text, error and error.code


async def test_a_model_is_called_three_times_with_waits_of_four_to_ten_seconds() -> None:
    with ScriptedModel([fail(overloaded()), fail(overloaded()), say("hello")]) as model:
        attempts_made = await attempts(RetryingModel(model, clock=CLOCK))
    assert [(one.model, one.reason, 4 <= one.wait_seconds <= 10) for one in attempts_made] == [
        ("scripted", "busy", True)
    ] * 2


async def test_the_third_failure_is_raised() -> None:
    with ScriptedModel([fail(overloaded())] * 3) as model:
        assert await text_and_error_code(RetryingModel(model, clock=CLOCK)) == ("", "provider.overloaded")


async def test_an_error_that_is_not_retryable_is_not_retried() -> None:
    with ScriptedModel([fail(ModelError("no such model", code="provider.bad_request"))]) as model:
        assert await text_and_error_code(RetryingModel(model, clock=CLOCK)) == ("", "provider.bad_request")


async def test_a_call_is_not_retried_after_its_first_delta() -> None:
    with ScriptedModel([[say("hel"), fail(overloaded())]]) as model:
        assert await text_and_error_code(RetryingModel(model, clock=CLOCK)) == ("hel", "provider.overloaded")


async def test_an_empty_reply_without_end_marker_is_retried() -> None:
    with ScriptedModel([cut(), say("hello")]) as model:
        assert await text_and_error_code(RetryingModel(model, clock=CLOCK)) == ("hello", None)


async def test_retry_after_is_respected_up_to_a_limit() -> None:
    policy = RetryPolicy(longest_retry_after=20)
    with ScriptedModel([fail(overloaded(20)), say("hello")]) as model:
        assert [one.wait_seconds for one in await attempts(RetryingModel(model, policy=policy, clock=CLOCK))] == [20]
    with ScriptedModel([fail(overloaded(21))]) as model:
        assert await text_and_error_code(RetryingModel(model, policy=policy, clock=CLOCK)) == (
            "",
            "provider.overloaded",
        )


async def test_a_fallback_takes_over_after_the_last_attempt_of_the_first_model() -> None:
    first = ScriptedModel([fail(ModelError("bad key", code="provider.auth"))], name="first")
    second = ScriptedModel([say("hello")], name="second")
    with first, second:
        attempts_made = await attempts(RetryingModel(first, [second], clock=CLOCK))
    assert attempts_made == [Attempt("first", bounded=True), Attempt("second", 0.0, "bad key", code="provider.auth")]


async def test_an_invalid_request_is_not_sent_to_the_fallback() -> None:
    first = ScriptedModel([fail(ModelError("too long", code="context_overflow"))])
    with first, ScriptedModel([]) as second:
        assert await text_and_error_code(RetryingModel(first, [second], clock=CLOCK)) == ("", "context_overflow")


async def test_a_silent_model_is_replaced_by_its_fallback_after_the_invoke_timeout() -> None:
    settings = load_settings({"llm_invoke_timeout_seconds": 20, "llm_first_feedback_seconds": 60}, environ={})
    first, second = ScriptedModel([hang()], name="first"), ScriptedModel([say("hello")], name="second")
    with first, second:
        model = RetryingModel(first, [second], clock=CLOCK)
        events = await collect(AgentRuntime(model, settings=settings, clock=CLOCK).run_turn("hi", Session()))
    check_grammar(events)
    assert outline(events) == ["turn_started", "round_start", "stall", "token", "final"]
    [stall] = [event.data for event in events if event.type == "stall"]
    assert (stall["phase"], stall["action"], stall["limit_seconds"]) == ("first_chunk", "retrying", 20)
    assert [event.data["model"] for event in events if event.type == "usage"] == ["second"]


async def test_the_invoke_timeout_ends_the_turn_at_the_last_model() -> None:
    settings = load_settings({"llm_invoke_timeout_seconds": 20, "llm_first_feedback_seconds": 60}, environ={})
    with ScriptedModel([hang()], name="first") as first, ScriptedModel([hang()], name="second") as second:
        model = RetryingModel(first, [second], clock=CLOCK)
        events = await collect(AgentRuntime(model, settings=settings, clock=CLOCK).run_turn("hi", Session()))
    assert outline(events, detail=True)[-2:] == ["stall:first_chunk", "error:timeout.first_chunk"]


async def test_every_wait_is_announced_by_a_stall_event() -> None:
    with ScriptedModel([fail(overloaded()), say("hello")]) as model:
        runtime = AgentRuntime(RetryingModel(model, clock=CLOCK), clock=CLOCK)
        events = await collect(runtime.run_turn("hi", Session()))
    check_grammar(events)
    assert outline(events) == ["turn_started", "round_start", "stall", "token", "final"]
    [stall] = [event.data for event in events if event.type == "stall"]
    assert stall["action"] == "retrying"
    assert stall["retry_at"].endswith("Z")


async def test_stop_ends_a_wait_at_once() -> None:
    stop = StopSignal()
    with ScriptedModel([fail(overloaded())]) as model:
        events: list[Any] = []
        async for event in AgentRuntime(RetryingModel(model, clock=CLOCK), clock=CLOCK).run_turn("hi", Session(), stop):
            events.append(event)
            if event.type == "stall":
                stopped = CLOCK.monotonic()
                stop.set()
        assert CLOCK.monotonic() == stopped
    assert outline(events, detail=True)[-1] == "error:stopped"


async def test_a_retry_after_over_the_limit_ends_the_turn_with_retry_at() -> None:
    with ScriptedModel([fail(overloaded(3600))]) as model:
        events = await collect(AgentRuntime(RetryingModel(model, clock=CLOCK), clock=CLOCK).run_turn("hi", Session()))
    assert events[-1].data["code"] == "provider.overloaded"
    assert events[-1].data["retryable"] is True
    assert "retry_at" in events[-1].data


async def test_closing_the_stream_early_closes_the_model_s_stream() -> None:
    model = ScriptedModel([[say("a"), hang()]])
    source: Any = RetryingModel(model, clock=CLOCK).stream(REQUEST)
    await anext(source)
    assert model.open_streams == 1
    await source.aclose()
    await asyncio.sleep(0)
    assert model.open_streams == 0


def test_waits_grow_and_stay_within_their_limits() -> None:
    policy = RetryPolicy(attempts=2_000)
    for failed, low, high in [(1, 4, 5), (2, 8, 10), (3, 8, 10), (1_999, 8, 10)]:
        waits = {policy.wait(overloaded(), failed) or 0.0 for _ in range(50)}
        assert low <= min(waits) < max(waits) <= high, failed


async def test_a_call_is_retried_after_token_counts_alone() -> None:
    with ScriptedModel([[usage(3, None), usage(None, 1), fail(overloaded())], [usage(5, 1), say("hi")]]) as model:
        reply, error = await complete(RetryingModel(model, clock=CLOCK), REQUEST)
    assert (reply.text, reply.usage, error) == ("hi", Usage(5, 1), None)


async def test_a_model_that_is_silent_after_token_counts_is_replaced_by_its_fallback() -> None:
    first, second = ScriptedModel([[usage(3, None), hang()]], name="first"), ScriptedModel([say("hi")], name="second")
    with first, second:
        assert await text_and_error_code(RetryingModel(first, [second], clock=CLOCK)) == ("hi", None)


@pytest.mark.parametrize(
    ("status", "type_", "message"),
    [
        (404, None, "the provider answered with HTTP 404"),
        (400, "model_not_found", "The requested model 'gpt-9' does not exist."),
        (400, "invalid_request_error", "The model `llama2-70b` has been decommissioned and is no longer supported."),
        (400, None, "acme/gpt-9 is not a valid model ID"),
        (400, "invalid_model", "Invalid model: mistral-9"),
        (400, "invalid_request_error", "Model Not Exist"),
    ],
)
async def test_a_model_that_does_not_exist_is_replaced_by_its_fallback(
    status: int, type_: str | None, message: str
) -> None:
    error = ModelError(message, code="provider.bad_request", status=status, provider_type=type_)
    with ScriptedModel([fail(error)]) as first, ScriptedModel([say("hello")]) as second:
        assert await text_and_error_code(RetryingModel(first, [second], clock=CLOCK)) == ("hello", None)


async def test_a_missing_capability_is_an_invalid_request() -> None:
    error = ModelError("this model does not support images", code="provider.bad_request", status=400)
    with ScriptedModel([fail(error)]) as first, ScriptedModel([]) as second:
        assert await text_and_error_code(RetryingModel(first, [second], clock=CLOCK)) == ("", "provider.bad_request")


async def test_the_last_error_includes_those_of_the_other_models() -> None:
    names = ("first", "second", "third")
    failing = [ScriptedModel([fail(ModelError(f"{name} is out", code="provider.auth"))], name=name) for name in names]
    _, error = await complete(RetryingModel(failing[0], failing[1:], clock=CLOCK), REQUEST)
    assert str(error) == "third is out; first had failed before: first is out; second had failed before: second is out"


async def test_a_failed_reply_is_retried_before_its_first_delta() -> None:
    with ScriptedModel([[usage(3, None), finish("failed")], say("hi")]) as model:
        assert await text_and_error_code(RetryingModel(model, clock=CLOCK)) == ("hi", None)
    with ScriptedModel([[say("h"), finish("failed")]]) as model:
        reply, error = await complete(RetryingModel(model, clock=CLOCK), REQUEST)
    assert (reply.text, reply.stop, error) == ("h", "failed", None)
