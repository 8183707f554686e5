"""The scripted model and the scripted gate."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from agenticx import UserMessage
from agenticx.clocks import ScaledClock
from agenticx.errors import ModelError
from agenticx.llms import (
    Finished,
    ModelRequest,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
    complete,
)
from agenticx.messages import ToolCall
from agenticx.runtime import ConfirmAnswer, ConfirmRequest
from agenticx.testing import (
    ScriptedGate,
    ScriptedModel,
    ScriptExhausted,
    call,
    cut,
    fail,
    finish,
    hang,
    pause,
    raw,
    say,
    stall_after,
    think,
    usage,
)

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(messages=[UserMessage(content="go")])


async def deltas(script, **options):
    model = ScriptedModel([script], **options)
    return [batch[0] if len(batch) == 1 else batch async for batch in model.stream(REQUEST)]


async def test_a_function_that_returns_no_reply_is_named_in_the_call():
    with pytest.raises(TypeError, match="the reply that a function returns must be a text, a part"):
        await deltas(lambda request: {})


async def test_parts_become_deltas_and_an_end_marker():
    assert await deltas([think("Hm."), say("Hello", pieces=2), call("add", {"a": 1}, pieces=2), call("now")]) == [
        ThinkingDelta("Hm."),
        TextDelta("He"),
        TextDelta("llo"),
        ToolCallDelta(0, "call_1", "add", '{"a"'),
        ToolCallDelta(0, arguments=": 1}"),
        ToolCallDelta(1, "call_2", "now", "{}"),
        Finished("tool_calls", "tool_calls"),
    ]


async def test_a_plain_string_is_a_text_reply():
    assert await deltas("hi") == [TextDelta("hi"), Finished("end", "stop")]


async def test_given_pieces_must_add_up_to_the_text():
    assert await deltas(say("abc", pieces=["a", "", "bc"])) == [
        TextDelta("a"),
        TextDelta("bc"),
        Finished("end", "stop"),
    ]
    with pytest.raises(ValueError, match="do not add up to 'abc'"):
        say("abc", pieces=["a", "b"])


async def test_an_end_can_be_scripted_or_left_out():
    assert await deltas([say("x"), finish("length", finish_reason="max_tokens")]) == [
        TextDelta("x"),
        Finished("length", "max_tokens"),
    ]
    assert await deltas([say("x"), cut(), say("never")]) == [TextDelta("x")]
    assert await deltas(raw(TextDelta("a"), TextDelta("b"))) == [
        (TextDelta("a"), TextDelta("b")),
        Finished("end", "stop"),
    ]


async def test_usage_is_reported_where_it_is_scripted():
    assert await deltas([say("x"), usage(7, 1, cached_tokens=2)]) == [
        TextDelta("x"),
        UsageDelta(Usage(7, 1, 2)),
        Finished("end", "stop"),
    ]


async def test_arguments_can_be_any_text():
    reply, _ = await complete(ScriptedModel([call("add", '{"a": ', id="mine")]), REQUEST)
    assert reply.tool_calls == (ToolCall(id="mine", name="add", arguments='{"a": '),)


async def test_an_error_keeps_what_came_before_it():
    error = ModelError("lost", code="provider.transport")
    assert await complete(ScriptedModel([[say("half"), fail(error)]]), REQUEST) == (Reply(text="half"), error)
    assert await complete(ScriptedModel([error]), REQUEST) == (Reply(), error)


async def test_a_function_answers_the_request_it_gets():
    model = ScriptedModel([lambda request: say(f"you said {request.messages[-1].content}")])
    reply, _ = await complete(model, REQUEST)
    assert reply.text == "you said go"


@pytest.mark.parametrize(
    ("script", "before"),
    [(hang(), 0), ([say("abcd", pieces=4), stall_after(2)], 2), ([stall_after(9), say("abcd", pieces=4)], 5)],
)
async def test_a_silent_reply_ends_only_when_it_is_closed(script, before):
    model = ScriptedModel([script])
    stream = model.stream(REQUEST)
    for _ in range(before):
        await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert model.open_streams == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert model.open_streams == 0


async def test_a_pause_is_nominal_time():
    clock = ScaledClock(10_000)
    before = clock.monotonic()
    await deltas([pause(60), say("x")], clock=clock)
    assert clock.monotonic() - before >= 60


async def test_recorded_requests_do_not_change():
    messages = [UserMessage(content="go")]
    model = ScriptedModel(["one"])
    await complete(model, ModelRequest(messages=messages))
    messages.clear()
    assert [message.content for message in model.requests[0].messages] == ["go"]


async def test_one_call_too_many_is_a_model_error_and_an_assertion():
    model = ScriptedModel(["x"])
    await complete(model, REQUEST)
    model.assert_done()
    _, error = await complete(model, REQUEST)
    assert isinstance(error, ScriptExhausted)
    assert isinstance(error, AssertionError)
    assert str(error) == "model 'scripted' has 1 scripted replies and was asked for reply 2"
    with pytest.raises(ScriptExhausted):
        model.assert_done()


def test_unplayed_replies_are_reported():
    with (
        pytest.raises(AssertionError, match="2 of 2 replies of model 'scripted' were never asked for"),
        ScriptedModel(["x", "y"]),
    ):
        pass


def test_unplayed_replies_do_not_hide_an_exception_of_the_block():
    with pytest.raises(ZeroDivisionError), ScriptedModel(["x"]):
        _ = 1 / 0


# --- the gate ------------------------------------------------------------------------------------------------------

QUESTION = ConfirmRequest(
    id="q", question="Allow add?", context={"tool": "add"}, digest="d", expires_at=datetime(2030, 1, 1, tzinfo=UTC)
)


async def test_a_gate_announces_and_then_answers_in_order():
    announced = []
    changed = ConfirmAnswer(approved=True, arguments={"a": 2})
    with ScriptedGate(True, False, changed) as gate:
        answers = [await gate.ask(QUESTION, lambda: announced.append(1)) for _ in range(3)]
    assert answers == [ConfirmAnswer(approved=True), ConfirmAnswer(approved=False), changed]
    assert gate.requests == [QUESTION] * 3
    assert announced == [1, 1, 1]


async def test_a_gate_can_raise_or_stay_silent():
    gate = ScriptedGate(OSError("no screen"), "silent")
    with pytest.raises(OSError, match="no screen"):
        await gate.ask(QUESTION, lambda: None)
    waiting = asyncio.ensure_future(gate.ask(QUESTION, lambda: None))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_gate_denies_and_reports_questions_beyond_its_script():
    gate = ScriptedGate()
    assert await gate.ask(QUESTION, lambda: None) == ConfirmAnswer(approved=False)
    with pytest.raises(AssertionError, match=r"the gate has 0 answers and was asked 1 times: \['Allow add\?'\]"):
        gate.assert_done()


def test_a_gate_reports_unused_answers():
    with pytest.raises(AssertionError, match=r"the gate has 1 answers and was asked 0 times"), ScriptedGate(True):
        pass
