"""Tests of the Ollama wire over real sockets; `test_sockets` has those of all wires."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import complete, resolve_wire
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import FakeOpenAIServer, RawReply
from tests.support.wires.ollama_lines import last_line, lines, message_line, tool_call
from tests.support.wires.rules_ollama import violations
from tests.support.wires.served import HELLO, OLLAMA

pytestmark = pytest.mark.anyio

model_at = OLLAMA.open_model


def ndjson(*events: Any) -> RawReply:
    return OLLAMA.body(lines(*events))


HI = ndjson(message_line("hi"), last_line())


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/api/"])
async def test_the_request_goes_to_the_chat_path_of_the_server(ending: str) -> None:
    async with FakeOpenAIServer([HI]) as server:
        async with model_at(server.base_url.removesuffix("/v1") + ending) as model:
            await complete(model, HELLO)
        assert [request.path for request in server.requests] == ["/api/chat"]


async def test_a_turn_sends_reasoning_and_calls_back_with_the_results() -> None:
    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is there"

    calls = [tool_call("look", {"at": "a"}), tool_call("look", {"at": "b"})]
    replies = [ndjson(message_line(thinking="hm"), message_line(tool_calls=calls), last_line(prompt_eval_count=3)), HI]
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
def test_the_server_address_comes_from_the_environment(
    variable: str | None, value: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OLLAMA_HOST", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, value)
    assert repr(resolve_wire("ollama:qwen3:8b")) == f"OllamaModel('ollama:qwen3:8b', host={host!r})"
    assert repr(resolve_wire("ollama-chat:qwen3:8b")) == f"OpenAIChatModel('ollama-chat:qwen3:8b', host={host!r})"
