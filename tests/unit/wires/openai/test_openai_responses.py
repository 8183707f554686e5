"""Tests of the Responses wire over real sockets; `test_sockets` has those of all wires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ModelRequest, close_model, complete, resolve_wire
from agenticx.messages import AssistantMessage, ProviderState, ToolMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import FakeOpenAIServer, RawReply, status
from tests.support.wires.replies import sse
from tests.support.wires.served import HELLO, KEY, RESPONSES

pytestmark = pytest.mark.anyio

model_at, stream, HI, END = RESPONSES.open_model, RESPONSES.body, RESPONSES.hi, RESPONSES.end


WHOLE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "whole"}]}],
}


def refusal(message: str, code: int = 400) -> RawReply:
    return status(code, message, error_type="invalid_request_error")


async def sent_bodies(
    *replies: Any, model: str = "m", times: int = 1, request: ModelRequest = HELLO
) -> list[dict[str, Any]]:
    """Return the requests that a fake server with these replies received."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, model) as made:
        for _ in range(times):
            assert (await complete(made, request))[0].complete
        return [seen.json for seen in server.requests]


# --- requests -----------------------------------------------------------------------------------------------------


async def test_storing_is_disabled_and_encrypted_reasoning_requested() -> None:
    (sent,) = await sent_bodies(stream(HI, END))
    assert sent == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "hello"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    ("model", "encrypted", "summary"),
    [
        ("gpt-5.4", True, True),
        ("gpt-5-mini", True, True),
        ("openai/o3", True, True),
        ("gpt-4o", False, False),
        ("gpt-4.1-mini", False, False),
        ("gpt-5-chat-latest", False, False),
        ("grok-4-fast-reasoning", True, False),
        ("my-deployment", True, False),
    ],
)
async def test_reasoning_is_requested_from_models_that_may_reason(model: str, encrypted: bool, summary: bool) -> None:
    (sent,) = await sent_bodies(stream(HI, END), model=model)
    assert ("include" in sent, "reasoning" in sent) == (encrypted, summary)


async def test_output_items_are_sent_back_with_the_results_of_their_calls() -> None:
    reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    call_item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"}
    events = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate([reasoning_item, call_item])
    ]
    async with (
        FakeOpenAIServer([stream(sse(*events), END), stream(HI, END)]) as server,
        model_at(server.base_url) as model,
    ):
        first, _ = await complete(model, HELLO)
        history = [
            *HELLO.messages,
            AssistantMessage(tool_calls=first.tool_calls, provider_state=first.provider_state),
            ToolMessage(tool_call_id="c1", name="add", content="2"),
        ]
        await complete(model, ModelRequest(messages=history))
        sent = server.requests[1].json["input"]
    assert sent[1:] == [reasoning_item, call_item, {"type": "function_call_output", "call_id": "c1", "output": "2"}]


async def test_a_turn_sends_the_items_of_its_rounds_back() -> None:
    reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"c{n}",
            "name": "double",
            "arguments": json.dumps({"n": n}),
        }
        for n in (1, 2)
    ]
    events = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate([reasoning_item, *calls])
    ]

    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    async with (
        FakeOpenAIServer([stream(sse(*events), END), stream(HI, END)]) as server,
        model_at(server.base_url) as model,
    ):
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        last = [event async for event in runtime.run_turn("double", Session(), tools=[double])][-1]
        sent = server.requests[1].json["input"]
    assert (last.type, last.data["text"]) == ("final", "hi")
    assert sent == [
        {"type": "message", "role": "user", "content": "double"},
        reasoning_item,
        *calls,
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "function_call_output", "call_id": "c2", "output": "4"},
    ]


SUMMARY = "Your organization must be verified to generate reasoning summaries. Please go to: https://example.com"


@pytest.mark.parametrize(
    ("model", "message", "field"),
    [
        ("gpt-5.4", SUMMARY, "reasoning"),
        ("gpt-5.4", "Unsupported parameter: 'reasoning.summary' is not supported with this model.", "reasoning"),
        ("x", "Encrypted content is not supported with this model.", "include"),
        ("x", "Unknown parameter: 'include'.", "include"),
    ],
)
async def test_a_refused_field_is_left_out_from_then_on(model: str, message: str, field: str) -> None:
    sent = await sent_bodies(refusal(message), stream(HI, END), stream(HI, END), model=model, times=2)
    assert [field in body for body in sent] == [True, False, False]


@pytest.mark.parametrize(
    "message", ["Your organization must be verified to stream this model.", "'stream' is not supported for this model"]
)
async def test_after_a_refusal_of_streaming_requests_are_not_streamed(message: str) -> None:
    whole = RawReply(json.dumps(WHOLE).encode(), 200, "application/json", {})
    assert [body["stream"] for body in await sent_bodies(refusal(message), whole, whole, times=2)] == [
        True,
        False,
        False,
    ]


def stored_reply(model: str = "m") -> AssistantMessage:
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a", "annotations": []}],
    }
    reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    state = ProviderState(wire="openai-responses", model=model, payload={"output": [reasoning_item, item]})
    return AssistantMessage(content="a", provider_state=state)


@pytest.mark.parametrize(
    "complaint",
    [
        refusal("The encrypted content gAAA...c90= could not be verified."),
        refusal("reasoning `encrypted_content` was not issued to this caller"),
        refusal("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        refusal("Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.", 404),
    ],
)
async def test_output_that_the_server_no_longer_knows_is_sent_as_text(complaint: RawReply) -> None:
    request = ModelRequest(messages=[stored_reply(), UserMessage(content="go on")])
    first, second = await sent_bodies(complaint, stream(HI, END), request=request)
    assert [item["type"] for item in first["input"]] == ["reasoning", "message", "message"]
    assert [item["content"] for item in second["input"]] == ["a", "go on"]
    assert second["include"] == ["reasoning.encrypted_content"]


async def test_a_server_that_refuses_every_request_is_asked_a_bounded_number_of_times() -> None:
    refusals = [refusal(text) for text in ("reasoning.summary", "include", "'stream' is not supported", "no")]
    async with FakeOpenAIServer(refusals) as server, model_at(server.base_url, "gpt-5") as model:
        _, error = await complete(model, HELLO)
        assert (error and error.code, len(server.requests)) == ("provider.bad_request", 4)


# --- its name -----------------------------------------------------------------------------------------------------


async def test_the_openai_provider_uses_responses_with_key_and_address_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeOpenAIServer([stream(HI, END)]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = resolve_wire("openai:gpt-5.4")
        reply, error = await complete(model, HELLO)
        assert repr(model).startswith("OpenAIResponsesModel('openai:gpt-5.4', host=")
        await close_model(model)
        seen = server.requests[0]
    assert (reply.text, error, model.name) == ("hi", None, "openai:gpt-5.4")
    assert (seen.path, seen.json["model"], seen.headers["authorization"]) == (
        "/v1/responses",
        "gpt-5.4",
        f"Bearer {KEY}",
    )
