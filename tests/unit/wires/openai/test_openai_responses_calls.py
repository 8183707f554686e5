"""Tests of tool calls in Responses streams, however a server sends them."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import ToolCallDelta
from tests.support.wires.recorded import CHUNKINGS, split_body
from tests.support.wires.replies import sse
from tests.support.wires.responses_events import (
    END,
    arguments_delta,
    event,
    function_call,
    item_added,
    item_done,
    read,
    response_ended,
)
from tests.support.wires.wires import WIRES

ARGUMENTS = '{"x":1}'


PATCH = {"type": "custom_tool_call", "call_id": "c1", "name": "patch"}


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            [
                item_added(**function_call()),
                arguments_delta('{"x"'),
                arguments_delta(":1}"),
                item_done(**function_call(arguments=ARGUMENTS)),
                END,
            ],
            [("c1", "add", ARGUMENTS)],
            id="streamed",
        ),
        pytest.param(
            [item_done(**function_call(arguments=ARGUMENTS)), END],
            [("c1", "add", ARGUMENTS)],
            id="whole, without deltas",
        ),
        pytest.param(
            [item_added(**function_call()), event("function_call_arguments.done", arguments=ARGUMENTS), END],
            [("c1", "add", ARGUMENTS)],
            id="whole, without an end of the item",
        ),
        pytest.param(
            [response_ended(output=[function_call(arguments=ARGUMENTS)])],
            [("c1", "add", ARGUMENTS)],
            id="only in the end marker",
        ),
        pytest.param(
            [
                item_added(0, **function_call("a", "1")),
                item_added(1, **function_call("b", "2")),
                arguments_delta("{", 0),
                arguments_delta("{", 1),
                arguments_delta("}", 0),
                arguments_delta("}", 1),
                item_done(0, **function_call("a", "1", "{}")),
                item_done(1, **function_call("b", "2", "{}")),
                END,
            ],
            [("1", "a", "{}"), ("2", "b", "{}")],
            id="interleaved",
        ),
        pytest.param(
            [item_done(0, **function_call("a", "1", "{}")), item_done(0, **function_call("b", "2", "{}")), END],
            [("1", "a", "{}"), ("2", "b", "{}")],
            id="index 0 for every call",
        ),
        pytest.param(
            [
                item_added(None, **function_call("a", "1"), id="i1"),
                item_added(None, **function_call("b", "2"), id="i2"),
                arguments_delta("{}", None, item_id="i1"),
                arguments_delta("[]", None, item_id="i2"),
                item_done(None, **function_call("a", "1", "{}"), id="i1"),
                item_done(None, **function_call("b", "2", "[]"), id="i2"),
                END,
            ],
            [("1", "a", "{}"), ("2", "b", "[]")],
            id="no index",
        ),
        pytest.param(
            [arguments_delta('{"x"'), arguments_delta(":1}"), item_done(**function_call(arguments=ARGUMENTS)), END],
            [("c1", "add", ARGUMENTS)],
            id="a beginning that was missed",
        ),
        pytest.param(
            [
                item_added(**function_call(name="", call_id="")),
                arguments_delta(ARGUMENTS),
                item_done(**function_call(arguments=ARGUMENTS)),
                END,
            ],
            [("c1", "add", ARGUMENTS)],
            id="a late name and a late id",
        ),
        pytest.param(
            [item_done(**function_call(call_id="", arguments="{}", id="fc_1")), END],
            [("fc_1", "add", "{}")],
            id="only the item's id",
        ),
        pytest.param([item_done(**function_call()), END], [("c1", "add", "")], id="no arguments"),
        pytest.param(
            [item_added(**function_call()), arguments_delta(ARGUMENTS), item_done(**function_call()), END],
            [("c1", "add", ARGUMENTS)],
            id="an end that has lost the arguments",
        ),
        pytest.param(
            [
                item_added(**function_call()),
                arguments_delta('{"x": 1}'),
                item_done(**function_call(arguments=ARGUMENTS)),
                END,
            ],
            [("c1", "add", '{"x": 1}')],
            id="an end that is written differently",
        ),
        pytest.param(
            [
                item_added(**PATCH, input=""),
                event("custom_tool_call_input.delta", delta='say "a'),
                event("custom_tool_call_input.delta", delta='\n"'),
                item_done(**PATCH, input='say "a\n"'),
                END,
            ],
            [("c1", "patch", r'"say \"a\n\""')],
            id="a freeform tool",
        ),
        pytest.param(
            [item_done(**PATCH, input='{"a":1}'), END], [("c1", "patch", r'"{\"a\":1}"')], id="whole freeform input"
        ),
        pytest.param([item_done(**PATCH, input=""), END], [("c1", "patch", '""')], id="empty freeform input"),
        pytest.param(
            [
                item_done(0, type="web_search_call", id="ws"),
                item_done(1, type="mcp_call", name="x", arguments="{}"),
                item_done(2, type="custom_tool_call", call_id="xs_call_1", name="x_search", input="{}"),
                item_done(3, type="local_shell_call", call_id="c", action={}),
                END,
            ],
            [],
            id="calls that are not ours",
        ),
    ],
)
def test_tool_calls(events: list[Any], calls: list[tuple[str, str, str]]) -> None:
    for chunking in CHUNKINGS:
        reply, error = read(split_body(sse(*events), chunking))
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == calls
        assert (reply.stop, reply.complete, error) == ("tool_calls" if calls else "end", True, None)


def test_arguments_are_streamed_as_they_arrive() -> None:
    parser = WIRES["openai_responses"].parser("m")
    assert parser.feed(sse(item_added(**function_call()), arguments_delta('{"x"'), arguments_delta(":1}"))) == [
        ToolCallDelta(0, "c1", "add"),
        ToolCallDelta(0, arguments='{"x"'),
        ToolCallDelta(0, arguments=":1}"),
    ]


@pytest.mark.promise("C4")
def test_arguments_that_contradict_the_streamed_ones_are_a_protocol_error() -> None:
    reply, error = read(
        [
            sse(
                item_added(**function_call()),
                arguments_delta('{"x":1}'),
                item_done(**function_call(arguments='{"x":2}')),
                END,
            )
        ]
    )
    assert error is not None
    assert (error.provider_type, reply.complete) == ("protocol_error", False)
