"""Tests of the Responses parser without a network: recorded streams and unusual ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agenticx.llms import Finished, Usage
from agenticx.llms.reply_limits import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_ITEMS
from tests.support.wires.recorded import CHUNKINGS, Recording, recordings, split_body
from tests.support.wires.replies import sse
from tests.support.wires.responses_events import (
    END,
    arguments_delta,
    event,
    function_call,
    item_added,
    item_done,
    message_item,
    read,
    response_ended,
    text_delta,
)
from tests.support.wires.wires import WIRES

# --- recorded streams ---------------------------------------------------------------------------------------------


@pytest.mark.promise("C3")
@pytest.mark.parametrize("recording", recordings("responses"))
@pytest.mark.cases(quick=10)
def test_a_stream_cut_at_any_event_is_complete_only_with_its_end_marker(recording: Recording) -> None:
    events = recording.body.split(b"\n\n")
    step = max(1, len(events) // 60)  # each prefix is read anew
    for count in {*range(0, len(events), step), *range(max(0, len(events) - 20), len(events))}:
        reply, error = read([b"\n\n".join([*events[:count], b""])])
        marked = any(b'"type":"response.completed"' in line.replace(b" ", b"") for line in events[:count])
        assert reply.complete == (marked and error is None), f"after {count} events"


@pytest.mark.promise("C3")
@pytest.mark.parametrize("recording", recordings("responses"))
@pytest.mark.cases(quick=10)
def test_a_stream_cut_inside_an_event_is_incomplete_and_no_protocol_error(recording: Recording) -> None:
    marker = recording.body.rfind(b'"type":"response.completed"')
    end = recording.body.find(b"\n", marker)
    reply, error = read([recording.body[: (end if end > 0 else len(recording.body)) - 2]])
    assert not reply.complete
    assert (error and error.provider_type) == ("protocol_error" if "bad_json" in recording.notes["tags"] else None)


# --- text and reasoning -------------------------------------------------------------------------------------------

SUMMARY = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}


@pytest.mark.parametrize(
    ("events", "text", "reasoning"),
    [
        pytest.param([text_delta("a"), text_delta("b"), END], "ab", "", id="deltas"),
        pytest.param(
            [text_delta("a"), event("output_text.done", text="ab"), END], "ab", "", id="a done text that knows more"
        ),
        pytest.param(
            [text_delta("ab"), event("output_text.done", text="xy"), END], "ab", "", id="a done text that differs"
        ),
        pytest.param(
            [text_delta("ab"), event("output_text.done"), item_done(**message_item("ab")), END],
            "ab",
            "",
            id="text three times",
        ),
        pytest.param([item_done(**message_item("a", "b")), END], "ab", "", id="a whole item without deltas"),
        pytest.param(
            [item_added(**message_item()), item_done(**message_item("a")), item_done(**message_item("a")), END],
            "a",
            "",
            id="ended twice",
        ),
        pytest.param(
            [text_delta("a", 0), text_delta("b", 1), text_delta("c", 0), END], "abc", "", id="two messages at once"
        ),
        pytest.param(
            [text_delta("a", part=0), text_delta("b", part=1), item_done(**message_item("a", "b")), END],
            "ab",
            "",
            id="two parts",
        ),
        pytest.param([response_ended(output=[message_item("a")])], "a", "", id="only in the end marker"),
        pytest.param(
            [text_delta("a"), response_ended(output=[message_item("a")])], "a", "", id="in deltas and in the end marker"
        ),
        pytest.param(
            [item_added(**message_item()), text_delta("a"), response_ended(output=[message_item("ab")])],
            "ab",
            "",
            id="the end marker knows more",
        ),
        pytest.param(
            [text_delta("a", None), text_delta("b", None), item_done(None, **message_item("ab")), END],
            "ab",
            "",
            id="no index",
        ),
        pytest.param(
            [
                item_added(0, **SUMMARY, id="1"),
                event("reasoning_summary_text.delta", 0, item_id="2", summary_index=0, delta="r"),
                item_done(0, **SUMMARY, id="3"),
                item_added(1, **message_item(), id="4"),
                {**text_delta("a", 1), "item_id": "5"},
                item_done(1, **message_item("a"), id="6"),
                END,
            ],
            "a",
            "r",
            id="another id in each event",
        ),
        pytest.param(
            [item_done(0, **THOUGHT), item_done(0, **message_item("a")), END], "a", "r", id="index 0 for every item"
        ),
        pytest.param(
            [event("reasoning_text.delta", delta="r"), text_delta("a", 1), END], "a", "r", id="reasoning text"
        ),
        pytest.param(
            [
                event("reasoning_summary_text.delta", summary_index=0, delta="r"),
                event("reasoning_summary_text.delta", summary_index=1, delta="s"),
                event("reasoning_summary_text.delta", summary_index=1, delta="t"),
                END,
            ],
            "",
            "r\n\nst",
            id="summary parts",
        ),
        pytest.param([item_done(**SUMMARY, encrypted_content="x"), END], "", "r", id="a whole summary beside a cipher"),
        pytest.param(
            [event("refusal.delta", delta="I "), event("refusal.done", refusal="I cannot."), END],
            "I cannot.",
            "",
            id="a refusal",
        ),
        pytest.param(
            [item_done(type="message", content=[{"type": "refusal", "refusal": "No."}]), END],
            "No.",
            "",
            id="a whole refusal",
        ),
        pytest.param(
            [text_delta(""), event("output_text.delta", delta=None), event("output_text.delta"), text_delta("a"), END],
            "a",
            "",
            id="nothings",
        ),
        pytest.param(
            [event("code_interpreter_call_code.delta", delta="x"), text_delta("a"), END], "a", "", id="code of others"
        ),
        pytest.param(
            [{"type": "ping"}, {"type": "keepalive", "message": "x"}, text_delta("a"), END],
            "a",
            "",
            id="unknown events",
        ),
        pytest.param(
            ['{"type":"response.output_text.delta","delta":"a\\ud83db"}', END], "a\ufffdb", "", id="a lone surrogate"
        ),
        pytest.param(
            ['{"type":"response.output_text.delta","delta":"a","logprobs":NaN}', END], "a", "", id="not a number"
        ),
        pytest.param([text_delta("a"), END, text_delta("b")], "a", "", id="after the end"),
    ],
)
def test_text_and_reasoning(events: list[Any], text: str, reasoning: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*events), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (text, reasoning, True, None)


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "stop", "word"),
    [
        (END, "end", "completed"),
        (
            response_ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "incomplete:max_output_tokens",
        ),
        (
            response_ended("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            "incomplete:content_filter",
        ),
        (response_ended("incomplete", incomplete_details=None), "length", "incomplete"),
        ({"type": "response.completed", "response": {}}, "end", "completed"),
        ({"type": "response.completed"}, "end", "completed"),
        ({"type": "response.completed", "response": {"status": "in_progress"}}, "end", "completed"),
    ],
)
def test_the_finish_reason_is_kept_and_mapped(end: dict[str, Any], stop: str, word: str) -> None:
    reply, error = read([sse(text_delta("a"), end)])
    assert (reply.text, reply.stop, reply.finish_reason, reply.complete, error) == ("a", stop, word, True, None)


@pytest.mark.parametrize("rest", [[], ["[DONE]"], [event("in_progress", None, response={"status": "in_progress"})]])
def test_without_an_end_marker_a_reply_is_incomplete(rest: list[Any]) -> None:
    reply, error = read([sse(text_delta("a"), *rest)])
    assert (reply.text, reply.complete, error) == ("a", False, None)


def test_usage_has_the_provider_s_counts_and_cost() -> None:
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.25,
    }
    early = event("in_progress", None, response={"usage": {"input_tokens": 7}})
    reply, _ = read([sse(early, response_ended(usage=usage))])
    assert reply.usage == Usage(7, 5, 3, 2, Decimal("0.25"), cache_write_tokens=4)


def test_a_single_json_object_is_read_as_a_reply() -> None:
    whole = {
        "object": "response",
        "status": "completed",
        "output": [message_item("a"), function_call(arguments="{}")],
        "usage": None,
    }
    for chunking in CHUNKINGS:
        reply, error = read(split_body(json.dumps(whole).encode(), chunking))
        assert (reply.text, [call.name for call in reply.tool_calls], reply.complete, error) == (
            "a",
            ["add"],
            True,
            None,
        )


def test_output_items_are_kept_unchanged_in_the_provider_state() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    message, call = message_item("a", id="msg_1", phase="commentary"), function_call(arguments="{}", id="fc_1")
    reply, _ = read(
        [sse(item_added(0, **THOUGHT), item_done(1, **message), item_done(0, **reasoning), item_done(2, **call), END)]
    )
    assert reply.provider_state is not None
    assert reply.provider_state.model_dump() == {
        "wire": "openai-responses",
        "model": "m",
        "payload": {"output": [reasoning, message, call]},
    }


# --- errors ---------------------------------------------------------------------------------------------------------

FAILED = {"code": "server_error", "message": "m"}


@pytest.mark.parametrize(
    ("complaint", "code", "kind", "retryable"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None},
            "provider.rate_limited",
            "rate_limit_exceeded",
            True,
        ),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "code": "x", "message": "m"}},
            "provider.bad_request",
            "invalid_request_error",
            False,
        ),
        (
            {"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "m"}},
            "provider.rate_limited",
            "tokens",
            True,
        ),
        ({"type": "error", "code": None, "message": "m"}, "provider.bad_reply", None, False),
        (
            {"type": "error", "code": "context_length_exceeded", "message": "m"},
            "context_overflow",
            "context_length_exceeded",
            False,
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "image_parse_error", "message": "m"}}},
            "provider.bad_request",
            "image_parse_error",
            False,
        ),
        ({"error": {"code": 502, "message": "m"}}, "provider.overloaded", "502", True),
        (response_ended("failed", error=FAILED), "provider.overloaded", "server_error", True),
        (response_ended("failed", error=None), "provider.bad_reply", "failed", False),
        ({"type": "response.failed", "response": {"error": FAILED}}, "provider.overloaded", "server_error", True),
    ],
)
def test_an_error_in_the_stream_keeps_the_content_before_it(
    complaint: dict[str, Any], code: str, kind: str | None, retryable: bool
) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(
            split_body(
                sse(text_delta("a"), item_added(1, **function_call()), complaint, text_delta("b"), END), chunking
            )
        )
        assert error is not None
        assert (error.code, error.provider_type, error.retryable) == (code, kind, retryable)
        assert (reply.text, len(reply.tool_calls), reply.complete) == ("a", 1, False)


@pytest.mark.parametrize(
    "event",
    [
        "{",
        "[]",
        "null",
        '"x"',
        "[" * 50_000,
        '{"type":"response.output_text.delta","delta":"a"',
    ],
)
def test_an_event_that_is_no_json_object_is_a_protocol_error(event: str) -> None:
    reply, error = read([sse(text_delta("a"), event, END)])
    assert error is not None
    assert (reply.text, reply.complete, error.code, error.provider_type) == (
        "a",
        False,
        "provider.bad_reply",
        "protocol_error",
    )


@pytest.mark.parametrize(
    "malformed",
    [
        {"type": 1},
        {"type": None, "delta": "x"},
        event("output_text.delta", "0", delta=["x"]),
        event("output_item.added", item=None),
        event("output_item.done", item=[]),
        event("output_item.done", item={"type": "message", "content": "x"}),
        event("output_item.done", item={"type": "message", "content": [None, {"type": ["x"]}]}),
        event("output_item.done", item={"type": "reasoning", "summary": {"text": "x"}}),
        event("in_progress", None, response=[]),
        event("in_progress", None, response={"usage": {"input_tokens": "many", "output_tokens": -1, "cost": True}}),
        event("function_call_arguments.done", 7, arguments=None, item_id=4),
    ],
)
def test_fields_of_the_wrong_type_count_as_missing(malformed: dict[str, Any]) -> None:
    reply, error = read([sse(malformed, text_delta("a", 9), response_ended(output=None))])
    assert (reply.text, reply.usage, reply.complete, error) == ("a", Usage(), True, None)


@pytest.mark.promise("C7")
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(
            lambda: [item_done(index, **function_call(call_id=str(index))) for index in range(MAX_CALLS + 1)],
            id="calls",
        ),
        pytest.param(lambda: [item_done(index, type="web_search_call") for index in range(MAX_ITEMS + 1)], id="items"),
        pytest.param(
            lambda: [arguments_delta("x" * 1_000_000)] * (MAX_ARGUMENT_CHARS // 1_000_000 + 1), id="arguments"
        ),
        pytest.param(lambda: [text_delta("x" * 1_000_000)] * 34, id="text"),
        pytest.param(
            lambda: [item_done(index % 2, **message_item("x" * 1_000_000), id=str(index)) for index in range(34)],
            id="whole items",
        ),
    ],
)
@pytest.mark.cases(quick=1)
def test_an_endless_reply_is_ended_at_a_limit(flood: Callable[[], list[Any]]) -> None:
    reply, error = read(sse(item) for item in [*flood(), END])
    assert error is not None
    assert (error.code, error.provider_type, reply.complete) == ("provider.bad_reply", "protocol_error", False)


def test_nothing_is_yielded_after_the_end() -> None:
    parser = WIRES["openai_responses"].parser("m")
    assert [type(delta) for delta in parser.feed(sse(END, END, text_delta("x")))] == [Finished]
    assert (parser.done, parser.end()) == (True, [])
