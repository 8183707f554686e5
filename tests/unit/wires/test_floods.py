"""Streams without end: each wire gives up at its cap, whatever it is that never ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.linear.growth import grows_linearly
from tests.support.wires.replies import sse
from tests.support.wires.wires import WIRES

MOST_BYTES = 40 * 1024 * 1024
PIECE = "x" * 100_000


def chat(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def parts(*found: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(found)}}]}


def arguments(number: int) -> dict[str, Any]:
    return {"index": number, "id": f"a{number}", "function": {"name": "look", "arguments": PIECE}}


FLOODS: list[tuple[str, str, Callable[[int], Any]]] = [
    ("openai_chat", "text", lambda _: chat(content=PIECE)),
    ("openai_chat", "arguments", lambda _: chat(tool_calls=[arguments(0)])),
    ("openai_chat", "calls", lambda n: chat(tool_calls=[arguments(n)])),
    ("openai_chat", "reasoning details", lambda n: chat(reasoning_details=[{"index": n, "x": PIECE}])),
    ("openai_responses", "text", lambda _: {"type": "response.output_text.delta", "output_index": 0, "delta": PIECE}),
    (
        "openai_responses",
        "whole texts",
        lambda n: {"type": "response.output_text.done", "output_index": 0, "content_index": n, "text": PIECE},
    ),
    ("anthropic", "text", lambda _: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": PIECE}}),
    (
        "anthropic",
        "blocks",
        lambda n: {"type": "content_block_start", "index": n, "content_block": {"type": "redacted_thinking"}},
    ),
    ("gemini", "text", lambda _: parts({"text": PIECE})),
    ("gemini", "small parts", lambda _: parts(*[{"text": "a"}] * 1000)),
    ("gemini", "unknown parts", lambda _: parts(*[{"a": 1}] * 1000)),
    ("gemini", "calls", lambda n: parts({"functionCall": {"name": f"look{n}", "args": {"at": PIECE}}})),
    ("ollama", "text", lambda _: {"message": {"content": PIECE}}),
    ("ollama", "calls", lambda _: {"message": {"tool_calls": [{"function": {"name": "look"}}]}}),
]


def fed_until_given_up(wire: str, chunks: Iterator[bytes]) -> int:
    """Return the number of bytes that the parser accepts before it stops."""
    parser, fed = WIRES[wire].parser("m"), 0
    while parser.error is None and fed < MOST_BYTES:
        chunk = next(chunks)
        fed += len(chunk)
        parser.feed(chunk)
    assert parser.error is not None
    assert (parser.error.code, parser.error.provider_type) == ("provider.bad_reply", "protocol_error")
    return fed


@pytest.mark.promise("C7")
@pytest.mark.parametrize(("wire", "flood"), [pytest.param(w, f, id=f"{w}-{what}") for w, what, f in FLOODS])
def test_an_endless_reply_is_ended_at_a_limit(wire: str, flood: Callable[[int], Any]) -> None:
    head, tail = (b"", b"\n") if WIRES[wire].ending == "ndjson" else (b"data: ", b"\n\n")
    events = (head + json.dumps(flood(number)).encode() + tail for number in count())
    assert fed_until_given_up(wire, events) < MOST_BYTES


def piece_of_a_call(arguments: str) -> bytes:
    function = {"name": "look", "arguments": arguments}
    return sse(chat(tool_calls=[{"index": 0, "id": "a", "function": function}]))


def grown_and_ended(text: str) -> bytes:
    grown = {"type": "response.output_text.delta", "output_index": 0, "delta": text}
    return sse(grown, {"type": "response.output_text.done", "output_index": 0, "text": ""})


@pytest.mark.promise("C7")
@pytest.mark.parametrize(
    ("wire", "head", "piece"),
    [
        pytest.param("openai_chat", piece_of_a_call('{"a":"'), piece_of_a_call("}"), id="a call that looks complete"),
        pytest.param("openai_chat", piece_of_a_call("{}"), piece_of_a_call("}"), id="a call that cannot be complete"),
        pytest.param("openai_responses", grown_and_ended("x"), grown_and_ended("x" * 100), id="a text that ends"),
    ],
)
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
    body = iter([b"data: ", *[PIECE.encode()] * 1000])
    assert fed_until_given_up(wire, body) < MOST_BYTES / 2
