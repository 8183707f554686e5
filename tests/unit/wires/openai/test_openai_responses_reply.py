"""Replies of the Responses parser, without a network: recorded streams and odd ones written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.base import Finished, Reply, ToolCallDelta, Usage
from agenticx.llms.reply_limits import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_ITEMS
from agenticx.llms.wires.openai_responses._reply import ResponsesReplyParser
from tests.support.wires.recorded import CHUNKINGS, Recording, pieces, recordings
from tests.support.wires.replies import read_with, sse


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return read_with(ResponsesReplyParser(label="test", model="m"), chunks)


def event(name: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **({} if index is None else {"output_index": index}), **fields}


def text(words: str, index: int | None = 0, part: int = 0) -> dict[str, Any]:
    return event("output_text.delta", index, content_index=part, delta=words)


def added(index: int | None = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.added", index, item=item)


def done(index: int | None = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.done", index, item=item)


def arguments(words: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", index, delta=words, **fields)


def ended(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **fields}}


def message(*words: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": word} for word in words],
        **fields,
    }


def function(name: str = "add", call_id: str = "c1", said: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": said, **fields}


END = ended()


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
    ("events", "said", "thought"),
    [
        pytest.param([text("a"), text("b"), END], "ab", "", id="deltas"),
        pytest.param(
            [text("a"), event("output_text.done", text="ab"), END], "ab", "", id="a done text that knows more"
        ),
        pytest.param([text("ab"), event("output_text.done", text="xy"), END], "ab", "", id="a done text that differs"),
        pytest.param(
            [text("ab"), event("output_text.done"), done(**message("ab")), END], "ab", "", id="said three times"
        ),
        pytest.param([done(**message("a", "b")), END], "ab", "", id="a whole item without deltas"),
        pytest.param([added(**message()), done(**message("a")), done(**message("a")), END], "a", "", id="ended twice"),
        pytest.param([text("a", 0), text("b", 1), text("c", 0), END], "abc", "", id="two messages at once"),
        pytest.param([text("a", part=0), text("b", part=1), done(**message("a", "b")), END], "ab", "", id="two parts"),
        pytest.param([ended(output=[message("a")])], "a", "", id="only in the end marker"),
        pytest.param([text("a"), ended(output=[message("a")])], "a", "", id="in deltas and in the end marker"),
        pytest.param(
            [added(**message()), text("a"), ended(output=[message("ab")])], "ab", "", id="the end marker knows more"
        ),
        pytest.param([text("a", None), text("b", None), done(None, **message("ab")), END], "ab", "", id="no index"),
        pytest.param(
            [
                added(0, **SUMMARY, id="1"),
                event("reasoning_summary_text.delta", 0, item_id="2", summary_index=0, delta="r"),
                done(0, **SUMMARY, id="3"),
                added(1, **message(), id="4"),
                {**text("a", 1), "item_id": "5"},
                done(1, **message("a"), id="6"),
                END,
            ],
            "a",
            "r",
            id="another id in each event",
        ),
        pytest.param([done(0, **THOUGHT), done(0, **message("a")), END], "a", "r", id="index 0 for every item"),
        pytest.param([event("reasoning_text.delta", delta="r"), text("a", 1), END], "a", "r", id="reasoning text"),
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
        pytest.param([done(**SUMMARY, encrypted_content="x"), END], "", "r", id="a whole summary beside a cipher"),
        pytest.param(
            [event("refusal.delta", delta="I "), event("refusal.done", refusal="I cannot."), END],
            "I cannot.",
            "",
            id="a refusal",
        ),
        pytest.param(
            [done(type="message", content=[{"type": "refusal", "refusal": "No."}]), END],
            "No.",
            "",
            id="a whole refusal",
        ),
        pytest.param(
            [text(""), event("output_text.delta", delta=None), event("output_text.delta"), text("a"), END],
            "a",
            "",
            id="nothings",
        ),
        pytest.param(
            [event("code_interpreter_call_code.delta", delta="x"), text("a"), END], "a", "", id="code of others"
        ),
        pytest.param(
            [{"type": "ping"}, {"type": "keepalive", "message": "x"}, text("a"), END], "a", "", id="unknown events"
        ),
        pytest.param(
            ['{"type":"response.output_text.delta","delta":"a\\ud83db"}', END], "a\ufffdb", "", id="a lone surrogate"
        ),
        pytest.param(
            ['{"type":"response.output_text.delta","delta":"a","logprobs":NaN}', END], "a", "", id="not a number"
        ),
        pytest.param([text("a"), END, text("b")], "a", "", id="after the end"),
    ],
)
def test_what_was_said_and_what_was_thought(events: list[Any], said: str, thought: str) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*events), chunking))
        assert (reply.text, reply.reasoning, reply.complete, error) == (said, thought, True, None)


# --- tool calls -----------------------------------------------------------------------------------------------------

SPOKEN = '{"x":1}'
PATCH = {"type": "custom_tool_call", "call_id": "c1", "name": "patch"}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            [added(**function()), arguments('{"x"'), arguments(":1}"), done(**function(said=SPOKEN)), END],
            [("c1", "add", SPOKEN)],
            id="streamed",
        ),
        pytest.param([done(**function(said=SPOKEN)), END], [("c1", "add", SPOKEN)], id="whole, without deltas"),
        pytest.param(
            [added(**function()), event("function_call_arguments.done", arguments=SPOKEN), END],
            [("c1", "add", SPOKEN)],
            id="whole, without an end of the item",
        ),
        pytest.param([ended(output=[function(said=SPOKEN)])], [("c1", "add", SPOKEN)], id="only in the end marker"),
        pytest.param(
            [
                added(0, **function("a", "1")),
                added(1, **function("b", "2")),
                arguments("{", 0),
                arguments("{", 1),
                arguments("}", 0),
                arguments("}", 1),
                done(0, **function("a", "1", "{}")),
                done(1, **function("b", "2", "{}")),
                END,
            ],
            [("1", "a", "{}"), ("2", "b", "{}")],
            id="interleaved",
        ),
        pytest.param(
            [done(0, **function("a", "1", "{}")), done(0, **function("b", "2", "{}")), END],
            [("1", "a", "{}"), ("2", "b", "{}")],
            id="index 0 for every call",
        ),
        pytest.param(
            [
                added(None, **function("a", "1"), id="i1"),
                added(None, **function("b", "2"), id="i2"),
                arguments("{}", None, item_id="i1"),
                arguments("[]", None, item_id="i2"),
                done(None, **function("a", "1", "{}"), id="i1"),
                done(None, **function("b", "2", "[]"), id="i2"),
                END,
            ],
            [("1", "a", "{}"), ("2", "b", "[]")],
            id="no index",
        ),
        pytest.param(
            [arguments('{"x"'), arguments(":1}"), done(**function(said=SPOKEN)), END],
            [("c1", "add", SPOKEN)],
            id="a beginning that was missed",
        ),
        pytest.param(
            [added(**function(name="", call_id="")), arguments(SPOKEN), done(**function(said=SPOKEN)), END],
            [("c1", "add", SPOKEN)],
            id="a late name and a late id",
        ),
        pytest.param(
            [done(**function(call_id="", said="{}", id="fc_1")), END], [("fc_1", "add", "{}")], id="only the item's id"
        ),
        pytest.param([done(**function()), END], [("c1", "add", "")], id="no arguments"),
        pytest.param(
            [added(**function()), arguments(SPOKEN), done(**function()), END],
            [("c1", "add", SPOKEN)],
            id="an end that has lost the arguments",
        ),
        pytest.param(
            [added(**function()), arguments('{"x": 1}'), done(**function(said=SPOKEN)), END],
            [("c1", "add", '{"x": 1}')],
            id="an end that is written differently",
        ),
        pytest.param(
            [
                added(**PATCH, input=""),
                event("custom_tool_call_input.delta", delta='say "a'),
                event("custom_tool_call_input.delta", delta='\n"'),
                done(**PATCH, input='say "a\n"'),
                END,
            ],
            [("c1", "patch", r'"say \"a\n\""')],
            id="a freeform tool",
        ),
        pytest.param(
            [done(**PATCH, input='{"a":1}'), END], [("c1", "patch", r'"{\"a\":1}"')], id="whole freeform input"
        ),
        pytest.param([done(**PATCH, input=""), END], [("c1", "patch", '""')], id="empty freeform input"),
        pytest.param(
            [
                done(0, type="web_search_call", id="ws"),
                done(1, type="mcp_call", name="x", arguments="{}"),
                done(2, type="custom_tool_call", call_id="xs_call_1", name="x_search", input="{}"),
                done(3, type="local_shell_call", call_id="c", action={}),
                END,
            ],
            [],
            id="calls that are not ours",
        ),
    ],
)
def test_which_tools_are_called(events: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(*events), chunking))
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == calls
        assert (reply.stop, reply.complete, error) == ("tool_calls" if calls else "end", True, None)


def test_arguments_come_as_they_are_made() -> None:
    parser = ResponsesReplyParser(label="test", model="m")
    assert parser.feed(sse(added(**function()), arguments('{"x"'), arguments(":1}"))) == [
        ToolCallDelta(0, "c1", "add"),
        ToolCallDelta(0, arguments='{"x"'),
        ToolCallDelta(0, arguments=":1}"),
    ]


@pytest.mark.promise("C4")
def test_arguments_that_contradict_what_was_streamed_run_in_neither_version() -> None:
    reply, error = read([sse(added(**function()), arguments('{"x":1}'), done(**function(said='{"x":2}')), END)])
    assert error is not None
    assert (error.provider_type, reply.complete) == ("protocol_error", False)


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "stop", "word"),
    [
        (END, "end", "completed"),
        (
            ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "incomplete:max_output_tokens",
        ),
        (
            ended("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            "incomplete:content_filter",
        ),
        (ended("incomplete", incomplete_details=None), "length", "incomplete"),
        ({"type": "response.completed", "response": {}}, "end", "completed"),
        ({"type": "response.completed"}, "end", "completed"),
        ({"type": "response.completed", "response": {"status": "in_progress"}}, "end", "completed"),
    ],
)
def test_the_end_is_named_as_the_provider_names_it(end: dict[str, Any], stop: str, word: str) -> None:
    reply, error = read([sse(text("a"), end)])
    assert (reply.text, reply.stop, reply.finish_reason, reply.complete, error) == ("a", stop, word, True, None)


@pytest.mark.parametrize("rest", [[], ["[DONE]"], [event("in_progress", None, response={"status": "in_progress"})]])
def test_without_an_end_marker_a_reply_is_incomplete(rest: list[Any]) -> None:
    reply, error = read([sse(text("a"), *rest)])
    assert (reply.text, reply.complete, error) == ("a", False, None)


def test_usage_is_the_provider_s_own_count_and_cost() -> None:
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.25,
    }
    early = event("in_progress", None, response={"usage": {"input_tokens": 7}})
    reply, _ = read([sse(early, ended(usage=usage))])
    assert reply.usage == Usage(7, 5, 3, 2, Decimal("0.25"), cache_write_tokens=4)


def test_a_reply_that_is_one_json_object_is_understood() -> None:
    whole = {"object": "response", "status": "completed", "output": [message("a"), function(said="{}")], "usage": None}
    for chunking in CHUNKINGS:
        reply, error = read(pieces(json.dumps(whole).encode(), chunking))
        assert (reply.text, [call.name for call in reply.tool_calls], reply.complete, error) == (
            "a",
            ["add"],
            True,
            None,
        )


def test_the_output_goes_into_the_provider_state_item_by_item_as_it_came() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    said, called = message("a", id="msg_1", phase="commentary"), function(said="{}", id="fc_1")
    reply, _ = read([sse(added(0, **THOUGHT), done(1, **said), done(0, **thought), done(2, **called), END)])
    assert reply.provider_state is not None
    assert reply.provider_state.model_dump() == {
        "wire": "openai-responses",
        "model": "m",
        "payload": {"output": [thought, said, called]},
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
        ({"error": {"code": 502, "message": "m"}}, "provider.overloaded", "502", True),
        (ended("failed", error=FAILED), "provider.overloaded", "server_error", True),
        (ended("failed", error=None), "provider.bad_reply", "failed", False),
        ({"type": "response.failed", "response": {"error": FAILED}}, "provider.overloaded", "server_error", True),
    ],
)
def test_a_complaint_ends_the_reply_and_keeps_what_came(
    complaint: dict[str, Any], code: str, kind: str | None, retryable: bool
) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(text("a"), added(1, **function()), complaint, text("b"), END), chunking))
        assert error is not None
        assert (error.code, error.provider_type, error.retryable) == (code, kind, retryable)
        assert (reply.text, len(reply.tool_calls), reply.complete) == ("a", 1, False)


@pytest.mark.parametrize(
    "odd",
    [
        "{",
        "[]",
        "null",
        '"x"',
        "[" * 50_000,
        '{"type":"response.output_text.delta","delta":"a"',
    ],
)
def test_an_event_that_is_no_json_object_is_a_protocol_error(odd: str) -> None:
    reply, error = read([sse(text("a"), odd, END)])
    assert error is not None
    assert (reply.text, reply.complete, error.code, error.provider_type) == (
        "a",
        False,
        "provider.bad_reply",
        "protocol_error",
    )


@pytest.mark.parametrize(
    "odd",
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
def test_fields_of_the_wrong_type_count_as_missing(odd: dict[str, Any]) -> None:
    reply, error = read([sse(odd, text("a", 9), ended(output=None))])
    assert (reply.text, reply.usage, reply.complete, error) == ("a", Usage(), True, None)


@pytest.mark.promise("C7")
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param([done(index, **function(call_id=str(index))) for index in range(MAX_CALLS + 1)], id="calls"),
        pytest.param([done(index, type="web_search_call") for index in range(MAX_ITEMS + 1)], id="items"),
        pytest.param([arguments("x" * 1_000_000)] * (MAX_ARGUMENT_CHARS // 1_000_000 + 1), id="arguments"),
        pytest.param([text("x" * 1_000_000)] * 34, id="text"),
        pytest.param(
            [done(index % 2, **message("x" * 1_000_000), id=str(index)) for index in range(34)], id="whole items"
        ),
    ],
)
def test_a_flood_is_given_up(flood: list[Any]) -> None:
    reply, error = read(sse(item) for item in [*flood, END])
    assert error is not None
    assert (error.code, error.provider_type, reply.complete) == ("provider.bad_reply", "protocol_error", False)


def test_nothing_comes_after_the_end() -> None:
    parser = ResponsesReplyParser(label="test", model="m")
    assert [type(delta) for delta in parser.feed(sse(END, END, text("x")))] == [Finished]
    assert (parser.done, parser.end()) == (True, [])
