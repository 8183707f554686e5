"""Tests of the Chat Completions parser without a network: recorded streams and unusual ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.llms import Finished, ReplyBuilder
from agenticx.llms.reply_limits import MAX_ARGUMENT_CHARS, MAX_CALLS
from tests.support.wires.chat_chunks import DONE, STOP, USAGE, call_chunk, delta, read
from tests.support.wires.recorded import CHUNKINGS, Chunking, Recording, outcome, recordings, split_body
from tests.support.wires.replies import deltas_of, sse
from tests.support.wires.wires import WIRES

# --- recorded streams -------------------------------------------------------------------------------------------------


@pytest.mark.promise("C3")
@pytest.mark.parametrize("recording", recordings("chat"))
@pytest.mark.cases(quick=6)
def test_a_stream_cut_between_events_is_complete_only_with_an_end_marker(recording: Recording) -> None:
    events = recording.body.replace(b"\r\n", b"\n").split(b"\n\n")
    step = max(1, len(events) // 100)  # each prefix is read anew
    for count in {*range(0, len(events), step), *range(max(0, len(events) - 30), len(events))}:
        kept = b"\n\n".join([*events[:count], b""])
        reply, error = read([kept])
        marked = b"data: [DONE]" in kept or any(_has_finish_reason(event) for event in events[:count])
        assert reply.complete == (marked and error is None), f"after {count} events"


def _has_finish_reason(event: bytes) -> bool:
    if not event.startswith(b"data: {"):
        return False
    return any(choice.get("finish_reason") for choice in json.loads(event[6:]).get("choices", ()))


# --- text and reasoning -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "text", "reasoning"),
    [
        pytest.param([delta(content="a"), delta(content="b"), STOP], "ab", "", id="strings"),
        pytest.param(
            [delta(content=None), delta(content=""), {"choices": []}, delta(content="a"), STOP], "a", "", id="nothings"
        ),
        pytest.param(
            [delta(content=[{"type": "text", "text": "a"}, "b", {"type": "image_url"}]), STOP], "ab", "", id="parts"
        ),
        pytest.param(
            [
                delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]),
                delta(content="a"),
                STOP,
            ],
            "a",
            "t",
            id="thinking parts",
        ),
        pytest.param([delta(reasoning_content="r", content="a"), STOP], "a", "r", id="reasoning_content"),
        pytest.param([delta(reasoning="r"), delta(reasoning=None, content="a"), STOP], "a", "r", id="reasoning"),
        pytest.param([delta(thinking="r"), STOP], "", "r", id="thinking"),
        pytest.param([delta(reasoning="r", reasoning_content="r"), STOP], "", "r", id="the same reasoning twice"),
        pytest.param(
            [
                delta(
                    reasoning_details=[
                        {"type": "reasoning.text", "text": "r"},
                        {"type": "reasoning.encrypted", "data": "x"},
                    ]
                ),
                STOP,
            ],
            "",
            "r",
            id="reasoning details",
        ),
        pytest.param(
            [delta(reasoning="r", reasoning_details=[{"type": "reasoning.text", "text": "r"}]), STOP],
            "",
            "r",
            id="details beside reasoning",
        ),
        pytest.param([delta(refusal="I cannot."), STOP], "I cannot.", "", id="a refusal"),
        pytest.param(
            [{"choices": [{"index": 1, "delta": {"content": "x"}}]}, delta(content="a"), STOP],
            "a",
            "",
            id="other choices",
        ),
        pytest.param([{"choices": [{"delta": {"content": "a"}}]}, STOP], "a", "", id="no choice index"),
        pytest.param(
            [{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}],
            "a",
            "",
            id="a message instead of deltas",
        ),
        pytest.param(
            [
                {"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]},
                {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]},
            ],
            "a",
            "",
            id="the message so far beside deltas",
        ),
        pytest.param(['{"choices":[{"delta":{"content":"a\\ud83db"}}]}', STOP], "a\ufffdb", "", id="a lone surrogate"),
        pytest.param([delta(content="<think>x</think>a"), STOP], "<think>x</think>a", "", id="tags stay text"),
        pytest.param(['{"choices":[{"delta":{"content":"a"},"logprobs":NaN}]}', STOP], "a", "", id="not a number"),
    ],
)
def test_text_and_reasoning(chunks: list[Any], text: str, reasoning: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*chunks, DONE), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (text, reasoning, True, None)


def test_a_number_of_very_many_digits_is_named_without_a_hint_for_programs() -> None:
    _, error = read([b'data: {"usage": {"prompt_tokens": ' + b"9" * 5_000 + b"}}\n\n"])
    assert str(error) == "test sent a malformed reply: an event is not JSON (a number in it has too many digits)"


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    reply, error = read([b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\ndata: [DONE]\n\n'])
    assert (reply.text, error) == ("a\ufffdb", None)


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "finished"),
    [
        pytest.param([delta(content="a"), STOP, DONE], Finished("end", "stop"), id="both markers"),
        pytest.param([delta(content="a"), STOP], Finished("end", "stop"), id="a finish reason alone"),
        pytest.param([delta(content="a"), DONE], Finished("end", None), id="[DONE] alone"),
        pytest.param([delta(content="a")], None, id="neither"),
        pytest.param([], None, id="nothing at all"),
        pytest.param(
            [delta("stop"), delta("length"), DONE], Finished("length", "length"), id="the last finish reason counts"
        ),
        pytest.param(
            [delta("stop", content="a"), delta(None), DONE], Finished("end", "stop"), id="null does not take it back"
        ),
        pytest.param([delta("MAX_TOKENS"), DONE], Finished("length", "MAX_TOKENS"), id="the provider's own word"),
        pytest.param(
            [delta("content_filter"), DONE], Finished("content_filter", "content_filter"), id="content filter"
        ),
        pytest.param(
            [call_chunk(index=0, id="1", name="a"), STOP], Finished("tool_calls", "stop"), id="calls that end with stop"
        ),
        pytest.param([delta("stop"), DONE, delta(content="late")], Finished("end", "stop"), id="nothing after [DONE]"),
    ],
)
def test_finished_is_the_last_delta_if_there_was_an_end_marker(chunks: list[Any], finished: Finished | None) -> None:
    for chunking in CHUNKINGS:
        parser = WIRES["openai_chat"].parser("m")
        deltas = list(deltas_of(parser, split_body(sse(*chunks), chunking)))
        assert [delta for delta in deltas if isinstance(delta, Finished)] == ([finished] if finished else [])
        assert not finished or deltas[-1] == finished


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code", "kind"),
    [
        pytest.param(
            {"error": {"message": "m", "type": "server_error"}}, "provider.overloaded", "server_error", id="OpenAI"
        ),
        pytest.param(
            {"error": {"code": 429, "message": "m"}, "choices": []}, "provider.rate_limited", "429", id="OpenRouter"
        ),
        pytest.param(
            {"error": {"code": 502, "message": "m"}}, "provider.overloaded", "502", id="a code of 500 or more"
        ),
        pytest.param({"error": "something broke"}, "provider.bad_reply", None, id="only text"),
        pytest.param(
            {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
            "context_overflow",
            "server_error",
            id="llama.cpp",
        ),
        pytest.param(
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            "provider.bad_request",
            "BadRequestError",
            id="vLLM of old",
        ),
        pytest.param(
            {"error_type": "context_length_exceeded", "error_message": "m"},
            "context_overflow",
            "context_length_exceeded",
            id="Venice",
        ),
        pytest.param(
            {"error": {"message": "Invalid key", "type": "authentication_error"}},
            "provider.auth",
            "authentication_error",
            id="auth",
        ),
        pytest.param("not json", "provider.bad_reply", "protocol_error", id="no JSON"),
        pytest.param('{"choices":[{"delta":{"content":"b"', "provider.bad_reply", "protocol_error", id="half an event"),
        pytest.param([1, 2], "provider.bad_reply", "protocol_error", id="a list"),
        pytest.param({"choices": {"0": 1}}, "provider.bad_reply", "protocol_error", id="choices that are no list"),
        pytest.param({"choices": ["x"]}, "provider.bad_reply", "protocol_error", id="a choice that is no object"),
        pytest.param("[" * 100_000, "provider.bad_reply", "protocol_error", id="deep nesting"),
        pytest.param(
            '{"choices":' + "[" * 5_000 + "]" * 5_000 + "}",
            "provider.bad_reply",
            "protocol_error",
            id="valid deep nesting",
        ),
        pytest.param(
            {"choices": [{"delta": {}, "error": {"code": 504, "message": "m"}}]},
            "provider.overloaded",
            "504",
            id="in a choice",
        ),
    ],
)
def test_an_error_in_the_stream_keeps_the_content_before_it(event: Any, code: str, kind: str | None) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(delta(content="a"), event, delta(content="late"), DONE), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, kind)


def test_content_and_usage_in_the_event_of_an_error_are_kept() -> None:
    event = {**delta(content="b"), "usage": USAGE, "error": {"message": "m", "code": 400}}
    reply, error = read([sse(delta(content="a"), event, DONE)])
    assert error is not None
    assert (reply.text, reply.usage.input_tokens, error.provider_type) == ("ab", 9, "400")


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_a_finish_reason_of_failure_marks_the_reply_as_failed(reason: str) -> None:
    reply, error = read([sse(delta(content="a"), delta(reason), {"usage": USAGE}, DONE)])
    assert (reply.text, reply.complete, reply.stop, reply.finish_reason) == ("a", True, "failed", reason)
    assert (reply.usage.input_tokens, error) == (9, None)


def test_a_body_cut_inside_an_event_is_truncated_not_malformed() -> None:
    reply, error = read([sse(delta(content="a")) + b'data: {"choices":[{"del'])
    assert (reply.text, reply.complete, error) == ("a", False, None)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(delta(tool_calls=[{"index": n, "function": {"name": "a"}} for n in range(100)]), id="calls"),
        pytest.param(call_chunk(index=0, name="a", arguments="x" * 1_000_000), id="arguments"),
        pytest.param(delta(content="x" * 1_000_000), id="text"),
        pytest.param(delta(reasoning="x" * 1_000_000), id="reasoning"),
    ],
)
@pytest.mark.cases(quick=1)
def test_an_endless_reply_is_ended_at_a_limit(event: dict[str, Any]) -> None:
    parser, builder = WIRES["openai_chat"].parser("m"), ReplyBuilder()
    for turn in range(100):
        if "tool_calls" in event["choices"][0]["delta"]:
            for call in event["choices"][0]["delta"]["tool_calls"]:
                call["index"] += 100 * turn if "arguments" not in call["function"] else 0
        for each in parser.feed(sse(event)):
            builder.add(each)
        if parser.error:
            break
    assert parser.error is not None
    assert (parser.error.code, parser.error.provider_type) == ("provider.bad_reply", "protocol_error")
    assert len(builder.reply().tool_calls) <= MAX_CALLS
    assert sum(len(call.arguments) for call in builder.reply().tool_calls) <= MAX_ARGUMENT_CHARS


# --- a whole reply instead of a stream --------------------------------------------------------------------------------


def whole(message: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **fields}).encode()


@pytest.mark.parametrize("chunking", CHUNKINGS)
def test_a_single_json_object_is_read_as_a_reply(chunking: Chunking) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}
    body = b"\n " + whole({"content": "hi", "reasoning_content": "r", "tool_calls": [call]}, usage=USAGE)
    reply, error = read(split_body(body, chunking))
    assert outcome(reply, error) == {
        "text": "hi",
        "reasoning": "r",
        "tool_calls": [{"name": "a", "arguments": {"x": 1}}],
        "finish_reason": "stop",
        "usage": {"input_tokens": 9, "output_tokens": 4},
        "error": False,
        "error_type": None,
        "complete": True,
    }


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": {"message": "m", "type": "server_error"}}', "server_error"),
        (b'{"choices": []}', "protocol_error"),
        (b'{"hello": 1}', "protocol_error"),
        (whole({"content": "hi"})[:-5], "protocol_error"),
    ],
)
def test_a_single_json_object_that_is_no_reply_is_an_error(body: bytes, kind: str) -> None:
    reply, error = read([body])
    assert error is not None
    assert (reply.complete, error.provider_type) == (False, kind)
