"""Errors that say that a request is too large, and errors that only sound like it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import RetryingModel, complete
from agenticx.llms.transport.errors import parse_error_body, status_error
from agenticx.testing import RawReply
from tests.support.jumping_clock import VIRTUAL_TIME_OVER_SOCKETS, LoopClock
from tests.support.wires.served import CHAT, HELLO, SERVED_WIRES, ServedWire

pytestmark = pytest.mark.anyio

WORDINGS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("overflow_wordings.toml").read_text("utf-8")
)
TOO_LARGE = "Request too large for `m` on tokens per minute (TPM): Limit 8000, Requested 18478, please reduce its size."
TOO_SOON = (
    "Rate limit reached for `m` on tokens per minute (TPM): Limit 8000, Used 5034, Requested 4443. Try again in 5s."
)


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME_OVER_SOCKETS


def error_code(row: dict[str, Any], provider_code: str | None) -> str:
    body = {"error": {"message": row["text"], "code": provider_code}} if row["text"] else {}
    report = parse_error_body(json.dumps(body).encode() if body else b"")
    return status_error(row["status"], {}, report, label=f"{row['server']}:m").code


def test_a_full_context_is_recognised_in_the_words_of_each_provider() -> None:
    unrecognised = [row for row in WORDINGS["overflow"] if error_code(row, row.get("code")) != "context_overflow"]
    assert unrecognised == []


def test_other_errors_that_speak_of_tokens_lengths_or_contexts_are_no_overflow() -> None:
    found = {row["text"]: error_code(row, row.get("provider_code")) for row in WORDINGS["other"]}
    assert found == {row["text"]: row["code"] for row in WORDINGS["other"]}


@pytest.mark.parametrize("wire", SERVED_WIRES, ids=lambda wire: wire.name)
async def test_a_full_context_is_recognised_in_each_wire_and_inside_a_reply(wire: ServedWire) -> None:
    words = "Your request exceeded model token limit: 8192 (requested: 20990)"
    event = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    errors = [await wire.failure(wire.refusal(400, words)), await wire.failure(wire.body(wire.event(event)))]
    assert [error.code for error in errors] == ["context_overflow"] * 2


async def test_the_reason_of_the_provider_behind_a_gateway_is_read() -> None:
    raw = json.dumps({"error": {"message": "prompt is too long: 213462 tokens > 200000 maximum"}})
    bodies = [
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "x"}}},
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.loads(raw)}}},
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "prompt is too long"}}},
        {"error": {"message": "prompt is too long", "code": 400, "metadata": {"raw": "prompt is too long"}}},
        {"error": {"message": "prompt is too long", "code": 400, "metadata": {"raw": [1]}}},
    ]
    errors = [await CHAT.failure(RawReply(json.dumps(body).encode(), 400, "application/json")) for body in bodies]
    assert [(error.code, str(error).partition("HTTP 400: ")[2]) for error in errors] == [
        ("context_overflow", "Provider returned error: prompt is too long: 213462 tokens > 200000 maximum"),
        ("context_overflow", "Provider returned error: prompt is too long: 213462 tokens > 200000 maximum"),
        ("context_overflow", "Provider returned error: prompt is too long"),
        ("context_overflow", "prompt is too long"),
        ("context_overflow", "prompt is too long: [1]"),
    ]


@pytest.mark.parametrize(
    ("status", "words", "requests", "code"),
    [
        (413, TOO_LARGE, 1, "context_overflow"),
        (429, TOO_LARGE, 1, "context_overflow"),
        (200, TOO_LARGE, 1, "context_overflow"),
        (429, TOO_SOON, 3, "provider.rate_limited"),
        (200, TOO_SOON, 3, "provider.rate_limited"),
    ],
)
async def test_a_request_over_the_limit_of_a_minute_is_not_sent_again_unchanged(
    status: int, words: str, requests: int, code: str
) -> None:
    body = json.dumps({"error": {"message": words, "type": "tokens", "code": "rate_limit_exceeded"}}).encode()
    head = b"HTTP/1.1 %d Status\r\nContent-Type: application/json\r\n" % status
    async with CHAT.serve_chunks(body, head=head) as server, CHAT.open_model(server.base_url) as model:
        _, error = await complete(RetryingModel(model, clock=LoopClock()), HELLO)
    assert error is not None
    assert (len(server.requests), error.code, words in str(error)) == (requests, code, True)
