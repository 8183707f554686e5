"""Tests of token counts, costs and provider state in Chat Completions streams."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.support.wires.chat_chunks import DONE, STOP, USAGE, call_chunk, delta, read
from tests.support.wires.replies import sse


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([STOP, {"choices": [], "usage": USAGE}], id="after the finish reason"),
        pytest.param([{**STOP, "usage": USAGE}], id="beside the finish reason"),
        pytest.param(
            [{**delta(content="a"), "usage": {**USAGE, "completion_tokens": 1}}, {**STOP, "usage": USAGE}], id="growing"
        ),
        pytest.param(
            [{**STOP, "usage": None}, {"usage": USAGE}, {"choices": [], "usage": None}],
            id="usage only, and null after it",
        ),
        pytest.param([{"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}], id="in the choice"),
        pytest.param([STOP, {"choices": [], "x_groq": {"usage": USAGE}}], id="in x_groq"),
        pytest.param(
            [{**delta(), "usage": {"prompt_tokens": 9}}, {**STOP, "usage": {"completion_tokens": 4}}], id="in two parts"
        ),
    ],
)
def test_usage_is_the_last_reported(chunks: list[Any]) -> None:
    reply, _ = read([sse(*chunks, DONE)])
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 4)


def test_usage_keeps_cached_and_reasoning_tokens_and_cost() -> None:
    usage = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.0125,
    }
    reply, _ = read([sse({**STOP, "usage": usage}, DONE)])
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens, str(reply.usage.cost_usd)) == (3, 2, "0.0125")


@pytest.mark.parametrize(("total", "on_top"), [(11, False), (13, True)])
def test_reasoning_tokens_are_added_to_the_output_if_the_total_includes_them(total: int, on_top: bool) -> None:
    """xAI does not count reasoning tokens as output tokens; the other providers do."""
    reasoning_usage = {"completion_tokens_details": {"reasoning_tokens": 2}, "total_tokens": total}
    reply, _ = read([sse({**STOP, "usage": {"prompt_tokens": 7, "completion_tokens": 4, **reasoning_usage}}, DONE)])
    assert (reply.usage.output_tokens, reply.usage.total_output_tokens) == (4, 6 if on_top else 4)


def test_a_cost_in_ticks_is_converted_to_dollars() -> None:
    usage = {**USAGE, "cost_in_usd_ticks": 1721250, "prompt_tokens_details": {"cache_write_tokens": 5}}
    reply, _ = read([sse({**STOP, "usage": usage}, DONE)])
    assert (reply.usage.cost_usd, reply.usage.cache_write_tokens) == (Decimal("0.000172125"), 5)


def test_reasoning_before_calls_is_kept_in_the_provider_state() -> None:
    details = [{"type": "reasoning.text", "text": text, "index": 0} for text in ("r1", "r2")]
    body = sse(
        delta(reasoning="r1", reasoning_details=details[:1]),
        delta(reasoning="r2", reasoning_details=[{**details[1], "signature": "s"}]),
        call_chunk(index=0, id="1", name="a"),
        DONE,
    )
    state = read([body])[0].provider_state
    assert state is not None
    assert state.payload == {
        "field": "reasoning",
        "details": [{"type": "reasoning.text", "text": "r1r2", "index": 0, "signature": "s"}],
    }
