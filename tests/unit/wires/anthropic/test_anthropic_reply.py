"""Tests of the Anthropic parser without a network: recorded streams and unusual ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.llms import Finished, ReplyBuilder, ToolCallDelta, Usage
from agenticx.llms.reply_limits import MAX_CALLS, MAX_ITEMS, MAX_REPLY_BYTES
from tests.support.wires.anthropic_events import (
    END,
    content_block,
    error_event,
    json_delta,
    message_delta,
    message_start,
    read,
    signature_delta,
    text_delta,
    thinking_delta,
)
from tests.support.wires.recorded import CHUNKINGS, Chunking, Recording, outcome, recordings, split_body
from tests.support.wires.replies import deltas_of, sse
from tests.support.wires.wires import WIRES

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


# --- text and reasoning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "text", "reasoning"),
    [
        pytest.param(
            [*content_block(0, "text", text_delta("a"), text_delta("b"), text=""), message_delta()],
            "ab",
            "",
            id="streamed",
        ),
        pytest.param(
            [*content_block(0, "text", text_delta("b"), text="a"), message_delta()], "ab", "", id="begun with text"
        ),
        pytest.param([message_start({"type": "text", "text": "a"})], "a", "", id="whole in message_start"),
        pytest.param(
            [message_start(), message_start(), *content_block(0, "text", text_delta("a"))], "a", "", id="twice"
        ),
        pytest.param(
            content_block(0, "thinking", thinking_delta("t"), signature_delta("s"), thinking="")
            + content_block(1, "text", text_delta("a")),
            "a",
            "t",
            id="thought",
        ),
        pytest.param(
            content_block(0, "redacted_thinking", data="x") + content_block(1, "text", text_delta("a")),
            "a",
            "",
            id="redacted thought",
        ),
        pytest.param(
            [{"type": "content_block_delta", "index": 0, "delta": text_delta("a")}], "a", "", id="never begun"
        ),
        pytest.param(
            content_block(
                0, "text", {"type": "citations_delta", "citation": {}}, text_delta("a"), {"type": "new_delta"}
            ),
            "a",
            "",
            id="citations and deltas unknown",
        ),
        pytest.param(
            [
                {"type": "ping"},
                {"type": "new_event", "message": "m"},
                {},
                "[DONE]",
                *content_block(0, "text", text_delta("a")),
            ],
            "a",
            "",
            id="events unknown",
        ),
        pytest.param(
            content_block(0, "compaction", {"type": "compaction_delta", "content": "x"}, content=None)
            + content_block(1, "text", text_delta("a")),
            "a",
            "",
            id="compaction",
        ),
        pytest.param(
            content_block(0, "web_search_tool_result", content=[{"type": "text", "text": "x"}])
            + content_block(1, "text", text_delta("a")),
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
def test_text_and_reasoning(events: list[Any], text: str, reasoning: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*events, END), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (text, reasoning, True, None)


def test_events_after_the_end_marker_are_ignored() -> None:
    reply, error = read(
        [sse(*content_block(0, "text", text_delta("a")), END, *content_block(1, "text", text_delta("b")), "not json")]
    )
    assert (reply.text, reply.complete, error) == ("a", True, None)


# --- calls --------------------------------------------------------------------------------------------------------

CALL = {"id": "toolu_1", "name": "a"}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            content_block(0, "tool_use", json_delta(""), json_delta('{"x"'), json_delta(":1}"), **CALL, input={}),
            [("toolu_1", "a", '{"x":1}')],
            id="streamed",
        ),
        pytest.param(
            content_block(0, "tool_use", **CALL, input={"x": 1}),
            [("toolu_1", "a", '{"x":1}')],
            id="whole at its beginning",
        ),
        pytest.param(
            content_block(0, "tool_use", json_delta(""), **CALL, input={"x": 1}),
            [("toolu_1", "a", '{"x":1}')],
            id="whole, with an empty piece",
        ),
        pytest.param(
            content_block(0, "tool_use", json_delta('{"x":2}'), **CALL, input={"x": 1}),
            [("toolu_1", "a", '{"x":2}')],
            id="whole and streamed",
        ),
        pytest.param(content_block(0, "tool_use", **CALL, input={}), [("toolu_1", "a", "")], id="no arguments"),
        pytest.param(content_block(0, "tool_use", **CALL), [("toolu_1", "a", "")], id="no input"),
        pytest.param(
            content_block(0, "tool_use", **CALL, input='{"x":1}'),
            [("toolu_1", "a", '{"x":1}')],
            id="an input that is text",
        ),
        pytest.param(
            [message_start({"type": "tool_use", **CALL, "input": {"x": 1}})],
            [("toolu_1", "a", '{"x":1}')],
            id="whole in message_start",
        ),
        pytest.param(
            [
                *content_block(0, "tool_use", **CALL)[:1],
                *content_block(1, "tool_use", json_delta('{"y":2}'), id="toolu_2", name="b"),
                {"type": "content_block_delta", "index": 0, "delta": json_delta('{"x":1}')},
                {"type": "content_block_stop", "index": 0},
            ],
            [("toolu_1", "a", '{"x":1}'), ("toolu_2", "b", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            content_block(0, "tool_use", json_delta('{"x":1}'), **CALL)
            + content_block(0, "tool_use", json_delta('{"y":2}'), id="toolu_2", name="b"),
            [("toolu_1", "a", '{"x":1}'), ("toolu_2", "b", '{"y":2}')],
            id="index always 0",
        ),
        pytest.param(
            content_block(0, "server_tool_use", json_delta('{"q":1}'), id="srvtoolu_1", name="web_search")
            + content_block(1, "mcp_tool_use", id="mcptoolu_1", name="x", input={"x": 1})
            + content_block(2, "tool_use", json_delta("{}"), **CALL),
            [("toolu_1", "a", "{}")],
            id="calls that the provider runs itself",
        ),
    ],
)
def test_tool_calls(events: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*events, message_delta("tool_use"), END), chunking))
        assert ([(call.id, call.name, call.arguments) for call in reply.tool_calls], error) == (calls, None)
        assert (reply.stop, reply.finish_reason) == ("tool_calls", "tool_use")


@pytest.mark.promise("C4")
def test_a_call_without_its_end_marks_the_reply_as_broken() -> None:
    reply, error = read(
        [sse(*content_block(0, "tool_use", **CALL, input={"x": 1})[:1], message_delta("tool_use"), END)]
    )
    assert ([call.arguments for call in reply.tool_calls], reply.stop, error) == (['{"x":1}'], "broken", None)


def test_arguments_are_streamed_as_they_arrive() -> None:
    parser = WIRES["anthropic"].parser("m")
    begin, first, second, _ = content_block(0, "tool_use", json_delta('{"x"'), json_delta(":1}"), **CALL)
    assert parser.feed(sse(begin)) == [ToolCallDelta(0, "toolu_1", "a")]
    assert parser.feed(sse(first)) == [ToolCallDelta(0, arguments='{"x"')]
    assert parser.feed(sse(second)) == [ToolCallDelta(0, arguments=":1}")]


@pytest.mark.promise("C3")
def test_a_truncated_call_has_no_arguments() -> None:
    reply, error = read([sse(*content_block(0, "tool_use", **CALL, input={"x": 1})[:1])])
    assert ([call.arguments for call in reply.tool_calls], reply.complete, error) == ([""], False, None)


def test_a_tool_name_that_was_sent_in_another_form_is_mapped_back() -> None:
    reply, _ = read([sse(*content_block(0, "tool_use", **CALL), END)], original_names={"a": "our.a"})
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
def test_the_stop_reason_is_kept_and_mapped(reason: str | None, kind: str) -> None:
    reply, _ = read([sse(*content_block(0, "text", text_delta("a")), message_delta(reason), END)])
    assert (reply.stop, reply.finish_reason) == (kind, reason)


@pytest.mark.promise("C3")
def test_a_stop_reason_without_end_marker_is_kept_but_does_not_complete_the_reply() -> None:
    reply, error = read([sse(*content_block(0, "text", text_delta("a")), message_delta())])
    assert (reply.text, reply.complete, reply.finish_reason, error) == ("a", False, "end_turn", None)


def test_usage_is_the_last_reported_and_excludes_cached_tokens() -> None:
    body = sse(
        message_start(input_tokens=10, output_tokens=1, cache_read_input_tokens=7, cache_creation_input_tokens=5),
        message_delta(input_tokens=12, output_tokens=4, output_tokens_details={"thinking_tokens": 3}),
        END,
    )
    usage = read([body])[0].usage
    assert usage == Usage(12, 4, 7, 3, cache_write_tokens=5, input_excludes_cached=True)
    assert usage.total_input_tokens == 24
    assert (usage + Usage(1, 1)).input_tokens == 25


# --- provider state -----------------------------------------------------------------------------------------------


def test_thinking_and_server_tools_are_kept_in_the_provider_state_block_by_block() -> None:
    body = sse(
        message_start(),
        *content_block(
            0, "thinking", thinking_delta("t1"), thinking_delta("t2"), signature_delta("s"), thinking="", signature=""
        ),
        *content_block(1, "redacted_thinking", data="x"),
        *content_block(
            2, "text", {"type": "citations_delta", "citation": {"n": 1}}, text_delta("a"), text_delta("b"), text=""
        ),
        *content_block(
            3, "server_tool_use", json_delta('{"q":'), json_delta("1}"), id="srvtoolu_1", name="web_search", input={}
        ),
        *content_block(4, "tool_use", json_delta("{}"), **CALL, input={}, caller={"type": "direct"}),
        *content_block(5, "compaction", {"type": "compaction_delta", "content": "c"}, content=None),
        message_delta("tool_use"),
        END,
    )
    for chunking in CHUNKINGS:
        state = read(split_body(body, chunking))[0].provider_state
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
        pytest.param(
            content_block(0, "text", text_delta("a")) + content_block(1, "tool_use", **CALL), id="text and calls"
        ),
        pytest.param(
            content_block(0, "thinking", thinking_delta("t")) + content_block(1, "text", text_delta("a")),
            id="a thought unsigned",
        ),
    ],
)
def test_content_that_the_message_has_as_well_needs_no_provider_state(events: list[Any]) -> None:
    assert read([sse(*events, END)])[0].provider_state is None


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code", "kind"),
    [
        pytest.param(
            error_event("overloaded_error", "Overloaded"), "provider.overloaded", "overloaded_error", id="busy"
        ),
        pytest.param(error_event("api_error"), "provider.overloaded", "api_error", id="internal"),
        pytest.param(error_event("timeout_error"), "provider.overloaded", "timeout_error", id="timeout"),
        pytest.param(error_event("rate_limit_error"), "provider.rate_limited", "rate_limit_error", id="rate limit"),
        pytest.param(error_event("authentication_error"), "provider.auth", "authentication_error", id="key"),
        pytest.param(error_event("permission_error"), "provider.auth", "permission_error", id="permission"),
        pytest.param(error_event("billing_error"), "provider.auth", "billing_error", id="billing"),
        pytest.param(
            error_event("invalid_request_error"), "provider.bad_request", "invalid_request_error", id="request"
        ),
        pytest.param(
            error_event("invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum"),
            "context_overflow",
            "invalid_request_error",
            id="context",
        ),
        pytest.param(
            error_event("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 21333"),
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
        pytest.param(message_start("x"), "provider.bad_reply", "protocol_error", id="a block that is text"),
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
            {"type": "content_block_delta", "index": 7, "delta": json_delta('{"x":1}')},
            "provider.bad_reply",
            "protocol_error",
            id="arguments of no call",
        ),
    ],
)
def test_an_error_in_the_stream_keeps_the_content_before_it(event: Any, code: str, kind: str) -> None:
    for chunking in CHUNKINGS:
        body = sse(
            *content_block(0, "text", text_delta("a")), event, *content_block(1, "text", text_delta("late")), END
        )
        reply, error = read(split_body(body, chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type) == ("a", False, code, kind)


@pytest.mark.promise("C3")
def test_a_body_cut_inside_an_event_is_truncated_not_malformed() -> None:
    reply, error = read([sse(*content_block(0, "text", text_delta("a"))) + b'data: {"type":"message_st'])
    assert (reply.text, reply.complete, error) == ("a", False, None)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(content_block(0, "tool_use", **CALL), id="calls"),
        pytest.param(content_block(0, "tool_use", json_delta("x" * 1_000_000), **CALL), id="arguments"),
        pytest.param(content_block(0, "text", text_delta("x" * 1_000_000)), id="text"),
        pytest.param(content_block(0, "thinking", thinking_delta("x" * 1_000_000)), id="thoughts"),
        pytest.param(content_block(0, "web_search_tool_result", content="x" * 1_000_000), id="results"),
    ],
)
@pytest.mark.cases(quick=2)
def test_an_endless_reply_is_ended_at_a_limit(events: list[Any]) -> None:
    parser, builder, body = WIRES["anthropic"].parser("m"), ReplyBuilder(), sse(*events)
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
def test_a_single_json_object_is_read_as_a_reply(chunking: Chunking) -> None:
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
    assert outcome(*read(split_body(b"\n " + json.dumps(message).encode(), chunking))) == {
        "text": "a",
        "reasoning": "t",
        "tool_calls": [{"name": "a", "arguments": {"x": 1}}],
        "finish_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 4},
        "error": False,
        "error_type": None,
        "complete": True,
    }


def test_a_single_json_object_with_an_error_is_an_error() -> None:
    reply, error = read([json.dumps(error_event("overloaded_error")).encode()])
    assert error is not None
    assert (reply.complete, error.provider_type) == (False, "overloaded_error")


def test_finished_is_the_last_delta_and_comes_once() -> None:
    parser = WIRES["anthropic"].parser("m")
    deltas = list(deltas_of(parser, [sse(*content_block(0, "text", text_delta("a")), message_delta(), END, END)]))
    assert deltas[-1] == Finished("end", "end_turn")
    assert sum(isinstance(delta, Finished) for delta in deltas) == 1
