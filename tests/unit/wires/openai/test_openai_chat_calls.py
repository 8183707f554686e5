"""Tests of tool calls in Chat Completions streams, however a server splits them."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import ToolCallDelta
from tests.support.wires.chat_chunks import DONE, call_chunk, delta, read
from tests.support.wires.recorded import CHUNKINGS, split_body
from tests.support.wires.replies import sse
from tests.support.wires.wires import WIRES

A, B = ("a", '{"x":1}'), ("b", '{"y":2}')


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments=""),
                call_chunk(index=0, arguments='{"x"'),
                call_chunk(index=0, arguments=":1}"),
            ],
            [("1", *A)],
            id="streamed",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a"),
                call_chunk(index=1, id="2", name="b"),
                call_chunk(index=0, arguments='{"x":1}'),
                call_chunk(index=1, arguments='{"y":2}'),
            ],
            [("1", *A), ("2", *B)],
            id="interleaved",
        ),
        pytest.param(
            [call_chunk(id="1", name="a", arguments='{"x":1}'), call_chunk(id="2", name="b", arguments='{"y":2}')],
            [("1", *A), ("2", *B)],
            id="no index",
        ),
        pytest.param(
            [call_chunk(name="a", arguments='{"x":1}'), call_chunk(name="b", arguments='{"y":2}')],
            [("", *A), ("", *B)],
            id="no index and no id",
        ),
        pytest.param(
            [call_chunk(name="a"), call_chunk(arguments='{"x"'), call_chunk(arguments=":1}")],
            [("", *A)],
            id="no index, streamed",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x":1}'),
                call_chunk(index=0, id="2", name="a", arguments='{"y":2}'),
            ],
            [("1", *A), ("2", "a", '{"y":2}')],
            id="index always 0, as Ollama sends it",
        ),
        pytest.param(
            [call_chunk(index=0, name="a", arguments='{"x":1}'), call_chunk(index=0, name="a", arguments='{"y":2}')],
            [("", *A), ("", "a", '{"y":2}')],
            id="index always 0 and no id, as Gemini sends it",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x"'),
                call_chunk(index=0, id="2", arguments=":1"),
                call_chunk(index=0, id="3", arguments="}"),
            ],
            [("1", *A)],
            id="another id in each piece",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x"'),
                call_chunk(index=0, id="2", name="a", arguments=":1}"),
            ],
            [("1", *A)],
            id="another id and the name in each piece",
        ),
        pytest.param(
            [call_chunk(index=0, name="a", arguments='{"x"'), call_chunk(index=0, id="1", arguments=":1}")],
            [("1", *A)],
            id="a late id",
        ),
        pytest.param(
            [call_chunk(index=0, id="1", arguments='{"x"'), call_chunk(index=0, name="a", arguments=":1}")],
            [("1", *A)],
            id="a late name",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x"'),
                call_chunk(index=0, id="1", name="a", arguments=":1}"),
            ],
            [("1", *A)],
            id="the name repeated",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x"'),
                call_chunk(index=0, id="", name="", arguments=":1}"),
            ],
            [("1", *A)],
            id="empty id and name later",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x"'),
                call_chunk(index=0, name="None", arguments=":1}"),
            ],
            [("1", *A)],
            id="the name None later",
        ),
        pytest.param(
            [call_chunk(index=0, id="1", name="None", arguments='{"x":1}')],
            [("1", "", '{"x":1}')],
            id="only the name None",
        ),
        pytest.param(
            [call_chunk(index=0, id="1", name="a", arguments={"x": 1})], [("1", *A)], id="arguments as an object"
        ),
        pytest.param([call_chunk(index=0, id="1", name="a", arguments=None)], [("1", "a", "")], id="arguments null"),
        pytest.param([call_chunk(index=0, id="1", name="a")], [("1", "a", "")], id="no arguments"),
        pytest.param(
            [call_chunk(index=0, id="1", name="a", arguments='{"x":1}{"x":1}')],
            [("1", "a", '{"x":1}{"x":1}')],
            id="two objects stay as they are",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x":1}'),
                call_chunk(index=0, id="1", name="a", arguments='{"x":1}'),
            ],
            [("1", *A)],
            id="sent twice",
        ),
        pytest.param(
            [
                call_chunk(index=0, id="1", name="a", arguments='{"x":1}'),
                call_chunk(index=1, id="1", name="b", arguments='{"y":2}'),
            ],
            [("1", *A), ("1", *B)],
            id="the same id for two calls",
        ),
        pytest.param(
            [call_chunk(index=7, id="1", name="a", arguments='{"x":1}')],
            [("1", *A)],
            id="an index that is not the first",
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
                call_chunk(index=0, id="1", name="a", arguments='{"x":1}'),
            ],
            [("1", *A)],
            id="null pieces",
        ),
    ],
)
def test_chunks_of_calls_are_joined_to_their_call(chunks: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*chunks, delta("tool_calls"), DONE), chunking))
        assert ([(call.id, call.name, call.arguments) for call in reply.tool_calls], error) == (calls, None)
        assert (reply.complete, reply.stop) == (True, "tool_calls")


def test_the_first_chunk_of_a_call_is_yielded_at_once() -> None:
    parser = WIRES["openai_chat"].parser("m")
    assert parser.feed(sse(call_chunk(index=0, id="1", name="a"))) == [ToolCallDelta(0, "1", "a", "")]
    assert parser.feed(sse(call_chunk(index=0, arguments='{"'))) == [ToolCallDelta(0, "", "", '{"')]
