"""The Ollama wire over real sockets: what is asked, what comes back, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms import Finished, ModelRequest, OllamaModel, Reply, TextDelta, complete, resolve_model
from agenticx.messages import UserMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing.fake_openai import FakeOpenAIServer
from agenticx.testing.provider_replies import Body, hang_up, reset
from tests.llms.pieces_server import pieces_server
from tests.llms.rules_ollama import violations
from tests.llms.test_ollama_reply import asked, end, lines, said

pytestmark = pytest.mark.anyio

HELLO = ModelRequest(messages=[UserMessage(content="hello")])


def ndjson(*events: Any, status: int = 200) -> Body:
    return Body(lines(*events), status, "application/x-ndjson")


HI = ndjson(said("hi"), end())


@asynccontextmanager
async def model_at(base_url: str, **options: Any) -> AsyncIterator[OllamaModel]:
    opened = OllamaModel("m", base_url=base_url, **options)
    try:
        yield opened
    finally:
        await opened.aclose()


async def ask(*replies: Any) -> tuple[Reply, ModelError | None]:
    """One call of a server that answers with these."""
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url) as model:
        return await complete(model, HELLO)


async def test_all_lines_of_one_read_are_one_batch() -> None:
    async with (
        pieces_server(lambda: [lines(said("a"), said("b"), end())]) as server,
        model_at(server.base_url) as model,
    ):
        batches = [list(batch) async for batch in model.stream(HELLO)]
        assert [(await complete(model, HELLO))[0].text, server.connections] == ["ab", 1]
    assert batches == [[TextDelta("a"), TextDelta("b"), Finished("end", "stop")]]


@pytest.mark.promise("C3")
async def test_a_body_that_ends_without_done_is_incomplete_and_no_error() -> None:
    reply, error = await ask(ndjson(said("hi")))
    assert (reply.text, reply.complete, error) == ("hi", False, None)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/api/"])
async def test_the_address_is_the_server_s(ending: str) -> None:
    async with FakeOpenAIServer([HI]) as server:
        async with model_at(server.base_url.removesuffix("/v1") + ending) as model:
            await complete(model, HELLO)
        assert [request.path for request in server.requests] == ["/api/chat"]


async def test_a_turn_gives_thoughts_and_calls_back_with_their_results() -> None:
    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is there"

    calls = [asked("look", {"at": "a"}), asked("look", {"at": "b"})]
    replies = [ndjson(said(thinking="hm"), said(tool_calls=calls), end(prompt_eval_count=3)), HI]
    async with FakeOpenAIServer(replies) as server, model_at(server.base_url) as model:
        runtime = AgentRuntime(model, AutoApproveConfirmGate())
        events = [event async for event in runtime.run_turn("go", Session(), tools=[look])]
        first, second = [request.json for request in server.requests]
    assert events[-1].data["text"] == "hi"
    assert (violations(first), violations(second)) == ([], [])
    one, two = [event.data["tool_call_id"] for event in events if event.type == "tool_call"]
    assert second["messages"][-3:] == [
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [
                {"id": one, "function": {"index": 0, "name": "look", "arguments": {"at": "a"}}},
                {"id": two, "function": {"index": 1, "name": "look", "arguments": {"at": "b"}}},
            ],
        },
        {"role": "tool", "content": "a is there", "tool_name": "look", "tool_call_id": one},
        {"role": "tool", "content": "b is there", "tool_name": "look", "tool_call_id": two},
    ]


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (404, "model 'm' not found", "provider.bad_request"),
        (400, "m does not support tools", "provider.bad_request"),
        (500, "llama runner process has terminated", "provider.overloaded"),
        (503, "server busy, please try again", "provider.overloaded"),
    ],
)
async def test_a_refusal_is_told_in_the_server_s_words(status: int, message: str, code: str) -> None:
    _, error = await ask(Body(json.dumps({"error": message}).encode(), status, "application/json"))
    assert error is not None
    assert (error.code, error.status, message in str(error)) == (code, status, True)


async def test_a_connection_that_breaks_is_a_transport_error() -> None:
    for fault in (hang_up, reset):
        _, error = await ask(fault())
        assert (error and error.code) == "provider.transport"


# --- its name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "host"),
    [
        (None, "", "127.0.0.1:11434"),
        ("OLLAMA_HOST", "0.0.0.0", "127.0.0.1:11434"),
        ("OLLAMA_HOST", "box:8080", "box:8080"),
        ("OLLAMA_HOST", "https://box/", "box"),
        ("OLLAMA_BASE_URL", "http://box:9/v1", "box:9"),
    ],
)
def test_the_catalog_finds_the_server(
    variable: str | None, value: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OLLAMA_HOST", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, value)
    assert repr(resolve_model("ollama:qwen3:8b")) == f"OllamaModel('ollama:qwen3:8b', host={host!r})"
    assert repr(resolve_model("ollama-chat:qwen3:8b")) == f"OpenAIChatModel('ollama-chat:qwen3:8b', host={host!r})"
