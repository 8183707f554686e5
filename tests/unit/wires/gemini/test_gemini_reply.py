"""Tests of the Gemini parser without a network: recorded streams and unusual ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms import Finished, ToolCallDelta, Usage, UsageDelta
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.reply_limits import MAX_CALLS
from agenticx.llms.wires.gemini._arguments import ArgumentsWriter
from agenticx.messages import ProviderState
from tests.support.wires.gemini_events import STOP, argument_part, call_part, content_event, read, sse
from tests.support.wires.recorded import CHUNKINGS, Recording, recordings, split_body
from tests.support.wires.replies import deltas_of
from tests.support.wires.wires import WIRES

# --- recorded streams ---------------------------------------------------------------------------------------------


@pytest.mark.promise("C3")
@pytest.mark.parametrize("recording", recordings("gemini"))
def test_a_stream_cut_between_events_is_complete_only_with_a_finish_reason(recording: Recording) -> None:
    events = recording.body.split(b"\r\n\r\n")
    for count in range(len(events)):
        kept = b"\r\n\r\n".join([*events[:count], b""])
        reply, error = read([kept])
        assert (reply.complete, error) == (b'"finishReason"' in kept, None), f"after {count} events"


@pytest.mark.promise("C4")
@pytest.mark.parametrize("recording", recordings("gemini"))
def test_the_calls_of_a_truncated_stream_are_complete_or_invalid(recording: Recording) -> None:
    whole = [call.arguments for call in read([recording.body])[0].tool_calls]
    events = recording.body.split(b"\r\n\r\n")
    for count in range(len(events)):
        reply, _ = read([b"\r\n\r\n".join([*events[:count], b""])])
        for call, arguments in zip(reply.tool_calls, whole, strict=False):
            if call.arguments != arguments:
                assert arguments.startswith(call.arguments)
                with pytest.raises(InvalidArguments):
                    parse_arguments(call.arguments)


# --- text, reasoning, calls ---------------------------------------------------------------------------------------


def test_text_reasoning_and_calls_keep_their_order() -> None:
    parser = WIRES["gemini"].parser("m")
    body = sse(
        content_event({"text": "t", "thought": True}),
        content_event({"text": "a"}, {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}),
        content_event({"text": "b"}, {**call_part("look", args={"at": "ö"}), "thoughtSignature": "s"}),
        content_event(call_part("wait", id="f1"), finish="STOP"),
    )
    reply, error = read([body])
    assert (reply.text, reply.reasoning, reply.stop, reply.finish_reason, error) == (
        "ab",
        "t",
        "tool_calls",
        "STOP",
        None,
    )
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("", "look", '{"at":"ö"}'),
        ("f1", "wait", "{}"),
    ]
    assert [type(delta).__name__ for delta in deltas_of(parser, [body])] == [
        *("ThinkingDelta", "TextDelta", "TextDelta", "ToolCallDelta", "ToolCallDelta", "ToolCallDelta"),
        *("ToolCallDelta", "Finished"),
    ]


def test_only_the_first_candidate_is_read() -> None:
    other = {"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "SAFETY"}
    event = content_event({"text": "a"}, finish="STOP")
    reply, error = read([sse({"candidates": [other, *event["candidates"], "junk"]})])
    assert (reply.text, reply.finish_reason, error) == ("a", "STOP", None)


def test_a_tool_name_that_was_sent_in_another_form_is_mapped_back() -> None:
    reply, _ = read([sse(content_event(call_part("_3d", args={}), finish="STOP"))], original_names={"_3d": "3d"})
    assert [call.name for call in reply.tool_calls] == ["3d"]


@pytest.mark.parametrize(
    ("reason", "calls", "stop"),
    [
        ("STOP", 0, "end"),
        ("STOP", 1, "tool_calls"),
        ("OTHER", 0, "broken"),
        ("SOMETHING_NEW", 1, "broken"),
        ("MAX_TOKENS", 1, "length"),
        ("SAFETY", 0, "content_filter"),
        ("RECITATION", 1, "content_filter"),
        ("PROHIBITED_CONTENT", 0, "content_filter"),
        ("MALFORMED_FUNCTION_CALL", 0, "tool_calls"),
    ],
)
def test_the_finish_reason_is_kept_and_mapped(reason: str, calls: int, stop: str) -> None:
    reply, error = read([sse(content_event(*[call_part("look")] * calls, finish=reason))])
    assert (reply.finish_reason, reply.stop, reply.complete, error) == (reason, stop, True, None)


def test_a_finish_reason_in_every_event_does_not_end_the_reply_early() -> None:
    body = sse(content_event({"text": "a"}, finish="STOP"), content_event({"text": "b"}, finish="STOP"))
    parser = WIRES["gemini"].parser("m")
    deltas = list(deltas_of(parser, [body]))
    assert [delta for delta in deltas if isinstance(delta, Finished)] == [Finished("end", "STOP")] == deltas[-1:]
    assert read([body])[0].text == "ab"


def test_usage_is_the_last_reported() -> None:
    body = sse(
        content_event({"text": "a"}, usageMetadata={"trafficType": "ON_DEMAND"}),
        content_event({"text": "b"}, usageMetadata={"promptTokenCount": 9}),
        content_event({"text": "b"}, usageMetadata={"promptTokenCount": 9}),
        content_event(
            finish="STOP",
            usageMetadata={
                "promptTokenCount": 10,
                "candidatesTokenCount": 4,
                "cachedContentTokenCount": 3,
                "thoughtsTokenCount": 5,
            },
        ),
    )
    usage = read([body])[0].usage
    assert usage == Usage(10, 4, 3, 5, output_excludes_reasoning=True)
    assert usage.total_output_tokens == 9
    deltas = deltas_of(WIRES["gemini"].parser("m"), [body])
    assert sum(isinstance(delta, UsageDelta) for delta in deltas) == 2


def test_a_single_json_object_is_read_as_a_reply() -> None:
    reply, error = read([json.dumps(content_event({"text": "a"}, finish="STOP")).encode()])
    assert (reply.text, reply.complete, error) == ("a", True, None)


# --- provider state -----------------------------------------------------------------------------------------------


def state_of(*events: Any) -> Any:
    state = read([sse(*events)])[0].provider_state
    return state and state.payload["parts"]


def test_parts_are_kept_in_the_provider_state_with_joined_text_and_without_arguments() -> None:
    events = [
        content_event({"text": "t", "thought": True}),
        content_event({"text": "u", "thought": True}),
        content_event({"text": "a"}),
        content_event({"text": "b"}),
        content_event({"text": "c", "thoughtSignature": "s1"}),
        content_event({"text": "d"}),
        content_event(
            {**call_part("look", id="f1", args={"at": 1}), "thoughtSignature": "s2"},
            call_part("wait", willContinue=True),
        ),
        content_event(call_part()),
        content_event({"text": "", "thoughtSignature": "s3"}, finish="STOP"),
    ]
    assert state_of(*events) == [
        {"text": "tu", "thought": True},
        {"text": "ab"},
        {"text": "c", "thoughtSignature": "s1"},
        {"text": "d"},
        {"functionCall": {"name": "look", "id": "f1"}, "thoughtSignature": "s2"},
        {"functionCall": {"name": "wait"}},
        {"text": "", "thoughtSignature": "s3"},
    ]
    state = read([sse(*events)])[0].provider_state
    assert state == ProviderState.model_validate_json(state.model_dump_json()) if state else False


def test_plain_text_needs_no_provider_state() -> None:
    assert state_of(content_event({"text": "t", "thought": True}), content_event({"text": "a"}), STOP) is None


# --- arguments value by value -------------------------------------------------------------------------------------


def calls_of(*events: Any) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in read([sse(*events, STOP)])[0].tool_calls]


def test_streamed_arguments_are_written_value_by_value() -> None:
    events = [
        content_event({**call_part("cook", willContinue=True), "thoughtSignature": "s"}),
        content_event(argument_part("$.recipe.name", "Las")),
        content_event(argument_part("$.recipe.name", 'agne"\n')),
        content_event(argument_part("$.recipe.steps[0].do", "x", more=False)),
        content_event(argument_part("$.recipe.steps[0].minutes", 2.5)),
        content_event(argument_part("$.recipe.steps[1].do", "")),
        content_event(argument_part("$['at once']", True), argument_part("$.no", None)),
        content_event(call_part()),
        content_event(call_part("wait", willContinue=True)),
        content_event(call_part()),
    ]
    arguments = (
        '{"recipe":{"name":"Lasagne\\"\\n","steps":[{"do":"x","minutes":2.5},{"do":""}]},"at once":true,"no":null}'
    )
    assert calls_of(*events) == [("cook", arguments), ("wait", "{}")]
    live = [d.arguments for d in deltas_of(WIRES["gemini"].parser("m"), [sse(*events[:3])])]
    assert live == ["", "{", '"recipe":{"name":"Las', 'agne\\"\\n']


@pytest.mark.promise("C4")
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="nothing came"),
        pytest.param([argument_part("$.a", 1)], id="never closed"),
        pytest.param(
            [argument_part("$.a", 1), argument_part("$.b", 1), argument_part("$.a", 2), call_part()],
            id="a path that comes back",
        ),
        pytest.param(
            [argument_part("$.a.b", 1), argument_part("$.c", 1), argument_part("$.a.d", 2), call_part()],
            id="an object that comes back",
        ),
        pytest.param(
            [argument_part("$.a", 1), argument_part("$.a.b", 2), call_part()], id="a number that becomes an object"
        ),
        pytest.param(
            [argument_part("$.a.b", 1), argument_part("$.a", 2), call_part()], id="an object that becomes a number"
        ),
        pytest.param(
            [argument_part("$.a", "x"), argument_part("$.a", 1), call_part()], id="a text that becomes a number"
        ),
        pytest.param([argument_part("$.a[1]", 1), call_part()], id="an index left out"),
        pytest.param(
            [argument_part("$.a[0]", 1), argument_part("$.a.b", 1), call_part()], id="a list that becomes an object"
        ),
        pytest.param([argument_part("$", 1), call_part()], id="no path"),
        pytest.param([argument_part("a", 1), call_part()], id="not from the root"),
        pytest.param([argument_part("$.a..b", 1), call_part()], id="a path that is none"),
        pytest.param([argument_part("$" + ".a" * 101, 1), call_part()], id="too deep"),
        pytest.param([argument_part("$.a", 1), call_part(args={"b": 1})], id="whole ones behind values"),
    ],
)
def test_incomplete_arguments_are_invalid(parts: list[Any]) -> None:
    [(_, arguments)] = calls_of(
        content_event(call_part("look", willContinue=True)), *(content_event(part) for part in parts)
    )
    with pytest.raises(InvalidArguments):
        parse_arguments(arguments)


def test_a_call_that_is_followed_before_its_end_has_incomplete_arguments() -> None:
    events = [
        content_event(call_part("a", willContinue=True)),
        content_event(argument_part("$.x", 1)),
        content_event(call_part("b", args={"y": 1})),
    ]
    assert calls_of(*events) == [("a", '{"x":1'), ("b", '{"y":1}')]


def test_chunks_that_repeat_name_and_id_belong_to_the_open_call() -> None:
    first = call_part("a", id="f", partialArgs=[{"jsonPath": "$.x", "stringValue": "1", "willContinue": True}])
    first["functionCall"]["willContinue"] = True
    last = call_part("a", id="f", partialArgs=[{"jsonPath": "$.x", "stringValue": "2"}])
    assert calls_of(content_event(first), content_event(last)) == [("a", '{"x":"12"}')]


def test_complete_arguments_in_a_later_chunk_are_used() -> None:
    assert calls_of(content_event(call_part("a", willContinue=True)), content_event(call_part(args={"x": [1]}))) == [
        ("a", '{"x":[1]}')
    ]


_keys = st.text(max_size=4).filter(lambda key: "'" not in key and '"' not in key)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(_keys, inner, min_size=1, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_keys, _values, max_size=4), st.data())
def test_values_with_their_paths_are_written_as_the_original_object(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    writer = ArgumentsWriter()
    text = ArgumentsWriter.BEGIN
    for path, value in leaves("$", arguments):
        at = data.draw(st.integers(0, len(value))) if isinstance(value, str) else 0
        for part in [value[:at], value[at:]] if isinstance(value, str) else [value]:
            text += writer.add(argument_part(path, part)["functionCall"]["partialArgs"][0])
    assert json.loads(text + writer.close()) == arguments


def leaves(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f"{path}.{key}" if key.isalpha() else f"{path}['{key}']", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(f"{path}[{index}]", inner)
    else:
        yield path, value


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code", "type_", "retryable"),
    [
        (
            {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}},
            "provider.overloaded",
            "UNAVAILABLE",
            True,
        ),
        (
            {"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}},
            "provider.rate_limited",
            "RESOURCE_EXHAUSTED",
            True,
        ),
        (
            {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
            "provider.content_filter",
            "PROHIBITED_CONTENT",
            False,
        ),
        ([1], "provider.bad_reply", "protocol_error", False),
        ('{"a":', "provider.bad_reply", "protocol_error", False),
        ("[" * 5000 + "]" * 5000, "provider.bad_reply", "protocol_error", False),
    ],
)
def test_an_error_in_the_stream_keeps_the_content_before_it(event: Any, code: str, type_: str, retryable: bool) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(content_event({"text": "a"}), event, STOP), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type, error.retryable) == (
            *("a", False, code, type_),
            retryable,
        )


@pytest.mark.parametrize("junk", ["null", [], 1, "x", {"parts": 1}, {"parts": [1, None]}, {"parts": [{}]}])
def test_malformed_parts_are_ignored(junk: Any) -> None:
    reply, error = read(
        [sse({"candidates": [{"content": junk}]}, {"candidates": junk}, {}, content_event({"text": "a"}), STOP)]
    )
    assert (reply.text, reply.tool_calls, reply.complete, error) == ("a", (), True, None)


def test_too_many_calls_are_refused() -> None:
    reply, error = read([sse(*[content_event(call_part("a"))] * (MAX_CALLS + 1))])
    assert (len(reply.tool_calls), error and error.provider_type) == (MAX_CALLS, "protocol_error")


def test_empty_parts_yield_no_delta() -> None:
    parser = WIRES["gemini"].parser("m")
    body = sse(
        content_event(),
        content_event({"text": ""}),
        content_event({"text": "", "thought": True}),
        content_event(call_part()),
        content_event({"text": "a"}),
        STOP,
    )
    assert [d for d in deltas_of(parser, [body]) if isinstance(d, ToolCallDelta)] == []
    assert len(read([body])[0].text) == 1
