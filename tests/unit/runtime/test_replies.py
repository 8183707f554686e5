"""A reply of the model as events, history and answer."""

from __future__ import annotations

import json

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel, RetryPolicy, ScriptedModel, TextDelta, ThinkingDelta
from agenticx.messages import AssistantMessage
from agenticx.testing import call, cut, fail, finish, outline, raw, say, think, usage
from agenticx.tools import tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_text_is_streamed_and_repeated_by_final(play):
    run = await play([[say("Hello there.", pieces=3), usage(12, 3, cached_tokens=4)]])

    assert outline(run.events, state=True, usage=True, tokens="each", detail=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "token",
        "token",
        "usage",
        "state:done",
        "final:answer",
    ]
    started, final = run.events[0].data, run.terminal
    assert started == {"input": "go", "model": "scripted", "message_id": run.session.messages[0].message_id}
    assert [(event.data["text"], event.data["offset"]) for event in run.events_of("token")] == [
        ("Hell", 0),
        ("o th", 4),
        ("ere.", 8),
    ]
    assert run.events_of("usage")[0].data == {
        "input_tokens": 12,
        "output_tokens": 3,
        "cached_tokens": 4,
        "model": "scripted",
    }
    assert final == {
        "text": "Hello there.",
        "message_id": run.session.messages[1].message_id,
        "reason": "answer",
        "usage": {"input_tokens": 12, "output_tokens": 3, "cached_tokens": 4},
    }
    assert run.rows == [("user", "go"), ("assistant", "Hello there.")]


async def test_reasoning_becomes_thinking_events_and_no_token(play):
    run = await play([[think("Let me see.", pieces=2), say("Yes.")]])

    assert run.outline == ["turn_started", "round_start", "thinking", "token", "final:answer"]
    assert [event.data["offset"] for event in run.events_of("thinking")] == [0, 5]
    assert run.session.messages[1] == AssistantMessage(
        content="Yes.", reasoning="Let me see.", message_id=run.terminal["message_id"]
    )


async def test_offsets_count_code_points(play):
    run = await play([[say("a🎉é漢b", pieces=["a🎉", "é漢", "b"])]])

    assert [event.data["offset"] for event in run.events_of("token")] == [0, 2, 4]


async def test_lone_surrogates_and_empty_deltas_are_dropped(play):
    run = await play(
        [[raw(TextDelta("")), raw(ThinkingDelta("\udcff")), raw(TextDelta("a\ud800b")), raw(TextDelta(""))]]
    )

    assert run.outline == ["turn_started", "round_start", "thinking", "token", "final:answer"]
    assert run.rows == [("user", "go"), ("assistant", "a\ufffdb")]


async def test_a_user_message_object_is_accepted_and_the_system_prompt_is_sent_but_not_stored(play):
    message = UserMessage(content="hi \u2028 there")
    run = await play(["Hello."], user=message, system_prompt="Be brief.")

    assert [m.content for m in run.model.requests[0].messages] == ["Be brief.", "hi \u2028 there"]
    assert run.session.messages[0] is message
    assert run.rows == [("user", "hi \u2028 there"), ("assistant", "Hello.")]


async def test_an_empty_reply_is_an_empty_answer_and_leaves_no_row(play):
    run = await play([[]])

    assert run.outline == ["turn_started", "round_start", "final:answer"]
    assert run.terminal["text"] == ""
    assert run.rows == [("user", "go")]


async def test_reasoning_alone_is_an_empty_answer(play):
    run = await play([think("Hm.")])

    assert run.outline == ["turn_started", "round_start", "thinking", "final:answer"]
    assert run.rows == [("user", "go")]


async def test_a_cut_reply_is_truncated_and_its_shown_text_stays_as_partial(play):
    run = await play([[say("Half an ans"), call("add", {"a": 1, "b": 2}), cut()]], tools=[add])

    assert run.outline == ["turn_started", "round_start", "token", "tool_call_delta", "error:provider.truncated"]
    assert run.terminal == {
        "text": "the model's answer ended without its end marker, so its calls are not run",
        "code": "provider.truncated",
        "fatal": True,
        "retryable": True,
    }
    assert run.rows == [("user", "go"), ("partial", "Half an ans")]


async def test_a_broken_connection_is_a_transport_error_and_shown_text_stays(play):
    broken = ModelError("connection reset", code="provider.transport", retryable=True)
    run = await play([[say("Half"), usage(9, 1), fail(broken)]])

    assert outline(run.events, usage=True, detail=True) == [
        "turn_started",
        "round_start",
        "token",
        "usage",
        "error:provider.transport",
    ]
    assert run.terminal == {"text": "connection reset", "code": "provider.transport", "fatal": True, "retryable": True}
    assert run.rows == [("user", "go"), ("partial", "Half")]


@pytest.mark.parametrize(
    "code",
    ["provider.auth", "provider.rate_limited", "provider.bad_request", "provider.overloaded", "context_overflow"],
)
async def test_an_error_of_the_provider_ends_the_turn_under_its_code(play, code):
    run = await play([ModelError("no", code=code, retry_after=30.0)])

    assert run.outline == ["turn_started", "round_start", f"error:{code}"]
    assert run.terminal.keys() == {"text", "code", "fatal", "retryable", "retry_at"}
    assert run.rows == [("user", "go")]


async def test_a_length_finish_without_calls_is_a_partial_answer(play):
    run = await play([[say("As far as I g"), finish("length")]])

    assert run.outline == ["turn_started", "round_start", "token", "final:partial"]
    assert run.terminal["text"] == "As far as I g"
    assert run.rows == [("user", "go"), ("assistant", "As far as I g")]


async def test_a_length_finish_with_calls_runs_none_of_them(play):
    whole, half = call("add", {"a": 1, "b": 2}), call("add", '{"a": 1, "b"')
    run = await play([[say("Adding."), whole, half, finish("length")], "Sorry."], tools=[add])

    cut_text = (
        "The answer broke off or was cut by its limit, so this call may be incomplete and was not run; make it again."
    )
    assert run.outline == [
        "turn_started",
        "round_start",
        "token",
        "tool_call_delta",
        "tool_call:add",
        "tool_call:add",
        "tool_result:invalid_arguments",
        "tool_result:invalid_arguments",
        "round_start",
        "token",
        "final:answer",
    ]
    assert [event.data["arguments"] for event in run.events_of("tool_call")] == [{"a": 1, "b": 2}, '{"a": 1, "b"']
    assert run.results == [
        ("call_1", "invalid_arguments", cut_text),
        ("call_2", "invalid_arguments", cut_text),
    ]


async def test_a_content_filter_is_fatal_even_when_the_reply_has_calls(play):
    run = await play([[say("I will"), call("add", {"a": 1, "b": 2}), finish("content_filter")]], tools=[add])

    assert run.outline == ["turn_started", "round_start", "token", "tool_call_delta", "error:provider.content_filter"]
    assert run.rows == [("user", "go"), ("partial", "I will")]


async def test_a_reply_that_failed_in_the_middle_ends_the_turn_even_when_it_has_calls(play):
    run = await play([[say("I will"), call("add", {"a": 1, "b": 2}), finish("failed")]], tools=[add])

    assert run.outline == ["turn_started", "round_start", "token", "tool_call_delta", "error:provider.overloaded"]
    assert run.events[-1].data["retryable"] is True


async def test_calls_run_if_the_finish_reason_is_end(play):
    run = await play([[call("add", {"a": 1, "b": 2}), finish("end")], "3"], tools=[add])

    assert run.results == [("call_1", "ok", "3")]


async def test_a_call_in_an_explicit_wrapper_runs_and_one_in_prose_does_not(play):
    wrapped = '<tool_code>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_code>'
    run = await play([wrapped, 'You can run add({"a": 1, "b": 2}).'], tools=[add])

    assert run.outline == [
        "turn_started",
        "round_start",
        "token",
        "tool_call:add",
        "tool_result:ok",
        "round_start",
        "token",
        "final:answer",
    ]
    assert run.rows[1:3] == [("assistant", "", ["add"]), ("tool", run.results[0][0], "ok", "3")]


@pytest.mark.parametrize(
    "wrapper",
    [
        '<tool_code>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_code>',
        '```json\n{"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}\n```',
    ],
)
async def test_an_example_of_a_call_at_the_end_of_an_answer_is_part_of_the_answer(play, wrapper):
    answer = f"To add two numbers, one writes:\n\n{wrapper}"
    run = await play([answer], tools=[add])

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]
    assert run.terminal["text"] == answer


HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


async def test_a_special_call_form_is_parsed_only_for_models_that_are_marked(play):
    for forms in ((), ("mistral",)):
        run = await play(ScriptedModel([HERMES], inline_calls=forms), tools=[add])
        assert run.terminal["text"] == HERMES
    run = await play(ScriptedModel([HERMES, "3."], inline_calls=("hermes",)), tools=[add])
    assert ([text for _, _, text in run.results], run.terminal["text"]) == (["3"], "3.")


async def test_function_tags_are_calls_only_for_models_that_are_marked(play):
    text = "I will add.\n<function=add>\n<parameter=a>1</parameter>\n<parameter=b>2</parameter>\n</function>"
    for forms in ((), ("hermes", "mistral")):
        run = await play(ScriptedModel([text], inline_calls=forms), tools=[add])
        assert (run.terminal["text"], run.results) == (text, [])
    run = await play(ScriptedModel([text, "3."], inline_calls=("function",)), tools=[add])
    assert ([text for _, _, text in run.results], run.terminal["text"]) == (["3"], "3.")
    assert run.rows[1] == ("assistant", "I will add.", ["add"])


async def test_inline_calls_of_a_fallback_are_parsed_by_the_forms_of_the_fallback(play):
    gone = [fail(ModelError("gone", code="provider.overloaded"))]
    failing = ScriptedModel([gone], name="first", inline_calls=["hermes"])
    model = RetryingModel(failing, [ScriptedModel([HERMES], name="second")], RetryPolicy(attempts=1))
    assert (await play(model, tools=[add])).terminal["text"] == HERMES

    failing = ScriptedModel([gone], name="first")
    second = ScriptedModel([HERMES, "3."], name="second", inline_calls=["hermes"])
    model = RetryingModel(failing, [second], RetryPolicy(attempts=1))
    run = await play(model, tools=[add])
    assert run.outline.count("tool_result:ok") == 1


async def test_a_long_call_in_a_wrapper_is_read_off_the_event_loop_and_runs(play):
    @tool(risk="read")
    def note(text: str) -> str:
        """Note."""
        return f"{len(text)} noted"

    wrapped = json.dumps({"name": "note", "arguments": {"text": "x" * 20_000}})
    run = await play([f"<tool_code>{wrapped}</tool_code>", "Done."], tools=[note])
    assert [text for _, _, text in run.results] == ["20000 noted"]


async def test_final_has_the_last_replys_text_only_and_unstripped(play):
    run = await play([[say("First. "), call("add", {"a": 1, "b": 2})], " Second.\n"], tools=[add])

    assert run.terminal["text"] == " Second.\n"
    assert run.rows == [
        ("user", "go"),
        ("assistant", "First. ", ["add"]),
        ("tool", "call_1", "ok", "3"),
        ("assistant", " Second.\n"),
    ]


async def test_a_call_that_the_provider_could_not_parse_causes_one_reminder(play):
    run = await play([[finish("tool_calls", finish_reason="MALFORMED_FUNCTION_CALL")], "Sorry."], tools=[add])

    assert outline(run.events) == ["turn_started", "round_start", "round_start", "token", "final"]
    assert run.session.messages[1] == UserMessage(
        content="[reminder] Your last call named no tool or could not be read. The tools are: add.",
        injected=True,
        message_id=run.session.messages[1].message_id,
    )
