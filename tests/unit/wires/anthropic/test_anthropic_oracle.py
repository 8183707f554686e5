"""Tests that the replies of the Anthropic wire equal those of Anthropic's own SDK."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import AnthropicModel
from tests.support.wires.oracles import assert_sdk_agrees, counts
from tests.support.wires.recorded import Recording, recordings

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]


def sdk() -> Any:
    """Return the SDK, which takes long to import: only a process that runs its tests does so."""
    return pytest.importorskip("anthropic", reason="the anthropic package (extra 'oracles') is not installed")


@pytest.mark.parametrize("recording", recordings("anthropic"))
async def test_a_reply_equals_the_reply_of_the_sdk(recording: Recording) -> None:
    await assert_sdk_agrees(recording, lambda url: AnthropicModel("m", base_url=url), _sdk_reply)


async def _sdk_reply(base_url: str) -> dict[str, Any]:
    async with (
        sdk().AsyncAnthropic(api_key="x", base_url=base_url, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}]) as stream,
    ):
        message = await stream.get_final_message()
    details = message.usage.output_tokens_details
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking"),
        "tool_calls": [
            {"name": block.name, "arguments": block.input} for block in message.content if block.type == "tool_use"
        ],
        "finish_reason": message.stop_reason,
        "usage": counts(
            input=message.usage.input_tokens,
            output=message.usage.output_tokens,
            cached=message.usage.cache_read_input_tokens,
            reasoning=details and details.thinking_tokens,
        ),
    }
