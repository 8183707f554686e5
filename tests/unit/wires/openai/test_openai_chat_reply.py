"""Replies of the Chat Completions parser, without a network: recorded streams and odd ones written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.base import Finished, Reply, ReplyBuilder, ToolCallDelta
from agenticx.llms.reply_limits import MAX_ARGUMENT_CHARS, MAX_CALLS
from agenticx.llms.wires.openai_chat._reply import ChatReplyParser
from tests.support.wires.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recordings
from tests.support.wires.replies import deltas_of, read_with, sse


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return read_with(ChatReplyParser(label="test", model="m"), chunks)


def delta(finish_reason: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def piece(**fields: Any) -> dict[str, Any]:
    """Return a chunk with one fragment of a tool call; name and arguments are put into its function."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return delta(tool_calls=[{**fields, "function": function}])


STOP = delta("stop")
DONE = "[DONE]"


# --- recorded streams ---------------------------------------------------------------------------------------------


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


# --- text and reasoning -------------------------------------------------------------------------------------------


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
def test_what_was_said_and_what_was_thought(chunks: list[Any], text: str, reasoning: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*chunks, DONE), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (text, reasoning, True, None)


def test_bytes_that_are_not_utf8_become_the_replacement_character() -> None:
    reply, error = read([b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\ndata: [DONE]\n\n'])
    assert (reply.text, error) == ("a\ufffdb", None)


# --- tool calls -----------------------------------------------------------------------------------------------------

A, B = ("a", '{"x":1}'), ("b", '{"y":2}')


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        pytest.param(
            [
                piece(index=0, id="1", name="a", arguments=""),
                piece(index=0, arguments='{"x"'),
                piece(index=0, arguments=":1}"),
            ],
            [("1", *A)],
            id="streamed",
        ),
        pytest.param(
            [
                piece(index=0, id="1", name="a"),
                piece(index=1, id="2", name="b"),
                piece(index=0, arguments='{"x":1}'),
                piece(index=1, arguments='{"y":2}'),
            ],
            [("1", *A), ("2", *B)],
            id="interleaved",
        ),
        pytest.param(
            [piece(id="1", name="a", arguments='{"x":1}'), piece(id="2", name="b", arguments='{"y":2}')],
            [("1", *A), ("2", *B)],
            id="no index",
        ),
        pytest.param(
            [piece(name="a", arguments='{"x":1}'), piece(name="b", arguments='{"y":2}')],
            [("", *A), ("", *B)],
            id="no index and no id",
        ),
        pytest.param(
            [piece(name="a"), piece(arguments='{"x"'), piece(arguments=":1}")], [("", *A)], id="no index, streamed"
        ),
        pytest.param(
            [
                piece(index=0, id="1", name="a", arguments='{"x":1}'),
                piece(index=0, id="2", name="a", arguments='{"y":2}'),
            ],
            [("1", *A), ("2", "a", '{"y":2}')],
            id="index always 0, as Ollama sends it",
        ),
        pytest.param(
            [piece(index=0, name="a", arguments='{"x":1}'), piece(index=0, name="a", arguments='{"y":2}')],
            [("", *A), ("", "a", '{"y":2}')],
            id="index always 0 and no id, as Gemini sends it",
        ),
        pytest.param(
            [
                piece(index=0, id="1", name="a", arguments='{"x"'),
                piece(index=0, id="2", arguments=":1"),
                piece(index=0, id="3", arguments="}"),
            ],
            [("1", *A)],
            id="another id in each piece",
        ),
        pytest.param(
            [piece(index=0, id="1", name="a", arguments='{"x"'), piece(index=0, id="2", name="a", arguments=":1}")],
            [("1", *A)],
            id="another id and the name in each piece",
        ),
        pytest.param(
            [piece(index=0, name="a", arguments='{"x"'), piece(index=0, id="1", arguments=":1}")],
            [("1", *A)],
            id="a late id",
        ),
        pytest.param(
            [piece(index=0, id="1", arguments='{"x"'), piece(index=0, name="a", arguments=":1}")],
            [("1", *A)],
            id="a late name",
        ),
        pytest.param(
            [piece(index=0, id="1", name="a", arguments='{"x"'), piece(index=0, id="1", name="a", arguments=":1}")],
            [("1", *A)],
            id="the name repeated",
        ),
        pytest.param(
            [piece(index=0, id="1", name="a", arguments='{"x"'), piece(index=0, id="", name="", arguments=":1}")],
            [("1", *A)],
            id="empty id and name later",
        ),
        pytest.param(
            [piece(index=0, id="1", name="a", arguments='{"x"'), piece(index=0, name="None", arguments=":1}")],
            [("1", *A)],
            id="the name None later",
        ),
        pytest.param(
            [piece(index=0, id="1", name="None", arguments='{"x":1}')], [("1", "", '{"x":1}')], id="only the name None"
        ),
        pytest.param([piece(index=0, id="1", name="a", arguments={"x": 1})], [("1", *A)], id="arguments as an object"),
        pytest.param([piece(index=0, id="1", name="a", arguments=None)], [("1", "a", "")], id="arguments null"),
        pytest.param([piece(index=0, id="1", name="a")], [("1", "a", "")], id="no arguments"),
        pytest.param(
            [piece(index=0, id="1", name="a", arguments='{"x":1}{"x":1}')],
            [("1", "a", '{"x":1}{"x":1}')],
            id="two objects stay as they are",
        ),
        pytest.param(
            [
                piece(index=0, id="1", name="a", arguments='{"x":1}'),
                piece(index=0, id="1", name="a", arguments='{"x":1}'),
            ],
            [("1", *A)],
            id="sent twice",
        ),
        pytest.param(
            [
                piece(index=0, id="1", name="a", arguments='{"x":1}'),
                piece(index=1, id="1", name="b", arguments='{"y":2}'),
            ],
            [("1", *A), ("1", *B)],
            id="the same id for two calls",
        ),
        pytest.param(
            [piece(index=7, id="1", name="a", arguments='{"x":1}')], [("1", *A)], id="an index that is not the first"
        ),
        pytest.param(
            [
                delta(function_call={"name": "a", "arguments": '{"x"'}),
                delta(function_call={"arguments": ":1}"}),
                delta("function_call"),
            ],
            [("", *A)],
            id="a function_call of old",
        ),
        pytest.param(
            [
                delta(tool_calls=None),
                delta(tool_calls=[]),
                delta(tool_calls=[None]),
                piece(index=0, id="1", name="a", arguments='{"x":1}'),
            ],
            [("1", *A)],
            id="null pieces",
        ),
    ],
)
def test_pieces_of_calls_find_their_call(chunks: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*chunks, delta("tool_calls"), DONE), chunking))
        assert ([(call.id, call.name, call.arguments) for call in reply.tool_calls], error) == (calls, None)
        assert (reply.complete, reply.stop) == (True, "tool_calls")


def test_the_first_piece_of_a_call_comes_out_at_once() -> None:
    parser = ChatReplyParser(label="test", model="m")
    assert parser.feed(sse(piece(index=0, id="1", name="a"))) == [ToolCallDelta(0, "1", "a", "")]
    assert parser.feed(sse(piece(index=0, arguments='{"'))) == [ToolCallDelta(0, "", "", '{"')]


# --- the end --------------------------------------------------------------------------------------------------------


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
            [piece(index=0, id="1", name="a"), STOP], Finished("tool_calls", "stop"), id="calls that end with stop"
        ),
        pytest.param([delta("stop"), DONE, delta(content="late")], Finished("end", "stop"), id="nothing after [DONE]"),
    ],
)
def test_finished_comes_once_and_last_if_there_was_a_marker(chunks: list[Any], finished: Finished | None) -> None:
    for chunking in CHUNKINGS:
        parser = ChatReplyParser(label="test", model="m")
        said = list(deltas_of(parser, pieces(sse(*chunks), chunking)))
        assert [delta for delta in said if isinstance(delta, Finished)] == ([finished] if finished else [])
        assert not finished or said[-1] == finished


USAGE = {"prompt_tokens": 9, "completion_tokens": 4}


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([STOP, {"choices": [], "usage": USAGE}], id="after the finish reason"),
        pytest.param([{**STOP, "usage": USAGE}], id="beside the finish reason"),
        pytest.param(
            [{**delta(content="a"), "usage": {**USAGE, "completion_tokens": 1}}, {**STOP, "usage": USAGE}], id="growing"
        ),
        pytest.param(
            [{**STOP, "usage": None}, {"usage": USAGE}, {"choices": [], "usage": None}],
            id="usage only, and null after it",
        ),
        pytest.param([{"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}], id="in the choice"),
        pytest.param([STOP, {"choices": [], "x_groq": {"usage": USAGE}}], id="in x_groq"),
        pytest.param(
            [{**delta(), "usage": {"prompt_tokens": 9}}, {**STOP, "usage": {"completion_tokens": 4}}], id="in two parts"
        ),
    ],
)
def test_usage_is_the_latest_that_was_reported(chunks: list[Any]) -> None:
    reply, _ = read([sse(*chunks, DONE)])
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 4)


def test_usage_keeps_cached_and_reasoning_tokens_and_cost() -> None:
    usage = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.0125,
    }
    reply, _ = read([sse({**STOP, "usage": usage}, DONE)])
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens, str(reply.usage.cost_usd)) == (3, 2, "0.0125")


@pytest.mark.parametrize(("total", "on_top"), [(11, False), (13, True)])
def test_thoughts_come_on_top_of_the_output_where_the_total_says_so(total: int, on_top: bool) -> None:
    """xAI counts them apart, the others among the output."""
    thought = {"completion_tokens_details": {"reasoning_tokens": 2}, "total_tokens": total}
    reply, _ = read([sse({**STOP, "usage": {"prompt_tokens": 7, "completion_tokens": 4, **thought}}, DONE)])
    assert (reply.usage.output_tokens, reply.usage.total_output_tokens) == (4, 6 if on_top else 4)


def test_the_cost_in_ticks_is_in_ten_billionths_of_a_dollar() -> None:
    usage = {**USAGE, "cost_in_usd_ticks": 1721250, "prompt_tokens_details": {"cache_write_tokens": 5}}
    reply, _ = read([sse({**STOP, "usage": usage}, DONE)])
    assert (reply.usage.cost_usd, reply.usage.cache_write_tokens) == (Decimal("0.000172125"), 5)


def test_reasoning_that_led_to_calls_is_kept_for_the_provider() -> None:
    details = [{"type": "reasoning.text", "text": text, "index": 0} for text in ("r1", "r2")]
    body = sse(
        delta(reasoning="r1", reasoning_details=details[:1]),
        delta(reasoning="r2", reasoning_details=[{**details[1], "signature": "s"}]),
        piece(index=0, id="1", name="a"),
        DONE,
    )
    state = read([body])[0].provider_state
    assert state is not None
    assert state.payload == {
        "field": "reasoning",
        "details": [{"type": "reasoning.text", "text": "r1r2", "index": 0, "signature": "s"}],
    }


# --- errors ---------------------------------------------------------------------------------------------------------


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
def test_an_error_in_the_stream_keeps_what_came_before_it(event: Any, code: str, kind: str | None) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(delta(content="a"), event, delta(content="late"), DONE), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, kind)


def test_what_stands_beside_an_error_counts() -> None:
    event = {**delta(content="b"), "usage": USAGE, "error": {"message": "m", "code": 400}}
    reply, error = read([sse(delta(content="a"), event, DONE)])
    assert error is not None
    assert (reply.text, reply.usage.input_tokens, error.provider_type) == ("ab", 9, "400")


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_a_finish_reason_that_means_failure_is_kept_and_marks_the_reply_as_failed(reason: str) -> None:
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
        pytest.param(piece(index=0, name="a", arguments="x" * 1_000_000), id="arguments"),
        pytest.param(delta(content="x" * 1_000_000), id="text"),
        pytest.param(delta(reasoning="x" * 1_000_000), id="reasoning"),
    ],
)
def test_a_reply_without_end_is_ended_at_a_cap(event: dict[str, Any]) -> None:
    parser, builder = ChatReplyParser(label="test", model="m"), ReplyBuilder()
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


# --- a whole reply instead of a stream ----------------------------------------------------------------------------


def whole(message: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **fields}).encode()


@pytest.mark.parametrize("chunking", CHUNKINGS)
def test_one_json_object_is_understood_as_a_reply(chunking: Chunking) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}
    body = b"\n " + whole({"content": "hi", "reasoning_content": "r", "tool_calls": [call]}, usage=USAGE)
    reply, error = read(pieces(body, chunking))
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
def test_one_json_object_that_is_no_reply_is_an_error(body: bytes, kind: str) -> None:
    reply, error = read([body])
    assert error is not None
    assert (reply.complete, error.provider_type) == (False, kind)
