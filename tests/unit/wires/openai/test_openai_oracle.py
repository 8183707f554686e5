"""Tests that the replies of both OpenAI wires equal those of OpenAI's own SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx.llms import OpenAIChatModel, OpenAIResponsesModel
from tests.support.wires.oracles import assert_sdk_agrees, counts
from tests.support.wires.recorded import Recording, recordings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ci_lane,
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),  # what is not OpenAI's own
]

CHAT_UNREADABLE = {
    "pai-mistral-mistral_model_thinking_part_iter-0": "the content is a list of parts, where the SDK takes a string",
    "pai-openrouter-openrouter_stream_error-0": "the SDK raises at the error in the stream and keeps nothing",
    "ver-mistral-mistral-tool-call": "a call has no index, by which the SDK puts its pieces together",
    "ver-perplexity-perplexity-citations": "the SDK skips the last event, whose object is chat.completion.done",
}
RESPONSES_UNREADABLE = {
    "pai-openai_responses-background_mode_streaming_starting_after_vcr-1": "it begins behind response.created",
    "ver-openai-responses-github-copilot-id-rotation.1": "the id of the response changes with each event",
    "ver-openai-responses-openai-client-tool-search.1": "the id of an item changes when it is done",
    "ver-openai-responses-parallel-tool-call-wrapper.1": "the first and the last event are not JSON",
    "ver-xai-responses-xai-x-search-tool": "the provider's own searches look like calls of custom tools",
}


def sdk() -> Any:
    """Return the SDK, which takes long to import: only a process that runs its tests does so."""
    return pytest.importorskip("openai", reason="the openai package (extra 'oracles') is not installed")


def failures() -> tuple[type[Exception], ...]:
    return (sdk().OpenAIError, LookupError, RuntimeError, TypeError, ValueError)


@pytest.mark.parametrize("recording", recordings("chat"))
async def test_a_chat_reply_equals_the_reply_of_the_sdk(recording: Recording) -> None:
    await assert_sdk_agrees(
        recording,
        lambda url: OpenAIChatModel("m", base_url=f"{url}/v1"),
        _chat_reply,
        failures=failures(),
        unreadable=CHAT_UNREADABLE,
    )


@pytest.mark.parametrize("recording", recordings("responses"))
async def test_a_response_equals_the_reply_of_the_sdk(recording: Recording) -> None:
    await assert_sdk_agrees(
        recording,
        lambda url: OpenAIResponsesModel("m", base_url=f"{url}/v1"),
        _response,
        failures=failures(),
        unreadable=RESPONSES_UNREADABLE,
    )


async def _chat_reply(base_url: str) -> dict[str, Any]:
    """Return the reply as the SDK assembles it.

    OpenAI has no field for reasoning, so it is read from the field that each server uses.
    """
    async with (
        sdk().AsyncOpenAI(api_key="x", base_url=f"{base_url}/v1", max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hello"}]) as stream,
    ):
        completion = await stream.get_final_completion()
    choice, usage = completion.choices[0], completion.usage
    prompt, spent = _fields(usage, "prompt_tokens_details"), _fields(usage, "completion_tokens_details")
    return {
        "text": choice.message.content or "",
        "reasoning": _reasoning(choice.message),
        "tool_calls": [_call(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()],
        "finish_reason": choice.finish_reason,
        "usage": counts(
            input=usage and usage.prompt_tokens,
            output=usage and usage.completion_tokens,
            cached=prompt.get("cached_tokens") or getattr(usage, "prompt_cache_hit_tokens", None),
            reasoning=spent.get("reasoning_tokens") or getattr(usage, "reasoning_tokens", None),
        ),
    }


async def _response(base_url: str) -> dict[str, Any]:
    async with (
        sdk().AsyncOpenAI(api_key="x", base_url=f"{base_url}/v1", max_retries=0) as client,
        client.responses.stream(model="m", input="hello") as stream,
    ):
        response = await stream.get_final_response()
    usage, why = response.usage, response.incomplete_details and response.incomplete_details.reason
    thoughts = [item for item in response.output if item.type == "reasoning"]
    return {
        "text": response.output_text,
        "reasoning": "".join(part.text for item in thoughts for part in [*(item.summary or ()), *(item.content or ())]),
        "tool_calls": [
            _call(item.name, item.arguments)
            if item.type == "function_call"
            else {"name": item.name, "arguments": item.input}
            for item in response.output
            if item.type in ("function_call", "custom_tool_call")
        ],
        "finish_reason": f"{response.status}:{why}" if why else response.status,
        "usage": counts(
            input=usage and usage.input_tokens,
            output=usage and usage.output_tokens,
            cached=_fields(usage, "input_tokens_details").get("cached_tokens"),
            reasoning=_fields(usage, "output_tokens_details").get("reasoning_tokens"),
        ),
    }


def _reasoning(message: Any) -> str:
    details = getattr(message, "reasoning_details", None) or ()
    texts = (message.model_extra or {}).get("reasoning_content") or (message.model_extra or {}).get("reasoning")
    return texts or "".join(detail.get("text") or "" for detail in details)


def _fields(model: Any, name: str) -> dict[str, Any]:
    found = getattr(model, name, None)
    return found.to_dict() if found else {}


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": json.loads(arguments or "{}")}
