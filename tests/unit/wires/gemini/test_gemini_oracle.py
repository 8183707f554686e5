"""Tests that the replies of the Gemini wire equal those of Google's own SDK."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import GeminiModel
from tests.support.wires.oracles import assert_sdk_agrees, counts
from tests.support.wires.recorded import Recording, recordings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ci_lane,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:google"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiohttp"),
]


def sdk() -> Any:
    """Return the SDK, which takes long to import: only a process that runs its tests does so."""
    return pytest.importorskip("google.genai", reason="the google-genai package (extra 'oracles') is not installed")


@pytest.mark.parametrize("recording", recordings("gemini"))
async def test_a_reply_equals_the_reply_of_the_sdk(recording: Recording) -> None:
    await assert_sdk_agrees(recording, lambda url: GeminiModel("m", base_url=url), _sdk_reply)


async def _sdk_reply(base_url: str) -> dict[str, Any]:
    """Return the reply as the SDK reads it.

    The SDK yields the pieces of a call's arguments and does not join them: then `tool_calls` is left out.
    """
    client = sdk().Client(api_key="x", vertexai=False, http_options={"base_url": base_url})
    chunks = [chunk async for chunk in await client.aio.models.generate_content_stream(model="m", contents="hello")]
    await client.aio.aclose()
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [part for candidate in candidates if candidate.content for part in candidate.content.parts or ()]
    counted = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    calls = [part.function_call for part in parts if part.function_call and part.function_call.name]
    whole = {} if any(call.will_continue for call in calls) else {"tool_calls": calls}
    return {
        "text": "".join(part.text for part in parts if part.text and not part.thought),
        "reasoning": "".join(part.text for part in parts if part.text and part.thought),
        "calls": [call.name for call in calls],
        **{name: [{"name": call.name, "arguments": call.args or {}} for call in rows] for name, rows in whole.items()},
        "finish_reason": [c.finish_reason.value for c in candidates if c.finish_reason][-1],
        "usage": counts(
            input=_last(count.prompt_token_count for count in counted),
            output=_last(count.candidates_token_count for count in counted),
            cached=_last(count.cached_content_token_count for count in counted),
            reasoning=_last(count.thoughts_token_count for count in counted),
        ),
    }


def _last(values: Any) -> int | None:
    return next((value for value in reversed(list(values)) if value is not None), None)
