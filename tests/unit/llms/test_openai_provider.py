"""Tests of OpenAIProvider, the model of the published example: all that `resolve_model` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import SettingsError
from agenticx.llms import (
    ModelRequest,
    OpenAIChatModel,
    OpenAIProvider,
    RetryingModel,
    ToolSchema,
    complete,
    resolve_model,
    resolve_wire,
)
from agenticx.testing import FakeOpenAIServer, say, status, usage

pytestmark = pytest.mark.anyio

KEY = "sk-canary-1234567890"
HELLO = ModelRequest(messages=[UserMessage(content="Hello")])
WITH_TOOLS = ModelRequest(messages=[UserMessage(content="Look.")], tools=[ToolSchema("look", "", {"type": "object"})])


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "AGX_FALLBACK_MODELS"):
        monkeypatch.delenv(variable, raising=False)


async def test_it_reads_key_and_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAIServer(["hello"]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = OpenAIProvider(model="gpt-4o")
        reply, error = await complete(model, HELLO)
        await model.aclose()
        request = server.requests[0]
    assert (reply.text, error, model.name, model.context_window) == ("hello", None, "openai-chat:gpt-4o", 128_000)
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert request.headers["accept-encoding"] == "identity"


async def test_it_retries_reads_think_blocks_prices_calls_and_puts_refused_tools_into_the_prompt() -> None:
    replies: list[Any] = [
        status(503, retry_after=0),
        [say("<think>Hm.</think>Hello"), usage(1000, 100)],
        status(400, "This model does not support tool calling"),
        "<function=look>\n</function>",
    ]
    async with FakeOpenAIServer(replies) as server:
        model = OpenAIProvider("gpt-4o", KEY, server.base_url)
        hello, _ = await complete(model, HELLO)
        looked, _ = await complete(model, WITH_TOOLS)
        await model.aclose()
    assert (hello.reasoning, hello.text, str(hello.usage.cost_usd)) == ("Hm.", "Hello", "0.0035")
    assert [call.name for call in looked.tool_calls] == ["look"]


async def test_it_has_the_parts_of_a_resolved_model_and_wires_stay_bare() -> None:
    provider = OpenAIProvider("gpt-4o", api_key=KEY)
    resolved = resolve_model("openai-chat:gpt-4o", api_key=KEY)
    assert isinstance(provider, RetryingModel)
    assert isinstance(resolved, RetryingModel)
    assert (type(provider.model), provider.policy) == (type(resolved.model), resolved.policy)
    assert isinstance(resolve_wire("openai-chat:gpt-4o", api_key=KEY), OpenAIChatModel)
    assert not isinstance(provider, OpenAIChatModel)


async def test_a_missing_key_and_a_model_that_is_no_name_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"model 'openai-chat:gpt-4o' needs a key .* set OPENAI_API_KEY"):
        OpenAIProvider()
    with pytest.raises(TypeError, match="the name of a model must be a str"):
        OpenAIProvider(5)  # pyright: ignore[reportArgumentType]
