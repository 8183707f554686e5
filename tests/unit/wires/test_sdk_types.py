"""Tests that the SDKs' own types accept the requests of each wire and report errors in other requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ModelRequest, OutputSchema, Sampling, ToolSchema
from agenticx.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage
from tests.support.wires import sdk_types
from tests.support.wires.files import GIF, PDF, PNG, TEXT
from tests.support.wires.wires import WIRES

CONVERSATION = [
    SystemMessage(content="Be brief."),
    UserMessage(content="What is in these?", attachments=(PNG, GIF, PDF, TEXT)),
    AssistantMessage(content="Let me see.", tool_calls=(ToolCall(id="call_1", name="look", arguments='{"at": 1}'),)),
    ToolMessage(tool_call_id="call_1", name="look", content="seen", attachments=(PNG, PDF, TEXT)),
]
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
LOOK, ANSWER = ToolSchema("look", "Look.", SCHEMA), OutputSchema("answer", SCHEMA)
SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_output_tokens=4096, stop="END", seed=7, reasoning_effort="low")


pytestmark = pytest.mark.ci_lane  # each worker would import the SDKs, which takes several seconds

EACH_WIRE = pytest.mark.parametrize("wire", [pytest.param(w, marks=sdk_types.needs_sdk(w)) for w in sdk_types.PACKAGES])


def test_every_wire_except_ollama_has_an_sdk() -> None:
    assert {*WIRES} - {*sdk_types.PACKAGES} == {"ollama"}


@EACH_WIRE
def test_a_conversation_with_files_and_tools_matches_the_types_of_the_sdk(wire: str) -> None:
    assert WIRES[wire].refusals(CONVERSATION, tools=[LOOK]) == []


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": "required"},
        {"tool_choice": "required", "required_tool": LOOK.name},
        {"tool_choice": "none"},
        {"sampling": Sampling(max_output_tokens=4096)},
        {"sampling": SAMPLING},
        {"sampling": SAMPLING, "output_schema": ANSWER},
        {"output_schema": ANSWER},
        {"parallel_calls": False},
        {
            "parallel_calls": False,
            "tool_choice": "required",
            "output_schema": ANSWER,
            "sampling": Sampling(max_output_tokens=16),
        },
    ],
    ids=lambda options: " ".join(options),
)
@EACH_WIRE
@pytest.mark.parametrize("tools", [[LOOK], []], ids=["with tools", "without"])
def test_all_options_match_the_types_of_the_sdk(wire: str, tools: list[ToolSchema], options: dict[str, Any]) -> None:
    request = ModelRequest(messages=CONVERSATION, tools=tools, **options)
    assert WIRES[wire].violations(json.loads(WIRES[wire].body(request, "m"))) == []


@EACH_WIRE
def test_an_unknown_field_is_found_in_every_object(wire: str) -> None:
    body = WIRES[wire].request(CONVERSATION, tools=[LOOK])
    places = [*_objects(body)]
    assert len(places) > 10
    for place in range(len(places)):
        changed = deepcopy(body)
        [*_objects(changed)][place]["unheard_of"] = 1
        assert sdk_types.type_errors(wire, changed) != [], places[place]


@EACH_WIRE
def test_a_text_of_the_wrong_type_is_found(wire: str) -> None:
    body = WIRES[wire].request(CONVERSATION, tools=[LOOK])
    texts = [place for place in _objects(body) if isinstance(place.get("text"), str)]
    assert texts
    texts[0]["text"] = 5
    assert sdk_types.type_errors(wire, body) != []


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a body except those inside schemas and arguments, whose fields are free."""
    if isinstance(value, list):
        for inner in value:
            yield from _objects(inner)
    elif isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in _FREE and not (name == "input" and isinstance(inner, dict)):
                yield from _objects(inner)


_FREE = {"parameters", "parametersJsonSchema", "input_schema", "args", "response"}
