"""Tests of the Anthropic wire over real sockets; `test_sockets` has those of all wires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import ModelRequest, Sampling, complete, resolve_wire
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import FakeOpenAIServer, RawReply, body
from tests.support.wires.anthropic_events import (
    END,
    content_block,
    error_event,
    json_delta,
    message_delta,
    message_start,
    signature_delta,
    text_delta,
    thinking_delta,
)
from tests.support.wires.replies import sse
from tests.support.wires.rules_anthropic import violations
from tests.support.wires.served import ANTHROPIC, HELLO, KEY

pytestmark = pytest.mark.anyio

model_at, failure = ANTHROPIC.open_model, ANTHROPIC.failure
HI = [
    message_start(input_tokens=3),
    *content_block(0, "text", text_delta("hi"), text=""),
    message_delta(output_tokens=1),
]


def refusal(status: int, type_: str, message: str = "m") -> RawReply:
    return RawReply(json.dumps(error_event(type_, message)).encode(), status, "application/json")


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_a_base_url_may_end_in_v1_or_not(ending: str) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server:
        async with model_at(server.base_url.removesuffix("/v1") + ending, api_key=KEY) as model:
            await complete(model, HELLO)
        (request,) = server.requests
    assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert (request.headers["anthropic-version"], "authorization" in request.headers) == ("2023-06-01", False)


@pytest.mark.parametrize(
    ("model", "options", "limit", "sent"),
    [
        ("m", {}, None, 8192),
        ("m", {}, 9, 9),
        ("m", {"max_output_tokens": 500}, None, 500),
        ("claude-3-haiku-20240307", {}, None, 4096),
        ("claude-3-5-haiku-latest", {}, None, 8192),
        ("claude-3-7-sonnet-latest", {}, None, 32_000),
        ("claude-sonnet-4-5-20250929", {}, None, 32_000),
        ("claude-sonnet-4-5-20250929", {}, 64_000, 64_000),
    ],
)
async def test_the_output_limit_is_that_of_the_request_or_the_default(
    model: str, options: dict[str, Any], limit: int | None, sent: int
) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server, model_at(server.base_url, model, **options) as opened:
        await complete(opened, ModelRequest(messages=HELLO.messages, sampling=Sampling(max_output_tokens=limit)))
        assert server.requests[0].json["max_tokens"] == sent


async def test_an_output_limit_that_is_refused_is_lowered_to_that_of_the_model_from_then_on() -> None:
    too_many = refusal(
        400, "invalid_request_error", "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"
    )
    replies = [too_many, *[body(sse(*HI, END))] * 2]
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url) as model:
        assert [(await complete(model, HELLO))[0].text for _ in range(2)] == ["hi", "hi"]
        assert [request.json["max_tokens"] for request in server.requests] == [8192, 4096, 4096]


async def test_a_second_refusal_of_the_limit_fails_the_call() -> None:
    too_many = refusal(400, "invalid_request_error", "max_tokens: 8192 > 4096")
    assert (await failure(too_many, too_many)).code == "provider.bad_request"


# --- a turn -------------------------------------------------------------------------------------------------------


async def test_a_turn_sends_reasoning_and_calls_back_with_the_results() -> None:
    thinks = [
        message_start(input_tokens=10, cache_read_input_tokens=90),
        *content_block(0, "thinking", thinking_delta("hm"), signature_delta("s"), thinking="", signature=""),
        *content_block(1, "redacted_thinking", data="x"),
        *content_block(2, "text", text_delta("Let me look."), text=""),
        *content_block(3, "tool_use", json_delta('{"at": '), json_delta('"a"}'), id="toolu_1", name="look", input={}),
        *content_block(4, "tool_use", json_delta('{"at": "b"}'), id="toolu_2", name="look", input={}),
        message_delta("tool_use", output_tokens=5),
        END,
    ]

    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is there"

    session = Session()
    async with (
        FakeOpenAIServer([body(sse(*thinks)), body(sse(*HI, END))]) as server,
        model_at(server.base_url, thinking={"type": "adaptive"}) as model,
    ):
        events = [
            event async for event in AgentRuntime(model, AutoApproveConfirmGate()).run_turn("go", session, tools=[look])
        ]
        first, second = [request.json for request in server.requests]
    assert events[-1].data["text"] == "hi"
    assert [event.data["input_tokens"] for event in events if event.type == "usage"] == [100, 3]
    assert (violations(first), violations(second)) == ([], [])
    assert second["messages"][-2:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a is there"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "b is there",
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        },
    ]
    assert second["thinking"] == {"type": "adaptive"}


# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_prompt_that_is_too_long_is_a_context_overflow() -> None:
    error = await failure(refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"))
    assert (error.code, error.retryable, error.status) == ("context_overflow", False, 400)


# --- its name -----------------------------------------------------------------------------------------------------


def test_the_catalog_resolves_the_model_and_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        resolve_wire("anthropic:claude-sonnet-4-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model = resolve_wire("anthropic:claude-sonnet-4-5")
    assert (model.name, model.context_window) == ("anthropic:claude-sonnet-4-5", 200_000)
    assert repr(model) == "AnthropicModel('anthropic:claude-sonnet-4-5', host='api.anthropic.com')"


async def test_the_base_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer([body(sse(*HI, END))]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        reply, error = await complete(resolve_wire("anthropic:m"), HELLO)
    assert (reply.text, error) == ("hi", None)
