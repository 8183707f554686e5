"""Tests of the replay of a model's own reasoning: required, refused, downgraded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import AnthropicModel, ChatDialect, ModelRequest, OpenAIChatModel, ToolSchema, complete, resolve_wire
from agenticx.messages import AssistantMessage, Message, ProviderState, ToolCall, ToolMessage
from agenticx.testing import FakeOpenAIServer, RawReply, body, status
from tests.support.wires import rules_anthropic
from tests.support.wires.anthropic_events import END, content_block, message_delta, message_start, text_delta
from tests.support.wires.bodies import anthropic_body, chat_body, gemini_body, responses_body
from tests.support.wires.conversations import SECRET, conversation, own_ids, text_of
from tests.support.wires.replies import sse
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

LOOK = ToolCall(id="c", name="look")
LOOKING = ToolSchema("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})
SEEN = ToolMessage(tool_call_id="c", name="look", content="r")
REASONING_REQUIRED = "The `reasoning_content` in the thinking mode must be passed back to the API."


def reply_of(model: str | None, **more: Any) -> AssistantMessage:
    """Return a reply of `model` over Chat Completions; with None, a reply without provider state."""
    state = ProviderState(wire="openai-chat", model=model, payload={"field": "reasoning_content"}) if model else None
    return AssistantMessage(**more, provider_state=state)


async def sent_reasoning(
    model: OpenAIChatModel, server: FakeOpenAIServer, *histories: Sequence[Message]
) -> list[list[Any]]:
    """Return the reasoning of each answer in each request for these histories."""
    for history in histories:
        assert (await complete(model, ModelRequest(messages=history)))[1] is None
    await model.aclose()
    return [
        [row.get("reasoning_content") for row in request.json["messages"] if row["role"] == "assistant"]
        for request in server.requests
    ]


# --- Chat Completions -------------------------------------------------------------------------------------------------

HISTORY = [
    *(UserMessage(content="x"), reply_of("m", reasoning="hm", tool_calls=(LOOK,)), SEEN),
    *(reply_of("another", reasoning="no", tool_calls=(LOOK,)), SEEN),
    *(reply_of(None, tool_calls=(LOOK,)), SEEN, reply_of(None, content="so"), UserMessage(content="y")),
]


@pytest.mark.parametrize(
    ("provider", "echoed"),
    [
        ("deepseek", ["hm", *["(not known)"] * 3]),
        ("moonshot", ["hm", *["(not known)"] * 3]),
        ("zai", ["hm", None, None, None]),
        ("openrouter", ["hm", None, None, None]),
        ("groq", [None] * 4),
        ("cerebras", [None] * 4),
        ("mistral", [None] * 4),
        ("xai", [None] * 4),
        ("vllm", [None] * 4),
    ],
)
async def test_each_provider_gets_the_reasoning_that_it_accepts(
    provider: str, echoed: list[Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    async with FakeOpenAIServer(["ok"]) as server:
        model = resolve_wire(f"{provider}:m", base_url=server.base_url)
        assert isinstance(model, OpenAIChatModel)
        assert await sent_reasoning(model, server, HISTORY) == [echoed]


@pytest.mark.parametrize(
    "complaint",
    [
        REASONING_REQUIRED,
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        "Missing reasoning_content field in the assistant message at message index 2.",
    ],
)
async def test_reasoning_is_sent_from_then_on_to_a_server_that_requires_it(complaint: str) -> None:
    async with FakeOpenAIServer([status(400, complaint), "so", "and"]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        sent = await sent_reasoning(model, server, HISTORY, HISTORY)
    assert sent == [[None] * 4, ["hm", *["(not known)"] * 3], ["hm", *["(not known)"] * 3]]


async def test_reasoning_details_are_sent_as_text_as_well_to_a_server_that_requires_it() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    state = ProviderState(wire="openai-chat", model="m", payload={"field": "reasoning", "details": details})
    history = [UserMessage(content="x"), AssistantMessage(content="y", reasoning="hm", provider_state=state)]
    async with FakeOpenAIServer([status(400, REASONING_REQUIRED), "so"]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(returns_reasoning=True))
        assert await sent_reasoning(model, server, history) == [[None], ["hm"]]
        assert [request.json["messages"][1]["reasoning_details"] for request in server.requests] == [details] * 2


async def test_a_second_demand_for_reasoning_fails_the_call() -> None:
    async with FakeOpenAIServer([status(400, REASONING_REQUIRED)] * 2) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        _, error = await complete(model, ModelRequest(messages=HISTORY))
        await model.aclose()
    assert error is not None
    assert (error.code, REASONING_REQUIRED in str(error)) == ("provider.bad_request", True)


@pytest.mark.parametrize(
    "complaint",
    [
        "'messages.1' : for 'role:assistant' … (property 'reasoning_content' is unsupported)",
        "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is unsupported",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ],
)
async def test_refused_reasoning_is_left_out_of_the_request(complaint: str) -> None:
    async with FakeOpenAIServer([status(400, complaint), "so"]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(returns_reasoning=True))
        assert await sent_reasoning(model, server, HISTORY) == [["hm", None, None, None], [None] * 4]


# --- Anthropic, and all wires without anything as it came -----------------------------------------------------------

PLAIN: dict[str, Callable[[ModelRequest], bytes]] = {
    "anthropic": partial(anthropic_body, thinking={"type": "enabled", "budget_tokens": 1024}, replay_state=False),
    "gemini": partial(gemini_body, replay_state=False),
    "openai_chat": partial(chat_body, returns_reasoning=True, replay_state=False),
    "openai_responses": partial(responses_body, replay_state=False),
}
"""The wires that can be refused what they want back, and how each asks once they were."""

HI = body(
    sse(
        message_start(input_tokens=3),
        *content_block(0, "text", text_delta("hi"), text=""),
        message_delta(output_tokens=1),
        END,
    )
)
STATE = ProviderState(
    wire="anthropic",
    model="m",
    payload={
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "eA=="},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c", "name": "look", "input": {}},
        ]
    },
)
OWN = AssistantMessage(content="Let me see.", reasoning="hm", tool_calls=(LOOK,), provider_state=STATE)


def refusal(message: str) -> RawReply:
    return status(400, message, error_type="invalid_request_error")


@pytest.mark.promise("D5")
@pytest.mark.parametrize(
    "complaint",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.",
        "messages.1.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified. These blocks must remain as they were in the original response.",
        "messages.1.content.1.redacted_thinking.data: Invalid data in `redacted_thinking` block",
    ],
)
async def test_refused_thinking_is_left_out_and_the_request_is_valid(complaint: str) -> None:
    history = [UserMessage(content="x"), OWN, SEEN]
    async with FakeOpenAIServer([refusal(complaint), HI]) as server:
        model = AnthropicModel(
            "m", base_url=server.base_url, thinking={"type": "enabled", "budget_tokens": 1024}, max_output_tokens=4096
        )
        reply, error = await complete(model, ModelRequest(messages=history))
        await model.aclose()
    assert (reply.text, error) == ("hi", None)
    first, second = (request.json for request in server.requests)
    assert [row["type"] for row in first["messages"][1]["content"]] == [
        *["thinking", "redacted_thinking", "text", "tool_use"],
    ]
    assert [row["type"] for row in second["messages"][1]["content"]] == ["text", "tool_use"]
    assert ("thinking" in first, "thinking" in second) == (True, False)
    assert [rules_anthropic.violations(request) for request in (first, second)] == [[], []]


@pytest.mark.parametrize("then", sorted(PLAIN))
@pytest.mark.parametrize("first", sorted(WIRES))
def test_without_provider_state_every_wire_sends_all_text_and_calls(first: str, then: str) -> None:
    history = conversation(WIRES[first], own_ids(WIRES[first], 2), own_ids(WIRES[first], 1, 2))
    body = json.loads(PLAIN[then](ModelRequest(messages=history, tools=[LOOKING])))
    assert WIRES[then].violations(body) == []
    sent_text = text_of(body)
    assert SECRET not in sent_text
    assert all(word in sent_text for word in ("Look around.", "Let me see.", "look", "seen"))


async def test_a_request_that_is_refused_for_another_reason_is_not_repeated() -> None:
    history = [UserMessage(content="x"), OWN, SEEN]
    async with FakeOpenAIServer([refusal("messages: at least one message is required")]) as server:
        model = AnthropicModel("m", base_url=server.base_url)
        _, error = await complete(model, ModelRequest(messages=history))
        await model.aclose()
    assert error is not None
    assert error.code == "provider.bad_request"
