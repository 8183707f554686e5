"""Replies of the Anthropic parser, without a network: recorded streams and odd ones written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.base import Finished, Reply, ReplyBuilder, ToolCallDelta, Usage
from agenticx.llms.reply_limits import MAX_CALLS, MAX_ITEMS, MAX_REPLY_BYTES
from agenticx.llms.wires.anthropic._reply import AnthropicReplyParser
from tests.support.wires.recorded import CHUNKINGS, Chunking, Recording, outcome, pieces, recordings
from tests.support.wires.replies import deltas_of, read_with, sse


def read(chunks: Iterable[bytes], **options: Any) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return read_with(AnthropicReplyParser(label="test", model="m", **options), chunks)


def start(*content: Any, **usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"role": "assistant", "content": [*content], "usage": usage}}


def block(index: int, type_: str, *deltas: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a content block from its start to its end."""
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": type_, **fields}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(words: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": words}


def signed(signature: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": signature}


def piece(json_text: Any) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": json_text}


def stop(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **({"usage": usage} if usage else {})}


END = {"type": "message_stop"}


# --- recorded streams ---------------------------------------------------------------------------------------------


@pytest.mark.promise("C3")
@pytest.mark.parametrize("recording", recordings("anthropic"))
@pytest.mark.cases(quick=6)
def test_a_stream_cut_between_events_is_complete_only_with_an_end_marker(recording: Recording) -> None:
    events = recording.body.replace(b"\r\n", b"\n").split(b"\n\n")
    step = max(1, len(events) // 60)  # each prefix is read anew
    for count in {*range(0, len(events), step), *range(max(0, len(events) - 15), len(events))}:
        kept = b"\n\n".join([*events[:count], b""])
        reply, error = read([kept])
        assert (reply.complete, error) == (b"event: message_stop" in kept, None), f"after {count} events"


# --- text and thoughts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "said", "thought_of"),
    [
        pytest.param([*block(0, "text", text("a"), text("b"), text=""), stop()], "ab", "", id="streamed"),
        pytest.param([*block(0, "text", text("b"), text="a"), stop()], "ab", "", id="begun with text"),
        pytest.param([start({"type": "text", "text": "a"})], "a", "", id="whole in message_start"),
        pytest.param([start(), start(), *block(0, "text", text("a"))], "a", "", id="twice"),
        pytest.param(
            block(0, "thinking", thought("t"), signed("s"), thinking="") + block(1, "text", text("a")),
            "a",
            "t",
            id="thought",
        ),
        pytest.param(
            block(0, "redacted_thinking", data="x") + block(1, "text", text("a")), "a", "", id="redacted thought"
        ),
        pytest.param([{"type": "content_block_delta", "index": 0, "delta": text("a")}], "a", "", id="never begun"),
        pytest.param(
            block(0, "text", {"type": "citations_delta", "citation": {}}, text("a"), {"type": "new_delta"}),
            "a",
            "",
            id="citations and deltas unknown",
        ),
        pytest.param(
            [{"type": "ping"}, {"type": "new_event", "message": "m"}, {}, "[DONE]", *block(0, "text", text("a"))],
            "a",
            "",
            id="events unknown",
        ),
        pytest.param(
            block(0, "compaction", {"type": "compaction_delta", "content": "x"}, content=None)
            + block(1, "text", text("a")),
            "a",
            "",
            id="compaction",
        ),
        pytest.param(
            block(0, "web_search_tool_result", content=[{"type": "text", "text": "x"}]) + block(1, "text", text("a")),
            "a",
            "",
            id="results of the provider's own tools",
        ),
        pytest.param(
            ['{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83db"}}'],
            "a\ufffdb",
            "",
            id="a lone surrogate",
        ),
    ],
)
def test_what_was_said_and_what_was_thought(events: list[Any], said: str, thought_of: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*events, END), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (said, thought_of, True, None)


def test_after_the_end_marker_nothing_counts() -> None:
    reply, error = read([sse(*block(0, "text", text("a")), END, *block(1, "text", text("b")), "not json")])
    assert (reply.text, reply.complete, error) == ("a", True, None)


# --- calls --------------------------------------------------------------------------------------------------------

CALL = {"id": "toolu_1", "name": "a"}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            block(0, "tool_use", piece(""), piece('{"x"'), piece(":1}"), **CALL, input={}),
            [("toolu_1", "a", '{"x":1}')],
            id="streamed",
        ),
        pytest.param(
            block(0, "tool_use", **CALL, input={"x": 1}), [("toolu_1", "a", '{"x":1}')], id="whole at its beginning"
        ),
        pytest.param(
            block(0, "tool_use", piece(""), **CALL, input={"x": 1}),
            [("toolu_1", "a", '{"x":1}')],
            id="whole, with an empty piece",
        ),
        pytest.param(
            block(0, "tool_use", piece('{"x":2}'), **CALL, input={"x": 1}),
            [("toolu_1", "a", '{"x":2}')],
            id="whole and streamed",
        ),
        pytest.param(block(0, "tool_use", **CALL, input={}), [("toolu_1", "a", "")], id="no arguments"),
        pytest.param(block(0, "tool_use", **CALL), [("toolu_1", "a", "")], id="no input"),
        pytest.param(
            block(0, "tool_use", **CALL, input='{"x":1}'), [("toolu_1", "a", '{"x":1}')], id="an input that is text"
        ),
        pytest.param(
            [start({"type": "tool_use", **CALL, "input": {"x": 1}})],
            [("toolu_1", "a", '{"x":1}')],
            id="whole in message_start",
        ),
        pytest.param(
            [
                *block(0, "tool_use", **CALL)[:1],
                *block(1, "tool_use", piece('{"y":2}'), id="toolu_2", name="b"),
                {"type": "content_block_delta", "index": 0, "delta": piece('{"x":1}')},
                {"type": "content_block_stop", "index": 0},
            ],
            [("toolu_1", "a", '{"x":1}'), ("toolu_2", "b", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            block(0, "tool_use", piece('{"x":1}'), **CALL)
            + block(0, "tool_use", piece('{"y":2}'), id="toolu_2", name="b"),
            [("toolu_1", "a", '{"x":1}'), ("toolu_2", "b", '{"y":2}')],
            id="index always 0",
        ),
        pytest.param(
            block(0, "server_tool_use", piece('{"q":1}'), id="srvtoolu_1", name="web_search")
            + block(1, "mcp_tool_use", id="mcptoolu_1", name="x", input={"x": 1})
            + block(2, "tool_use", piece("{}"), **CALL),
            [("toolu_1", "a", "{}")],
            id="calls that the provider runs itself",
        ),
    ],
)
def test_calls(events: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*events, stop("tool_use"), END), chunking))
        assert ([(call.id, call.name, call.arguments) for call in reply.tool_calls], error) == (calls, None)
        assert (reply.stop, reply.finish_reason) == ("tool_calls", "tool_use")


@pytest.mark.promise("C4")
def test_a_call_without_its_end_is_listed_and_not_to_be_run() -> None:
    reply, error = read([sse(*block(0, "tool_use", **CALL, input={"x": 1})[:1], stop("tool_use"), END)])
    assert ([call.arguments for call in reply.tool_calls], reply.stop, error) == (['{"x":1}'], "broken", None)


def test_arguments_come_out_as_they_come_in() -> None:
    parser = AnthropicReplyParser(label="test", model="m")
    begin, first, second, _ = block(0, "tool_use", piece('{"x"'), piece(":1}"), **CALL)
    assert parser.feed(sse(begin)) == [ToolCallDelta(0, "toolu_1", "a")]
    assert parser.feed(sse(first)) == [ToolCallDelta(0, arguments='{"x"')]
    assert parser.feed(sse(second)) == [ToolCallDelta(0, arguments=":1}")]


@pytest.mark.promise("C3")
def test_a_call_that_was_cut_has_no_arguments_it_might_run_with() -> None:
    reply, error = read([sse(*block(0, "tool_use", **CALL, input={"x": 1})[:1])])
    assert ([call.arguments for call in reply.tool_calls], reply.complete, error) == ([""], False, None)


def test_tools_that_the_provider_knows_by_another_name_have_ours_again() -> None:
    reply, _ = read([sse(*block(0, "tool_use", **CALL), END)], original_names={"a": "our.a"})
    assert [call.name for call in reply.tool_calls] == ["our.a"]


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("pause_turn", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a_new_word", "broken"),
        (None, "end"),
    ],
)
def test_the_stop_reason_stays_the_providers_word_and_gets_ours_beside_it(reason: str | None, kind: str) -> None:
    reply, _ = read([sse(*block(0, "text", text("a")), stop(reason), END)])
    assert (reply.stop, reply.finish_reason) == (kind, reason)


@pytest.mark.promise("C3")
def test_a_stop_reason_alone_is_no_end_and_is_kept() -> None:
    reply, error = read([sse(*block(0, "text", text("a")), stop())])
    assert (reply.text, reply.complete, reply.finish_reason, error) == ("a", False, "end_turn", None)


def test_usage_is_the_latest_that_was_reported_and_cached_tokens_stand_beside_it() -> None:
    body = sse(
        start(input_tokens=10, output_tokens=1, cache_read_input_tokens=7, cache_creation_input_tokens=5),
        stop(input_tokens=12, output_tokens=4, output_tokens_details={"thinking_tokens": 3}),
        END,
    )
    usage = read([body])[0].usage
    assert usage == Usage(12, 4, 7, 3, cache_write_tokens=5, input_excludes_cached=True)
    assert usage.total_input_tokens == 24
    assert (usage + Usage(1, 1)).input_tokens == 25


# --- what goes back to the provider -------------------------------------------------------------------------------


def test_thoughts_and_what_the_provider_did_itself_are_kept_for_it_block_by_block() -> None:
    body = sse(
        start(),
        *block(0, "thinking", thought("t1"), thought("t2"), signed("s"), thinking="", signature=""),
        *block(1, "redacted_thinking", data="x"),
        *block(2, "text", {"type": "citations_delta", "citation": {"n": 1}}, text("a"), text("b"), text=""),
        *block(3, "server_tool_use", piece('{"q":'), piece("1}"), id="srvtoolu_1", name="web_search", input={}),
        *block(4, "tool_use", piece("{}"), **CALL, input={}, caller={"type": "direct"}),
        *block(5, "compaction", {"type": "compaction_delta", "content": "c"}, content=None),
        stop("tool_use"),
        END,
    )
    for chunking in CHUNKINGS:
        state = read(pieces(body, chunking))[0].provider_state
        assert state is not None
        assert (state.wire, state.model) == ("anthropic", "m")
        assert json.loads(json.dumps(state.payload)) == {
            "content": [
                {"type": "thinking", "thinking": "t1t2", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "ab", "citations": [{"n": 1}]},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1}},
                {"type": "tool_use", "caller": {"type": "direct"}},
                {"type": "compaction", "content": "c"},
            ]
        }


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(block(0, "text", text("a")) + block(1, "tool_use", **CALL), id="text and calls"),
        pytest.param(block(0, "thinking", thought("t")) + block(1, "text", text("a")), id="a thought unsigned"),
    ],
)
def test_what_the_message_says_anyway_is_not_kept(events: list[Any]) -> None:
    assert read([sse(*events, END)])[0].provider_state is None


# --- errors -------------------------------------------------------------------------------------------------------


def failed(type_: str, message: str = "m") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "message": message}}


@pytest.mark.parametrize(
    ("event", "code", "kind"),
    [
        pytest.param(failed("overloaded_error", "Overloaded"), "provider.overloaded", "overloaded_error", id="busy"),
        pytest.param(failed("api_error"), "provider.overloaded", "api_error", id="internal"),
        pytest.param(failed("timeout_error"), "provider.overloaded", "timeout_error", id="timeout"),
        pytest.param(failed("rate_limit_error"), "provider.rate_limited", "rate_limit_error", id="rate limit"),
        pytest.param(failed("authentication_error"), "provider.auth", "authentication_error", id="key"),
        pytest.param(failed("permission_error"), "provider.auth", "permission_error", id="permission"),
        pytest.param(failed("billing_error"), "provider.auth", "billing_error", id="billing"),
        pytest.param(failed("invalid_request_error"), "provider.bad_request", "invalid_request_error", id="request"),
        pytest.param(
            failed("invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum"),
            "context_overflow",
            "invalid_request_error",
            id="context",
        ),
        pytest.param(
            failed("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 21333"),
            "context_overflow",
            "invalid_request_error",
            id="context with output",
        ),
        pytest.param({"type": "error"}, "provider.bad_reply", "error", id="no reason"),
        pytest.param({"error": {"message": "m", "code": 502}}, "provider.overloaded", "502", id="another format"),
        pytest.param("not json", "provider.bad_reply", "protocol_error", id="no JSON"),
        pytest.param('{"type":"content_block_st', "provider.bad_reply", "protocol_error", id="half an event"),
        pytest.param([1, 2], "provider.bad_reply", "protocol_error", id="a list"),
        pytest.param("[" * 100_000, "provider.bad_reply", "protocol_error", id="deep nesting"),
        pytest.param({"type": "message_start"}, "provider.bad_reply", "protocol_error", id="no message"),
        pytest.param(start("x"), "provider.bad_reply", "protocol_error", id="a block that is text"),
        pytest.param({"type": "content_block_start"}, "provider.bad_reply", "protocol_error", id="no block"),
        pytest.param(
            {"type": "content_block_start", "index": 1, "content_block": {}},
            "provider.bad_reply",
            "protocol_error",
            id="a block of no type",
        ),
        pytest.param(
            {"type": "content_block_delta", "index": 0, "delta": None},
            "provider.bad_reply",
            "protocol_error",
            id="no delta",
        ),
        pytest.param(
            {"type": "content_block_delta", "index": 7, "delta": piece('{"x":1}')},
            "provider.bad_reply",
            "protocol_error",
            id="arguments of no call",
        ),
    ],
)
def test_an_error_in_the_stream_keeps_what_came_before_it(event: Any, code: str, kind: str) -> None:
    for chunking in CHUNKINGS:
        body = sse(*block(0, "text", text("a")), event, *block(1, "text", text("late")), END)
        reply, error = read(pieces(body, chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, kind)


@pytest.mark.promise("C3")
def test_a_body_cut_inside_an_event_is_truncated_not_malformed() -> None:
    reply, error = read([sse(*block(0, "text", text("a"))) + b'data: {"type":"message_st'])
    assert (reply.text, reply.complete, error) == ("a", False, None)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(block(0, "tool_use", **CALL), id="calls"),
        pytest.param(block(0, "tool_use", piece("x" * 1_000_000), **CALL), id="arguments"),
        pytest.param(block(0, "text", text("x" * 1_000_000)), id="text"),
        pytest.param(block(0, "thinking", thought("x" * 1_000_000)), id="thoughts"),
        pytest.param(block(0, "web_search_tool_result", content="x" * 1_000_000), id="results"),
    ],
)
def test_a_reply_without_end_is_ended_at_a_cap(events: list[Any]) -> None:
    parser, builder, body = AnthropicReplyParser(label="test", model="m"), ReplyBuilder(), sse(*events)
    for _ in range(MAX_ITEMS + 1):
        for delta in parser.feed(body):
            builder.add(delta)
        if parser.error:
            break
    assert parser.error is not None
    assert (parser.error.code, parser.error.provider_type) == ("provider.bad_reply", "protocol_error")
    assert len(builder.reply().tool_calls) <= MAX_CALLS
    assert sum(len(call.arguments) for call in builder.reply().tool_calls) <= MAX_REPLY_BYTES


# --- a whole reply instead of a stream ----------------------------------------------------------------------------


@pytest.mark.parametrize("chunking", CHUNKINGS)
def test_one_json_object_is_understood_as_a_reply(chunking: Chunking) -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", **CALL, "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 4},
    }
    assert outcome(*read(pieces(b"\n " + json.dumps(message).encode(), chunking))) == {
        "text": "a",
        "reasoning": "t",
        "tool_calls": [{"name": "a", "arguments": {"x": 1}}],
        "finish_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 4},
        "error": False,
        "error_type": None,
        "complete": True,
    }


def test_one_json_object_that_is_an_error_is_one() -> None:
    reply, error = read([json.dumps(failed("overloaded_error")).encode()])
    assert error is not None
    assert (reply.complete, error.provider_type) == (False, "overloaded_error")


def test_the_end_comes_once_and_last() -> None:
    parser = AnthropicReplyParser(label="test", model="m")
    deltas = list(deltas_of(parser, [sse(*block(0, "text", text("a")), stop(), END, END)]))
    assert deltas[-1] == Finished("end", "end_turn")
    assert sum(isinstance(delta, Finished) for delta in deltas) == 1
