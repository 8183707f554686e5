"""Models that may not support tools: catalogue, refusals of servers, and the user's setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.assembly import resolve_model
from agenticx.llms.wrappers.tool_fallback import ToolFallbackModel
from agenticx.runtime import AgentRuntime, Session
from agenticx.settings import Settings
from agenticx.testing import ScriptedModel, call, collect, fail, outline, say
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.registry import tool
from tests.support.wires.chunk_server import chunk_server

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


def refusal(text: str, status: int = 400) -> ModelError:
    return ModelError(text, code="provider.bad_request", status=status)


@pytest.mark.parametrize(
    "text",
    [
        "registry.ollama.ai/library/phi4:14b does not support tools",
        "No endpoints found that support tool use. To learn more about provider routing, visit: …",
        "`tool calling` is not supported with this model",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools param requires --jinja flag",
    ],
)
async def test_after_a_refusal_of_tools_they_are_in_the_prompt(text: str) -> None:
    with ScriptedModel([fail(refusal(text)), say(CALL_AS_TEXT), say("done")]) as model:
        assert await turn_outline(ToolFallbackModel(model)) == ["turn_started", "round_start", *A_TOOL_ROUND]
        had_tools = [bool(request.tools) for request in model.requests]
    assert had_tools == [True, False, False]


async def test_any_other_refusal_fails_the_call() -> None:
    with ScriptedModel([fail(refusal("invalid schema for function 'look'"))]) as model:
        assert (await turn_outline(ToolFallbackModel(model)))[-1] == "error"


async def test_a_model_that_accepts_tools_gets_them_natively() -> None:
    with ScriptedModel([call("look", {}), say("done")]) as model:
        assert await turn_outline(ToolFallbackModel(model)) == ["turn_started", "round_start", *A_TOOL_ROUND]


@pytest.mark.parametrize(
    ("spec", "xml_tools", "in_prompt"),
    [
        ("ollama-chat:gemma3:4b", "auto", True),
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
            spec, settings=Settings.model_validate({"xml_tools": xml_tools}), base_url=f"{server.base_url}/v1"
        )
        assert (await turn_outline(model))[-1] == "final"
        await model.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert ("tools" not in sent, "<function=" in json.dumps(sent["messages"])) == (in_prompt, in_prompt)


async def test_the_demo_model_gets_native_tools_for_any_setting() -> None:
    model = resolve_model("demo", settings=Settings.model_validate({"xml_tools": "always"}))
    seen = outline(await collect(AgentRuntime(model).run_turn("List the files", Session(), tools=builtin_tools())))
    assert "tool_call" in seen
