"""Our reply beside that of the provider's own SDK, which reads the same bytes from the same server."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import AnthropicModel, ModelRequest, complete
from agenticx.messages import UserMessage
from tests.llms.pieces_server import pieces_server
from tests.llms.recorded import Recording, outcome, recordings

pytestmark = pytest.mark.anyio

anthropic = pytest.importorskip("anthropic", reason="the anthropic package, which these replies are held against")

HELLO = ModelRequest(messages=[UserMessage(content="hello")])


@pytest.mark.parametrize("recording", recordings("anthropic"))
async def test_a_reply_is_what_the_sdk_reads_in_the_same_stream(recording: Recording) -> None:
    async with pieces_server(lambda: [recording.body]) as server:
        theirs = await _sdk_reply(server.base_url)
        model = AnthropicModel("m", base_url=server.base_url)
        ours = outcome(*await complete(model, HELLO))
        await model.aclose()
    assert {name: ours[name] for name in theirs} == theirs


async def _sdk_reply(base_url: str) -> dict[str, Any]:
    async with (
        anthropic.AsyncAnthropic(api_key="x", base_url=base_url, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}]) as stream,
    ):
        message = await stream.get_final_message()
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking"),
        "tool_calls": [
            {"name": block.name, "arguments": block.input} for block in message.content if block.type == "tool_use"
        ],
        "finish_reason": message.stop_reason,
        "usage": {"input_tokens": message.usage.input_tokens, "output_tokens": message.usage.output_tokens},
    }
