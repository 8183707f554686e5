"""The Responses wire over real sockets: what is asked, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms import ModelRequest, OpenAIResponsesModel, Reply, TextDelta, complete, resolve_model
from agenticx.messages import AssistantMessage, ProviderState, ToolMessage, UserMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing.fake_openai import FakeOpenAIServer
from agenticx.testing.provider_replies import Body, status
from tests.llms.pieces_server import pieces_server
from tests.llms.recorded import (
    CHUNKINGS,
    Chunking,
    Recording,
    outcome,
    pieces,
    recorded_errors,
    recordings,
)

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])
KEY = "sk-canary-1234567890"


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


HI = sse({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"})
END = sse({"type": "response.completed", "response": {"status": "completed"}})
WHOLE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "whole"}]}],
}


def stream(*parts: bytes) -> Body:
    return Body(b"".join(parts), 200, "text/event-stream", {})


def refusal(message: str, code: int = 400) -> Body:
    return status(code, message, error_type="invalid_request_error")


@asynccontextmanager
async def model_at(base_url: str, model: str = "m", **options: Any) -> AsyncIterator[OpenAIResponsesModel]:
    made = OpenAIResponsesModel(model, base_url=base_url, **options)
    try:
        yield made
    finally:
        await made.aclose()


async def ask(*replies: Any, request: ModelRequest = HELLO, **options: Any) -> tuple[Reply, ModelError | None]:
    """One call of a fake server that plays these replies."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, **options) as model:
        return await complete(model, request)


async def asked(*replies: Any, model: str = "m", times: int = 1, request: ModelRequest = HELLO) -> list[dict[str, Any]]:
    """The requests that a fake server, which plays these replies, saw."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url, model) as made:
        for _ in range(times):
            assert (await complete(made, request))[0].complete
        return [seen.json for seen in server.requests]


# --- replies ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C2")
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("recording", recordings("responses"))
async def test_a_recorded_stream_over_a_socket_becomes_the_expected_reply(
    recording: Recording, chunking: Chunking
) -> None:
    size = 5_000 if chunking == "bytes" else len(recording.body)  # a socket write for each byte is slow
    head, tail = recording.body[:-size], recording.body[-size:]

    def parts() -> Iterator[bytes]:
        if head:
            yield head
        yield from pieces(tail, chunking)

    async with pieces_server(parts) as server, model_at(server.base_url) as model:
        said = outcome(*await complete(model, HELLO))
    assert said == recording.judge(said)


@pytest.mark.parametrize("recorded", recorded_errors("responses"))
async def test_a_recorded_error_is_told_in_the_provider_s_words(recorded: dict[str, Any]) -> None:
    said = json.loads(recorded["body"])["error"]
    _, error = await ask(Body(recorded["body"].encode(), recorded["status"], recorded["content_type"], {}))
    assert error is not None
    assert (error.code, error.provider_type, error.status) == ("provider.bad_request", said["type"], recorded["status"])
    assert said["message"] in str(error)


async def test_all_events_of_one_read_are_one_batch() -> None:
    async with (
        pieces_server(lambda: [HI * 3, END]) as server,
        model_at(server.base_url) as model,
        aclosing(model.stream(HELLO)) as batches,
    ):
        assert list(await anext(batches))[:3] == [TextDelta("hi")] * 3


async def test_a_body_that_ends_without_marker_is_incomplete_and_no_error() -> None:
    reply, error = await ask(stream(HI))
    assert (reply.text, reply.complete, error) == ("hi", False, None)


async def test_a_web_page_is_no_reply() -> None:
    _, error = await ask(Body(b"<html></html>", 200, "text/html", {}))
    assert error is not None
    assert error.code == "provider.bad_reply"


# --- requests -----------------------------------------------------------------------------------------------------


async def test_a_request_goes_to_the_responses_endpoint_with_the_key() -> None:
    async with FakeOpenAIServer([stream(HI, END)]) as server, model_at(server.base_url, api_key=KEY) as model:
        await complete(model, HELLO)
        seen = server.requests[0]
    assert (seen.path, seen.headers["authorization"]) == ("/v1/responses", f"Bearer {KEY}")
    assert seen.json == {
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
async def test_reasoning_is_asked_for_where_the_model_may_reason(model: str, encrypted: bool, summary: bool) -> None:
    (sent,) = await asked(stream(HI, END), model=model)
    assert ("include" in sent, "reasoning" in sent) == (encrypted, summary)


async def test_what_came_back_goes_out_again_with_the_results_of_its_calls() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    called = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"}
    events = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate([thought, called])
    ]
    async with (
        FakeOpenAIServer([stream(sse(*events), END), stream(HI, END)]) as server,
        model_at(server.base_url) as model,
    ):
        first, _ = await complete(model, HELLO)
        answered = [
            *HELLO.messages,
            AssistantMessage(tool_calls=first.tool_calls, provider_state=first.provider_state),
            ToolMessage(tool_call_id="c1", name="add", content="2"),
        ]
        await complete(model, ModelRequest(messages=answered))
        sent = server.requests[1].json["input"]
    assert sent[1:] == [thought, called, {"type": "function_call_output", "call_id": "c1", "output": "2"}]


async def test_a_turn_sends_its_rounds_back_item_by_item() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
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
        for index, item in enumerate([thought, *calls])
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
        thought,
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
async def test_a_field_that_a_server_refuses_is_left_out_from_then_on(model: str, message: str, field: str) -> None:
    sent = await asked(refusal(message), stream(HI, END), stream(HI, END), model=model, times=2)
    assert [field in body for body in sent] == [True, False, False]


@pytest.mark.parametrize(
    "message", ["Your organization must be verified to stream this model.", "'stream' is not supported for this model"]
)
async def test_a_server_that_refuses_streaming_is_asked_without_it_from_then_on(message: str) -> None:
    whole = Body(json.dumps(WHOLE).encode(), 200, "application/json", {})
    assert [body["stream"] for body in await asked(refusal(message), whole, whole, times=2)] == [True, False, False]


def said(model: str = "m") -> AssistantMessage:
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a", "annotations": []}],
    }
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    state = ProviderState(wire="openai-responses", model=model, payload={"output": [thought, item]})
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
async def test_a_server_that_does_not_know_its_own_output_any_more_gets_it_as_text(complaint: Body) -> None:
    request = ModelRequest(messages=[said(), UserMessage(content="go on")])
    first, second = await asked(complaint, stream(HI, END), request=request)
    assert [item["type"] for item in first["input"]] == ["reasoning", "message", "message"]
    assert [item["content"] for item in second["input"]] == ["a", "go on"]
    assert second["include"] == ["reasoning.encrypted_content"]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever() -> None:
    refusals = [refusal(text) for text in ("reasoning.summary", "include", "'stream' is not supported", "no")]
    async with FakeOpenAIServer(refusals) as server, model_at(server.base_url, "gpt-5") as model:
        _, error = await complete(model, HELLO)
        assert (error and error.code, len(server.requests)) == ("provider.bad_request", 4)


# --- connections --------------------------------------------------------------------------------------------------


@pytest.mark.promise("C8")
async def test_closing_the_iterator_closes_the_socket_at_once() -> None:
    async with pieces_server(lambda: [HI], then_silent=True) as server, model_at(server.base_url) as model:
        async with aclosing(model.stream(HELLO)) as batches:
            assert list(await anext(batches)) == [TextDelta("hi")]
            began = time.monotonic()
        await asyncio.wait_for(server.client_gone.wait(), 1)
        assert time.monotonic() - began < 0.2


async def test_one_connection_serves_calls_that_follow_each_other() -> None:
    async with pieces_server(lambda: [HI, END, b"data: [DONE]\n\n"]) as server, model_at(server.base_url) as model:
        for _ in range(3):
            assert (await complete(model, HELLO))[0].complete
        assert (server.connections, len(server.requests)) == (1, 3)


@pytest.mark.promise("I1")
async def test_no_error_quotes_the_key() -> None:
    _, error = await ask(status(401, f"Incorrect API key provided: {KEY}."), api_key=KEY)
    assert error is not None
    assert (error.code, KEY in f"{error} {error!r} {vars(error)}") == ("provider.auth", False)


# --- its name -----------------------------------------------------------------------------------------------------


async def test_openai_means_responses_with_key_and_address_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeOpenAIServer([stream(HI, END)]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = resolve_model("openai:gpt-5.4")
        reply, error = await complete(model, HELLO)
        assert isinstance(model, OpenAIResponsesModel)
        await model.aclose()
        seen = server.requests[0]
    assert (reply.text, error, model.name) == ("hi", None, "openai:gpt-5.4")
    assert (seen.path, seen.json["model"], seen.headers["authorization"]) == (
        "/v1/responses",
        "gpt-5.4",
        f"Bearer {KEY}",
    )
