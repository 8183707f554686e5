"""Replies of the Gemini parser, without a network: recorded streams and odd ones written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments, ModelError
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import Finished, Reply, ToolCallDelta, Usage, UsageDelta
from agenticx.llms.reply_limits import MAX_CALLS
from agenticx.llms.wires.gemini._arguments import ArgumentsWriter
from agenticx.llms.wires.gemini._reply import GeminiReplyParser
from agenticx.messages import ProviderState
from tests.support.wires.recorded import CHUNKINGS, Recording, pieces, recordings
from tests.support.wires.replies import deltas_of, read_with
from tests.support.wires.replies import sse as events


def read(chunks: Iterable[bytes], **options: Any) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return read_with(GeminiReplyParser(label="test", model="m", **options), chunks)


def sse(*payloads: Any) -> bytes:
    return events(*payloads, end="\r\n\r\n")


def said(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], **fields}


def called(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": ({"name": name} if name else {}) | fields}


def piece(path: str, value: Any, *, more: bool = True) -> dict[str, Any]:
    kind = {str: "stringValue", bool: "boolValue", type(None): "nullValue"}.get(type(value), "numberValue")
    return called(partialArgs=[{"jsonPath": path, kind: value, "willContinue": more}], willContinue=True)


STOP = said({"text": ""}, finish="STOP")


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
def test_the_calls_of_a_cut_stream_are_whole_or_do_not_parse(recording: Recording) -> None:
    whole = [call.arguments for call in read([recording.body])[0].tool_calls]
    events = recording.body.split(b"\r\n\r\n")
    for count in range(len(events)):
        reply, _ = read([b"\r\n\r\n".join([*events[:count], b""])])
        for call, arguments in zip(reply.tool_calls, whole, strict=False):
            if call.arguments != arguments:
                assert arguments.startswith(call.arguments)
                with pytest.raises(InvalidArguments):
                    parse_arguments(call.arguments)


# --- text, thoughts, calls ----------------------------------------------------------------------------------------


def test_text_thoughts_and_calls_come_in_their_order() -> None:
    parser = GeminiReplyParser(label="test", model="m")
    body = sse(
        said({"text": "t", "thought": True}),
        said({"text": "a"}, {"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}),
        said({"text": "b"}, {**called("look", args={"at": "ö"}), "thoughtSignature": "s"}),
        said(called("wait", id="f1"), finish="STOP"),
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


def test_other_candidates_are_left_out() -> None:
    other = {"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "SAFETY"}
    event = said({"text": "a"}, finish="STOP")
    reply, error = read([sse({"candidates": [other, *event["candidates"], "junk"]})])
    assert (reply.text, reply.finish_reason, error) == ("a", "STOP", None)


def test_a_tool_that_the_provider_knows_by_another_name_has_ours() -> None:
    reply, _ = read([sse(said(called("_3d", args={}), finish="STOP"))], original_names={"_3d": "3d"})
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
def test_a_finish_reason_keeps_its_word_and_gets_ours(reason: str, calls: int, stop: str) -> None:
    reply, error = read([sse(said(*[called("look")] * calls, finish=reason))])
    assert (reply.finish_reason, reply.stop, reply.complete, error) == (reason, stop, True, None)


def test_a_finish_reason_with_every_event_ends_nothing_early() -> None:
    body = sse(said({"text": "a"}, finish="STOP"), said({"text": "b"}, finish="STOP"))
    parser = GeminiReplyParser(label="test", model="m")
    deltas = list(deltas_of(parser, [body]))
    assert [delta for delta in deltas if isinstance(delta, Finished)] == [Finished("end", "STOP")] == deltas[-1:]
    assert read([body])[0].text == "ab"


def test_counts_are_the_provider_s_own_and_the_last_ones_count() -> None:
    body = sse(
        said({"text": "a"}, usageMetadata={"trafficType": "ON_DEMAND"}),
        said({"text": "b"}, usageMetadata={"promptTokenCount": 9}),
        said({"text": "b"}, usageMetadata={"promptTokenCount": 9}),
        said(
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
    deltas = deltas_of(GeminiReplyParser(label="test", model="m"), [body])
    assert sum(isinstance(delta, UsageDelta) for delta in deltas) == 2


def test_a_body_that_is_one_object_is_read_like_a_stream() -> None:
    reply, error = read([json.dumps(said({"text": "a"}, finish="STOP")).encode()])
    assert (reply.text, reply.complete, error) == ("a", True, None)


# --- what goes back -----------------------------------------------------------------------------------------------


def state_of(*events: Any) -> Any:
    state = read([sse(*events)])[0].provider_state
    return state and state.payload["parts"]


def test_the_parts_are_kept_as_they_came_with_plain_text_joined_and_arguments_left_to_the_message() -> None:
    events = [
        said({"text": "t", "thought": True}),
        said({"text": "u", "thought": True}),
        said({"text": "a"}),
        said({"text": "b"}),
        said({"text": "c", "thoughtSignature": "s1"}),
        said({"text": "d"}),
        said({**called("look", id="f1", args={"at": 1}), "thoughtSignature": "s2"}, called("wait", willContinue=True)),
        said(called()),
        said({"text": "", "thoughtSignature": "s3"}, finish="STOP"),
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


def test_plain_text_leaves_nothing_to_keep() -> None:
    assert state_of(said({"text": "t", "thought": True}), said({"text": "a"}), STOP) is None


# --- arguments value by value -------------------------------------------------------------------------------------


def calls_of(*events: Any) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in read([sse(*events, STOP)])[0].tool_calls]


def test_arguments_grow_value_by_value() -> None:
    events = [
        said({**called("cook", willContinue=True), "thoughtSignature": "s"}),
        said(piece("$.recipe.name", "Las")),
        said(piece("$.recipe.name", 'agne"\n')),
        said(piece("$.recipe.steps[0].do", "x", more=False)),
        said(piece("$.recipe.steps[0].minutes", 2.5)),
        said(piece("$.recipe.steps[1].do", "")),
        said(piece("$['at once']", True), piece("$.no", None)),
        said(called()),
        said(called("wait", willContinue=True)),
        said(called()),
    ]
    arguments = (
        '{"recipe":{"name":"Lasagne\\"\\n","steps":[{"do":"x","minutes":2.5},{"do":""}]},"at once":true,"no":null}'
    )
    assert calls_of(*events) == [("cook", arguments), ("wait", "{}")]
    live = [d.arguments for d in deltas_of(GeminiReplyParser(label="t", model="m"), [sse(*events[:3])])]
    assert live == ["", "{", '"recipe":{"name":"Las', 'agne\\"\\n']


@pytest.mark.promise("C4")
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="nothing came"),
        pytest.param([piece("$.a", 1)], id="never closed"),
        pytest.param([piece("$.a", 1), piece("$.b", 1), piece("$.a", 2), called()], id="a path that comes back"),
        pytest.param([piece("$.a.b", 1), piece("$.c", 1), piece("$.a.d", 2), called()], id="an object that comes back"),
        pytest.param([piece("$.a", 1), piece("$.a.b", 2), called()], id="a number that becomes an object"),
        pytest.param([piece("$.a.b", 1), piece("$.a", 2), called()], id="an object that becomes a number"),
        pytest.param([piece("$.a", "x"), piece("$.a", 1), called()], id="a text that becomes a number"),
        pytest.param([piece("$.a[1]", 1), called()], id="an index left out"),
        pytest.param([piece("$.a[0]", 1), piece("$.a.b", 1), called()], id="a list that becomes an object"),
        pytest.param([piece("$", 1), called()], id="no path"),
        pytest.param([piece("a", 1), called()], id="not from the root"),
        pytest.param([piece("$.a..b", 1), called()], id="a path that is none"),
        pytest.param([piece("$" + ".a" * 101, 1), called()], id="too deep"),
        pytest.param([piece("$.a", 1), called(args={"b": 1})], id="whole ones behind values"),
    ],
)
def test_arguments_that_are_not_whole_never_parse(parts: list[Any]) -> None:
    [(_, arguments)] = calls_of(said(called("look", willContinue=True)), *(said(part) for part in parts))
    with pytest.raises(InvalidArguments):
        parse_arguments(arguments)


def test_a_call_that_another_one_follows_too_early_stays_open() -> None:
    events = [said(called("a", willContinue=True)), said(piece("$.x", 1)), said(called("b", args={"y": 1}))]
    assert calls_of(*events) == [("a", '{"x":1'), ("b", '{"y":1}')]


def test_pieces_that_repeat_name_and_id_belong_to_the_open_call() -> None:
    first = called("a", id="f", partialArgs=[{"jsonPath": "$.x", "stringValue": "1", "willContinue": True}])
    first["functionCall"]["willContinue"] = True
    last = called("a", id="f", partialArgs=[{"jsonPath": "$.x", "stringValue": "2"}])
    assert calls_of(said(first), said(last)) == [("a", '{"x":"12"}')]


def test_arguments_that_come_whole_after_all_are_taken() -> None:
    assert calls_of(said(called("a", willContinue=True)), said(called(args={"x": [1]}))) == [("a", '{"x":[1]}')]


_keys = st.text(max_size=4).filter(lambda key: "'" not in key and '"' not in key)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(_keys, inner, min_size=1, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_keys, _values, max_size=4), st.data())
def test_values_with_their_paths_give_back_the_object(arguments: dict[str, Any], data: st.DataObject) -> None:
    writer = ArgumentsWriter()
    text = ArgumentsWriter.BEGIN
    for path, value in leaves("$", arguments):
        at = data.draw(st.integers(0, len(value))) if isinstance(value, str) else 0
        for part in [value[:at], value[at:]] if isinstance(value, str) else [value]:
            text += writer.add(piece(path, part)["functionCall"]["partialArgs"][0])
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
def test_an_error_in_the_stream_comes_behind_what_was_said(event: Any, code: str, type_: str, retryable: bool) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(pieces(sse(said({"text": "a"}), event, STOP), chunking))
        assert error is not None
        assert (reply.text, reply.complete, error.code, error.provider_type, error.retryable) == (
            *("a", False, code, type_),
            retryable,
        )


@pytest.mark.parametrize("junk", ["null", [], 1, "x", {"parts": 1}, {"parts": [1, None]}, {"parts": [{}]}])
def test_parts_that_are_none_say_nothing(junk: Any) -> None:
    reply, error = read([sse({"candidates": [{"content": junk}]}, {"candidates": junk}, {}, said({"text": "a"}), STOP)])
    assert (reply.text, reply.tool_calls, reply.complete, error) == ("a", (), True, None)


def test_too_many_calls_are_refused() -> None:
    reply, error = read([sse(*[said(called("a"))] * (MAX_CALLS + 1))])
    assert (len(reply.tool_calls), error and error.provider_type) == (MAX_CALLS, "protocol_error")


def test_every_delta_says_something() -> None:
    parser = GeminiReplyParser(label="test", model="m")
    body = sse(
        said(), said({"text": ""}), said({"text": "", "thought": True}), said(called()), said({"text": "a"}), STOP
    )
    assert [d for d in deltas_of(parser, [body]) if isinstance(d, ToolCallDelta)] == []
    assert len(read([body])[0].text) == 1
