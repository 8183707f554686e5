"""Tests of the request bodies of the Ollama wire against the format that the server decodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.llms import ModelRequest, Sampling, ToolSchema
from agenticx.llms.wires.ollama._request import request_body
from agenticx.messages import AssistantMessage, Message, ProviderState, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import sanitize
from tests.support.histories import broken_histories
from tests.support.wires.rules_ollama import violations

LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
HELLO = UserMessage(content="hello")
OWN = ProviderState(wire="ollama", model="m", payload={"thinking": True})


def body_of(*messages: Message, context_window: int | None = None, **options: Any) -> dict[str, Any]:
    """Return the request for these messages after checking it against the rules."""
    request = ModelRequest(messages=messages, **options)
    body = json.loads(request_body(request, model="m", context_window=context_window))
    assert violations(body) == []
    return body


def assistant(state: ProviderState | None = OWN, arguments: str = '{"at":"it"}') -> AssistantMessage:
    return AssistantMessage(
        content="a",
        reasoning="t",
        tool_calls=(ToolCall(id="c1", name="look", arguments=arguments),),
        provider_state=state,
    )


RESULT = ToolMessage(tool_call_id="c1", name="look", content="seen")


def test_a_request_with_all_fields() -> None:
    messages = [SystemMessage(content="Be brief."), HELLO, assistant(), RESULT]
    assert body_of(*messages, tools=[LOOK], sampling=Sampling(max_output_tokens=9), context_window=8192) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": "a",
                "thinking": "t",
                "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "look", "arguments": {"at": "it"}}}],
            },
            {"role": "tool", "content": "seen", "tool_name": "look", "tool_call_id": "c1"},
        ],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": LOOK.parameters},
            }
        ],
        "options": {"num_ctx": 8192, "num_predict": 9},
    }


def test_options_that_are_not_set_are_left_out() -> None:
    assert sorted(body_of(HELLO, tools=[LOOK], tool_choice="none")) == ["messages", "model", "stream"]


@pytest.mark.parametrize(
    "state", [None, OWN.model_copy(update={"model": "n"}), OWN.model_copy(update={"wire": "openai-chat"})]
)
def test_reasoning_of_another_model_is_not_sent(state: ProviderState | None) -> None:
    assert "thinking" not in body_of(HELLO, assistant(state), RESULT)["messages"][1]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", {}),
        ("{", {"malformed_arguments": "{"}),
        ("1", {"malformed_arguments": "1"}),
        ('{"a": NaN}', {"malformed_arguments": '{"a": NaN}'}),
    ],
)
def test_arguments_of_any_form_are_sent_as_an_object(arguments: str, sent: dict[str, Any]) -> None:
    row = body_of(HELLO, assistant(arguments=arguments), RESULT)["messages"][1]
    assert row["tool_calls"][0]["function"]["arguments"] == sent


def test_lone_surrogates_are_replaced() -> None:
    body = body_of(UserMessage.model_construct(role="user", content="a\ud800b"))
    assert body["messages"] == [{"role": "user", "content": "a\ufffdb"}]


@pytest.mark.promise("D5")
@given(broken_histories(), st.sampled_from([None, OWN]))
def test_every_sanitized_history_becomes_a_valid_request(history: list[Message], state: ProviderState | None) -> None:
    rows = [
        row.model_copy(update={"provider_state": state, "reasoning": "t"}) if isinstance(row, AssistantMessage) else row
        for row in sanitize(history)
    ]
    body = body_of(*rows, tools=[LOOK])
    assert [(row["role"], row["content"]) for row in body["messages"]] == [(row.role, row.content) for row in rows]
