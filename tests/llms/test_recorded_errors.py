"""Every recorded HTTP error as a person gets to see it: its words, its type, and when to come back."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.base import ModelRequest, close_model, complete
from agenticx.llms.retrying import RetryingModel
from agenticx.messages import UserMessage
from agenticx.runtime import AgentRuntime, Session
from agenticx.testing import check_grammar
from tests.faults.provider import Exchange, Fault, provider, stream
from tests.llms.recorded import folder

pytestmark = pytest.mark.anyio

WIRES = {"anthropic": "anthropic", "chat": "openai_chat", "gemini": "gemini", "responses": "openai_responses"}

NO_WIRE = {
    "bedrock": ("anthropic", "we have no Bedrock wire; such bodies reach us through gateways, and name no type"),
    "embeddings": ("openai_chat", "we ask for no embeddings; what is not found is told alike"),
}
"""Folders whose servers we never ask: the wire that reads them here, and why it is another one."""

KINDS = [*WIRES, *NO_WIRE]
COUNTS = {"anthropic": 2, "bedrock": 12, "chat": 9, "embeddings": 2, "gemini": 2, "responses": 5}


def recorded() -> list[Any]:
    root = folder()
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip("no recorded provider streams: set AGX_STREAMS"), id="none")]
    files = [file for kind in KINDS for file in sorted((root / "errors" / kind).glob("*.json"))]
    return [pytest.param(json.loads(file.read_bytes()), id=f"{file.parent.name}-{file.stem}") for file in files]


def words(body: str) -> tuple[str, str | None]:
    """Message and type as the provider says them: `type`, else Google's `status`, else none."""
    outer = json.loads(body)
    inner = outer.get("error", outer)
    return inner["message"], inner.get("type") or inner.get("status")


async def answered(kind: str, status: int, one: dict[str, Any], **headers: str) -> tuple[ModelError, list[Any], int]:
    """The error of a call, the events of a turn, and how often the turn asked."""
    wire = WIRES.get(kind) or NO_WIRE[kind][0]

    async def do(exchange: Exchange) -> None:
        exchange.answer(status, one["body"].encode(), one["content_type"], **headers)

    fault = Fault(name=one["slug"], do=do, code="")
    async with provider(wire, [fault] * 2, [stream(wire, ["x"])] * 2) as (made, _):
        model = made.model()
        _, error = await complete(model, ModelRequest(messages=[UserMessage(content="hi")]))
        events = [event async for event in AgentRuntime(RetryingModel(model)).run_turn("hi", Session())]
        await close_model(model)
    assert error is not None
    check_grammar(events)
    return error, events, len(made.arrivals) - 1


@pytest.mark.parametrize("one", recorded())
async def test_a_recorded_error_is_told_in_the_provider_s_words_and_not_asked_again(one: dict[str, Any]) -> None:
    message, type_ = words(one["body"])
    error, events, asked = await answered(one["kind"], one["status"], one)

    said = (error.code, error.provider_type, error.status, error.retryable, error.retry_after)
    assert said == ("provider.bad_request", type_, one["status"], False, None)
    assert f": {message}" in str(error)
    end = events[-1].data
    assert (end["code"], end["text"], end["retryable"]) == ("provider.bad_request", str(error), False)
    assert ("retry_at" in end, asked) == (False, 1)


@pytest.mark.parametrize("one", recorded())
async def test_the_same_words_with_a_status_that_asks_for_patience_say_when_to_come_back(one: dict[str, Any]) -> None:
    message, type_ = words(one["body"])
    error, events, asked = await answered(one["kind"], 429, one, Retry_After="3600")

    said = (error.code, error.provider_type, error.status, error.retryable, error.retry_after)
    assert said == ("provider.rate_limited", type_, 429, True, 3600)
    assert f": {message}" in str(error)
    end = events[-1].data
    left = (datetime.fromisoformat(end["retry_at"]) - datetime.now(UTC)).total_seconds()
    assert (end["code"], end["retryable"], 3590 < left <= 3600, asked) == ("provider.rate_limited", True, True, 1)


def test_no_recorded_error_is_left_out() -> None:
    root = folder()
    if root is None:
        pytest.skip("no recorded provider streams: set AGX_STREAMS")
    assert Counter(file.parent.name for file in (root / "errors").rglob("*.json")) == COUNTS
    assert sum(COUNTS.values()) == 32
