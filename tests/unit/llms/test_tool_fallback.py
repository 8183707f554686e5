"""Models that may not support tools: catalogue, refusals of servers, and the user's setting."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage, builtin_tools
from agenticx.errors import ModelError
from agenticx.llms import ModelRequest, RetryingModel, ToolFallbackModel, ToolSchema, complete, resolve_model
from agenticx.llms.transport.errors import ErrorReport, status_error
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage
from agenticx.runtime import AgentRuntime, Session
from agenticx.settings import Settings
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, collect, fail, outline, say
from agenticx.tools import tool
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.served import CHAT, SERVED_WIRES, ServedWire

pytestmark = pytest.mark.anyio

CALL_AS_TEXT = "<function=look>\n</function>"
A_TOOL_ROUND = ["tool_call_delta", "tool_call", "tool_result", "round_start", "token", "final"]


@tool(risk="read")
def look() -> str:
    """Look."""
    return "nothing"


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))


async def turn_outline(model: Any) -> list[str]:
    return outline(await collect(AgentRuntime(model).run_turn("hi", Session(), tools=[look])))


WORDINGS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("tool_refusals.toml").read_text("utf-8")
)
WITH_TOOLS = ModelRequest(messages=[UserMessage(content="Look.")], tools=[ToolSchema("look", "", {"type": "object"})])
WITH_RESULTS = replace(
    WITH_TOOLS,
    messages=[
        *WITH_TOOLS.messages,
        AssistantMessage(tool_calls=(ToolCall(id="c1", name="look"),)),
        ToolMessage(tool_call_id="c1", name="look", content="a chair"),
    ],
)


async def had_tools(row: dict[str, Any]) -> list[bool]:
    """Return whether each request to a model that refuses the first one had tools."""
    refusal = status_error(row["status"], {}, ErrorReport(message=row["text"]), label="gemini:m at a.test")
    model = ScriptedModel([fail(refusal), "so"])
    await complete(ToolFallbackModel(model), WITH_RESULTS if "role" in row["text"] else WITH_TOOLS)
    return [bool(request.tools) for request in model.requests]


async def test_a_refusal_of_tools_is_recognised_in_the_words_of_each_server() -> None:
    assert [row["text"] for row in WORDINGS["refused"] if await had_tools(row) != [True, False]] == []


async def test_other_errors_that_speak_of_tools_are_no_refusal_of_them() -> None:
    assert [row["text"] for row in WORDINGS["other"] if await had_tools(row) != [True]] == []


async def test_a_refusal_of_roles_is_none_of_tools_before_there_is_a_result() -> None:
    refusal = ModelError("Unexpected message role.", code="provider.bad_request", status=400)
    with ScriptedModel([fail(refusal)]) as model:
        assert (await complete(ToolFallbackModel(model), WITH_TOOLS))[1] is refusal


async def test_after_a_refusal_of_tools_they_are_in_the_prompt() -> None:
    refusal = ModelError("phi4:14b does not support tools", code="provider.bad_request", status=400)
    with ScriptedModel([fail(refusal), say(CALL_AS_TEXT), say("done")]) as model:
        assert await turn_outline(ToolFallbackModel(model)) == ["turn_started", "round_start", *A_TOOL_ROUND]
        sent = [bool(request.tools) for request in model.requests]
    assert sent == [True, False, False]


@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
@pytest.mark.parametrize("wire", SERVED_WIRES, ids=lambda wire: wire.name)
async def test_a_refusal_of_tools_is_recognised_with_any_status_and_on_every_wire(
    wire: ServedWire, status: int
) -> None:
    words = "Function calling is not enabled for models/gemma-3-27b-it"
    answers = [wire.refusal(status, words), wire.body(wire.hi, wire.end), wire.body(wire.hi, wire.end)]
    async with FakeOpenAIServer(answers) as server, wire.open_model(server.base_url) as bare:
        model = RetryingModel(ToolFallbackModel(bare))
        replies = [await complete(model, WITH_TOOLS) for _ in range(2)]
    assert [(reply.text, error) for reply, error in replies] == [("hi", None)] * 2


@pytest.mark.parametrize("wire", SERVED_WIRES, ids=lambda wire: wire.name)
async def test_a_required_call_at_a_server_without_tool_choice_ends_no_turn(wire: ServedWire) -> None:
    answers = [wire.refusal(400, "Model x does not support tool_choice"), wire.body(wire.hi, wire.end)]
    async with FakeOpenAIServer(answers) as server, wire.open_model(server.base_url) as bare:
        reply, error = await complete(ToolFallbackModel(bare), replace(WITH_TOOLS, tool_choice="required"))
    assert (reply.text, error) == ("hi", None)


async def test_a_refusal_of_tools_inside_a_reply_is_recognised() -> None:
    event = {"error": {"message": "This model does not support tool calling", "type": "server_error", "code": 500}}
    answers = [CHAT.body(CHAT.event(event)), CHAT.body(CHAT.hi, CHAT.end)]
    async with FakeOpenAIServer(answers) as server, CHAT.open_model(server.base_url) as bare:
        assert (await complete(ToolFallbackModel(bare), WITH_TOOLS))[0].text == "hi"


async def test_a_model_that_accepts_tools_gets_them_natively() -> None:
    with ScriptedModel([call("look", {}), say("done")]) as model:
        assert await turn_outline(ToolFallbackModel(model)) == ["turn_started", "round_start", *A_TOOL_ROUND]


@pytest.mark.parametrize(
    ("spec", "xml_tools", "in_prompt"),
    [
        ("ollama-chat:gemma3:4b", "auto", True),
        ("ollama-chat:deepseek-r1:7b", "auto", True),
        ("ollama-chat:llama3:8b", "auto", True),
        ("ollama-chat:hf.co/x/Meta-Llama-3-8B-Instruct-GGUF", "auto", True),
        ("ollama-chat:llama3.1:8b", "auto", False),
        ("ollama-chat:llama3.3", "auto", False),
        ("together:meta-llama/Llama-3-8b-chat-hf", "auto", True),
        ("together:meta-llama/Llama-3.3-70B-Instruct-Turbo", "auto", False),
        ("openrouter:deepseek/deepseek-r1", "auto", True),
        ("openrouter:meta-llama/llama-3-70b-instruct", "auto", True),
        ("openrouter:x-ai/grok-4", "auto", False),
        ("xai:grok-2", "auto", False),
        ("openai-chat:gpt-5-chat-latest", "auto", True),
        ("groq:deepseek-r1-distill-llama-70b", "auto", False),
        ("ollama-chat:qwen3:8b", "auto", False),
        ("ollama-chat:qwen3:8b", "always", True),
        ("openai-chat:nobody-knows-it", "auto", False),
    ],
)
async def test_catalogue_and_setting_decide_whether_tools_are_in_the_prompt(
    spec: str, xml_tools: str, in_prompt: bool
) -> None:
    reply = [{"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}, "[DONE]"]
    body = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in reply).encode()
    async with chunk_server(lambda: [body]) as server:
        model = resolve_model(
            spec,
            api_key="sk-test",
            settings=Settings.model_validate({"xml_tools": xml_tools}),
            base_url=f"{server.base_url}/v1",
        )
        assert (await turn_outline(model))[-1] == "final"
        await model.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert ("tools" not in sent, "<function=" in json.dumps(sent["messages"])) == (in_prompt, in_prompt)


async def test_the_demo_model_gets_native_tools_for_any_setting() -> None:
    model = resolve_model("demo", settings=Settings.model_validate({"xml_tools": "always"}))
    seen = outline(await collect(AgentRuntime(model).run_turn("List the files", Session(), tools=builtin_tools())))
    assert "tool_call" in seen
