"""Tests that endless replies are ended at a limit on every wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.linear.growth import grows_linearly
from tests.support.wires.replies import sse
from tests.support.wires.wires import WIRES

MAX_BYTES = 40 * 1024 * 1024
CHUNK_TEXT = "x" * 100_000


def chat_chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def content_event(*found: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(found)}}]}


def call_of(number: int) -> dict[str, Any]:
    return {"index": number, "id": f"a{number}", "function": {"name": "look", "arguments": CHUNK_TEXT}}


ENDLESS_REPLIES: list[tuple[str, str, Callable[[int], Any]]] = [
    ("openai_chat", "text", lambda _: chat_chunk(content=CHUNK_TEXT)),
    ("openai_chat", "arguments", lambda _: chat_chunk(tool_calls=[call_of(0)])),
    ("openai_chat", "calls", lambda n: chat_chunk(tool_calls=[call_of(n)])),
    ("openai_chat", "reasoning details", lambda n: chat_chunk(reasoning_details=[{"index": n, "x": CHUNK_TEXT}])),
    (
        "openai_responses",
        "text",
        lambda _: {"type": "response.output_text.delta", "output_index": 0, "delta": CHUNK_TEXT},
    ),
    (
        "openai_responses",
        "whole texts",
        lambda n: {"type": "response.output_text.done", "output_index": 0, "content_index": n, "text": CHUNK_TEXT},
    ),
    (
        "anthropic",
        "text",
        lambda _: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": CHUNK_TEXT}},
    ),
    (
        "anthropic",
        "blocks",
        lambda n: {"type": "content_block_start", "index": n, "content_block": {"type": "redacted_thinking"}},
    ),
    ("gemini", "text", lambda _: content_event({"text": CHUNK_TEXT})),
    ("gemini", "small parts", lambda _: content_event(*[{"text": "a"}] * 1000)),
    ("gemini", "unknown parts", lambda _: content_event(*[{"a": 1}] * 1000)),
    ("gemini", "calls", lambda n: content_event({"functionCall": {"name": f"look{n}", "args": {"at": CHUNK_TEXT}}})),
    ("ollama", "text", lambda _: {"message": {"content": CHUNK_TEXT}}),
    ("ollama", "calls", lambda _: {"message": {"tool_calls": [{"function": {"name": "look"}}]}}),
]


def bytes_before_limit(wire: str, chunks: Iterator[bytes]) -> int:
    """Return the number of bytes that the parser accepts before it stops."""
    parser, fed = WIRES[wire].parser("m"), 0
    while parser.error is None and fed < MAX_BYTES:
        chunk = next(chunks)
        fed += len(chunk)
        parser.feed(chunk)
    assert parser.error is not None
    assert (parser.error.code, parser.error.provider_type) == ("provider.bad_reply", "protocol_error")
    return fed


@pytest.mark.promise("C7")
@pytest.mark.parametrize(("wire", "flood"), [pytest.param(w, f, id=f"{w}-{what}") for w, what, f in ENDLESS_REPLIES])
@pytest.mark.cases(quick=4)
def test_an_endless_reply_is_ended_at_a_limit(wire: str, flood: Callable[[int], Any]) -> None:
    head, tail = (b"", b"\n") if WIRES[wire].ending == "ndjson" else (b"data: ", b"\n\n")
    events = (head + json.dumps(flood(number)).encode() + tail for number in count())
    assert bytes_before_limit(wire, events) < MAX_BYTES


def call_chunk(arguments: str) -> bytes:
    function = {"name": "look", "arguments": arguments}
    return sse(chat_chunk(tool_calls=[{"index": 0, "id": "a", "function": function}]))


def text_and_its_end(text: str) -> bytes:
    grown = {"type": "response.output_text.delta", "output_index": 0, "delta": text}
    return sse(grown, {"type": "response.output_text.done", "output_index": 0, "text": ""})


@pytest.mark.promise("C7")
@pytest.mark.parametrize(
    ("wire", "head", "piece"),
    [
        pytest.param("openai_chat", call_chunk('{"a":"'), call_chunk("}"), id="a call that looks complete"),
        pytest.param("openai_chat", call_chunk("{}"), call_chunk("}"), id="a call that cannot be complete"),
        pytest.param("openai_responses", text_and_its_end("x"), text_and_its_end("x" * 100), id="a text that ends"),
    ],
)
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_many_small_chunks_are_read_in_linear_time(wire: str, head: bytes, piece: bytes) -> None:
    def read_pieces(count: int) -> None:
        parser = WIRES[wire].parser("m")
        parser.feed(head)
        for _ in range(count // 100):
            parser.feed(piece * 100)
        assert parser.error is None

    assert grows_linearly(read_pieces, 3_000, 60_000)


@pytest.mark.promise("C7")
@pytest.mark.parametrize("wire", WIRES)
def test_an_endless_event_is_ended_at_a_limit(wire: str) -> None:
    body = iter([b"data: ", *[CHUNK_TEXT.encode()] * 1000])
    assert bytes_before_limit(wire, body) < MAX_BYTES / 2
