"""The tool that must be called, and calls one at a time, in the form of each wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ModelRequest, ToolSchema
from tests.support.wires.wires import WIRES

LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {}})
DOTTED = ToolSchema("our.look", "Looks.", {"type": "object", "properties": {}})


def sent(wire: str, **options: Any) -> dict[str, Any]:
    request = ModelRequest(messages=[UserMessage(content="hi")], tools=[LOOK, DOTTED], **options)
    return json.loads(WIRES[wire].body(request, "m"))


@pytest.mark.parametrize(
    ("wire", "key", "choice"),
    [
        ("openai_chat", "tool_choice", {"type": "function", "function": {"name": "look"}}),
        ("openai_responses", "tool_choice", {"type": "function", "name": "look"}),
        ("anthropic", "tool_choice", {"type": "tool", "name": "look"}),
        ("gemini", "toolConfig", {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}),
    ],
)
def test_a_required_tool_is_named(wire: str, key: str, choice: dict[str, Any]) -> None:
    assert sent(wire, tool_choice="required", required_tool="look")[key] == choice
    assert key not in sent(wire, required_tool="look")


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic"])
def test_a_required_tool_is_named_as_it_is_sent(wire: str) -> None:
    body = sent(wire, tool_choice="required", required_tool="our.look")
    assert "our.look" not in json.dumps(body["tool_choice"])
    names = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]
    assert (body["tool_choice"].get("name") or body["tool_choice"]["function"]["name"]) == names[1]


def test_responses_are_asked_for_one_call_at_a_time() -> None:
    assert sent("openai_responses", parallel_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent("openai_responses")
