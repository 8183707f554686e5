"""Tests of recorded HTTP errors: the message, type and retry time that a user sees."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import ModelRequest, RetryingModel, close_model, complete
from agenticx.runtime import AgentRuntime, Session
from agenticx.testing import check_grammar
from tests.support.faults.provider import Exchange, ProviderFault, make_stream, provider
from tests.support.wires.recorded import streams_folder

pytestmark = pytest.mark.anyio

WIRES = {"anthropic": "anthropic", "chat": "openai_chat", "gemini": "gemini", "responses": "openai_responses"}

NO_WIRE = {
    "bedrock": ("anthropic", "we have no Bedrock wire; such bodies reach us through gateways, and name no type"),
    "embeddings": ("openai_chat", "we have no embeddings wire; a missing model has the same error"),
}
"""Folders of servers without a wire of ours: the wire that reads their errors here, and the reason."""

KINDS = [*WIRES, *NO_WIRE]
COUNTS = {"anthropic": 2, "bedrock": 12, "chat": 9, "embeddings": 2, "gemini": 2, "responses": 5}


def recorded_error_params() -> list[Any]:
    root = streams_folder()
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip("no recorded provider streams: set AGX_STREAMS"), id="none")]
    files = [file for kind in KINDS for file in sorted((root / "errors" / kind).glob("*.json"))]
    return [pytest.param(json.loads(file.read_bytes()), id=f"{file.parent.name}-{file.stem}") for file in files]


def message_and_type(body: str) -> tuple[str, str | None]:
    """Return message and type as sent by the provider: `type`, else Google's `status`, else None."""
    outer = json.loads(body)
    inner = outer.get("error", outer)
    return inner["message"], inner.get("type") or inner.get("status")


async def error_and_events(
    kind: str, status: int, one: dict[str, Any], **headers: str
) -> tuple[ModelError, list[Any], int]:
    """Return the error of a call, the events of a turn, and the number of requests of the turn."""
    wire = WIRES.get(kind) or NO_WIRE[kind][0]

    async def do(exchange: Exchange) -> None:
        exchange.answer(status, one["body"].encode(), one["content_type"], **headers)

    fault = ProviderFault(name=one["slug"], respond=do, code="")
    async with provider(wire, [fault] * 2, [make_stream(wire, ["x"])] * 2) as (made, _):
        model = made.model()
        _, error = await complete(model, ModelRequest(messages=[UserMessage(content="hi")]))
        events = [event async for event in AgentRuntime(RetryingModel(model)).run_turn("hi", Session())]
        await close_model(model)
    assert error is not None
    check_grammar(events)
    return error, events, len(made.arrivals) - 1


@pytest.mark.parametrize("one", recorded_error_params())
async def test_a_recorded_error_has_the_provider_s_message_and_is_not_retried(one: dict[str, Any]) -> None:
    message, type_ = message_and_type(one["body"])
    error, events, attempts = await error_and_events(one["kind"], one["status"], one)

    fields = (error.code, error.provider_type, error.status, error.retryable, error.retry_after)
    assert fields == ("provider.bad_request", type_, one["status"], False, None)
    assert f": {message}" in str(error)
    end = events[-1].data
    assert (end["code"], end["text"], end["retryable"]) == ("provider.bad_request", str(error), False)
    assert ("retry_at" in end, attempts) == (False, 1)


@pytest.mark.parametrize("one", recorded_error_params())
async def test_a_recorded_error_with_status_429_reports_when_to_retry(one: dict[str, Any]) -> None:
    message, type_ = message_and_type(one["body"])
    error, events, attempts = await error_and_events(one["kind"], 429, one, Retry_After="3600")

    fields = (error.code, error.provider_type, error.status, error.retryable, error.retry_after)
    assert fields == ("provider.rate_limited", type_, 429, True, 3600)
    assert f": {message}" in str(error)
    end = events[-1].data
    seconds_left = (datetime.fromisoformat(end["retry_at"]) - datetime.now(UTC)).total_seconds()
    assert (end["code"], end["retryable"], 3590 < seconds_left <= 3600, attempts) == (
        "provider.rate_limited",
        True,
        True,
        1,
    )


def test_every_recorded_error_is_tested() -> None:
    root = streams_folder()
    if root is None:
        pytest.skip("no recorded provider streams: set AGX_STREAMS")
    assert Counter(file.parent.name for file in (root / "errors").rglob("*.json")) == COUNTS
    assert sum(COUNTS.values()) == 32
