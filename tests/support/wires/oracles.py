"""Comparison of replies with those of the providers' own SDKs, which read the same bytes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import ChatModel, ModelRequest, Reply, complete
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.recorded import Recording, outcome

__all__ = ["assert_sdk_agrees", "counts"]

HELLO = ModelRequest(messages=[UserMessage(content="hello")])


async def assert_sdk_agrees(
    recording: Recording,
    model_at: Callable[[str], ChatModel],
    sdk_reply_at: Callable[[str], Awaitable[dict[str, Any]]],
    *,
    failures: tuple[type[Exception], ...] = (),
    unreadable: Mapping[str, str] | None = None,
) -> None:
    """Assert that every field of the SDK's reply is the same in ours.

    `unreadable` maps each stream at which the SDK fails (with one of `failures`), or that it reads differently, to the
    reason; for these our reply must be the expected one. A stream listed there that the SDK reads correctly fails the
    test; one at which it fails and that is not listed is skipped.
    """
    async with chunk_server(lambda: [recording.body]) as server:
        model = model_at(server.base_url)
        reply, error = await complete(model, HELLO)
        await model.aclose()
        try:
            sdk_reply, failure = await sdk_reply_at(server.base_url), None
        except failures as exc:
            sdk_reply, failure = {}, exc
    our_reply = {name: value for name, value in _fields(reply, error).items() if name in sdk_reply}
    if recording.slug in (unreadable or {}):
        assert failure or _comparable(our_reply) != _comparable(sdk_reply), "the SDK reads it; take it off the list"
        actual = outcome(reply, error)
        assert actual == recording.closest_outcome(actual)
    elif failure:
        pytest.skip(f"the SDK fails at this stream: {failure!r}")
    else:
        assert _comparable(our_reply) == _comparable(sdk_reply)


def counts(*, input: int | None, output: int | None, cached: int | None, reasoning: int | None) -> dict[str, Any]:
    """Return the usage of a reply in the form of these outcomes, in the provider's own numbers."""
    return {"input": input, "output": output, "cached": cached, "reasoning": reasoning}


def _fields(reply: Reply, error: ModelError | None) -> dict[str, Any]:
    usage = reply.usage
    fields = outcome(reply, error)
    fields["calls"] = [call["name"] for call in fields["tool_calls"]]
    fields["usage"] = counts(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cached_tokens,
        reasoning=usage.reasoning_tokens,
    )
    return fields


def _comparable(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an outcome without differences that are free choices: separators in reasoning, and counts of 0 or None."""
    usage = {name: value or None for name, value in fields.get("usage", {}).items()}
    return {**fields, "usage": usage, "reasoning": re.sub(r"\s", "", fields.get("reasoning", ""))}
