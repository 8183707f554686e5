"""Promise C7: a model call is aborted at a cap and memory stays bounded, whatever a provider sends."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest

from tests.support.faults.failures import GOOD
from tests.support.faults.provider import Exchange, ProviderFault, framed, make_stream, provider
from tests.support.forked import ROOT, AsyncProcess
from tests.support.lanes import lane_of
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

GROWTH_MB = 64
MOST_BYTES = 1_000_000_000
BLOCK = b"x" * 1_000_000
WIDE = "🦜" + "x" * 99_999  # one such character makes each of the others take four bytes
TINY = "[" + "{}," * 2_600_000 + "{}]"


# --- floods -----------------------------------------------------------------------------------------------------------


def text_event(wire: str, text: str) -> Any:
    """Return an event with `text` in the form of that wire."""
    match wire:
        case "openai_chat":
            return {"choices": [{"index": 0, "delta": {"content": text}}]}
        case "openai_responses":
            return {"type": "response.output_text.delta", "output_index": 0, "delta": text}
        case "anthropic":
            return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        case "gemini":
            return {"candidates": [{"content": {"parts": [{"text": text}]}}]}
        case _:
            return {"message": {"content": text}}


def call_events(wire: str, number: int, arguments: str) -> list[Any]:
    """Return events that begin the call `number`, or continue it."""
    head = {"id": f"c{number}", "name": "look"}
    match wire:
        case "openai_chat":
            function = {"name": "look", "arguments": arguments}
            return [
                {"choices": [{"delta": {"tool_calls": [{"index": number, "id": head["id"], "function": function}]}}]}
            ]
        case "openai_responses":
            item = {"type": "function_call", "call_id": head["id"], "name": "look"}
            grown = {"type": "response.function_call_arguments.delta", "output_index": number, "delta": arguments}
            return [{"type": "response.output_item.added", "output_index": number, "item": item}, grown]
        case "anthropic":
            block = {"type": "tool_use", **head, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": arguments}
            return [
                {"type": "content_block_start", "index": number, "content_block": block},
                {"type": "content_block_delta", "index": number, "delta": delta},
            ]
        case "gemini":
            return [
                {
                    "candidates": [
                        {"content": {"parts": [{"functionCall": {"name": "look", "args": {"at": [arguments]}}}]}}
                    ]
                }
            ]
        case _:
            return [{"message": {"tool_calls": [{"function": {"name": "look", "arguments": {"at": [arguments]}}}]}}]


def usage_event(wire: str) -> Any:
    """Return an event that only counts tokens, or the nearest thing of that wire."""
    match wire:
        case "openai_chat":
            return {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
        case "openai_responses":
            return {"type": "response.in_progress", "response": {"usage": {"input_tokens": 1}}}
        case "anthropic":
            return {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}
        case "gemini":
            return {"usageMetadata": {"promptTokenCount": 1}}
        case _:
            return {"message": {}, "eval_count": 1}


def one_line(wire: str) -> Iterator[bytes]:
    yield b"data: "
    yield from repeat(BLOCK)


def one_whole_body(wire: str) -> Iterator[bytes]:
    yield b'{"x":"'
    yield from repeat(BLOCK)


def tiny_objects(wire: str) -> Iterator[bytes]:
    yield framed(wire, f'{{"x":{TINY}}}')


def tiny_objects_in_a_whole_body(wire: str) -> Iterator[bytes]:
    yield f'{{"x":{TINY}}}\n'.encode()


def wide_event(wire: str) -> Iterator[bytes]:
    yield framed(wire, json.dumps(text_event(wire, WIDE * 75), ensure_ascii=False))


def small_text(wire: str) -> Iterator[bytes]:
    yield from repeat(framed(wire, json.dumps(text_event(wire, "🦜"), ensure_ascii=False)) * 1000)


def wide_text(wire: str) -> Iterator[bytes]:
    yield from repeat(framed(wire, json.dumps(text_event(wire, WIDE), ensure_ascii=False)))


def text_that_gets_wide(wire: str) -> Iterator[bytes]:
    yield framed(wire, text_event(wire, "🦜"))
    yield from repeat(framed(wire, text_event(wire, "x" * 100_000)))


def calls(wire: str) -> Iterator[bytes]:
    for number in range(1_000_000):
        yield b"".join(framed(wire, event) for event in call_events(wire, number, "{}"))


def arguments(wire: str) -> Iterator[bytes]:
    first, *rest = call_events(wire, 0, '{"at":["')
    yield b"".join(framed(wire, event) for event in (first, *rest))
    grown = call_events(wire, 0, WIDE)[-1]
    yield from repeat(framed(wire, json.dumps(grown, ensure_ascii=False)))


def tiny_arguments(wire: str) -> Iterator[bytes]:
    """Yield a call that is accepted: 60,000 objects, which are parsed, run and sent back."""
    if wire in ("gemini", "ollama"):
        event = json.dumps(call_events(wire, 0, "?")[0]).replace('["?"]', TINY[:150_001] + "{}]")
        yield framed(wire, event)
    else:
        first, *rest = call_events(wire, 0, '{"at":[')
        yield b"".join(framed(wire, event) for event in (first, *rest))
        yield from [framed(wire, call_events(wire, 0, "{}," * 20_000)[-1])] * 3
        yield framed(wire, call_events(wire, 0, "{}]}")[-1])
    yield b"".join(make_stream(wire, []).events[-3:])


def provider_state_objects(wire: str) -> Iterator[bytes]:
    """Yield content of tiny objects that is sent back to the provider."""
    value = [{} for _ in range(2000)]
    for number in range(1_000_000):
        match wire:
            case "openai_chat":
                event: Any = {"choices": [{"delta": {"reasoning_details": [{"index": number, "x": value}]}}]}
            case "openai_responses":
                item = {"type": "reasoning", "id": f"r{number}", "x": value}
                event = {"type": "response.output_item.done", "output_index": number, "item": item}
            case "anthropic":
                block = {"type": "redacted_thinking", "data": value}
                event = {"type": "content_block_start", "index": number, "content_block": block}
            case "gemini":
                event = {"candidates": [{"content": {"parts": [{"x": value}]}}]}
            case _:
                event = {"message": {"content": "a", "x": value}}
        yield framed(wire, event)


def long_names(wire: str) -> Iterator[bytes]:
    for number in range(200):
        function = {"name": "n" * 1_000_000}
        yield framed(wire, {"choices": [{"delta": {"tool_calls": [{"index": number, "function": function}]}}]})


def names_in_pieces(wire: str) -> Iterator[bytes]:
    for number in range(20_000):
        function = {"name": f"{number:07}" + "n" * 3000}
        yield framed(wire, {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": function}]}}]})


def long_ids(wire: str) -> Iterator[bytes]:
    for number in range(200):
        call = {"index": number, "id": f"{number}" + "i" * 1_000_000, "function": {"name": "look"}}
        yield framed(wire, {"choices": [{"delta": {"tool_calls": [call]}}]})


def long_indexes(wire: str) -> Iterator[bytes]:
    for number in range(200):
        call = {"index": f"{number}" + "i" * 1_000_000, "id": f"{number}", "function": {"name": f"look{number}"}}
        yield framed(wire, {"choices": [{"delta": {"tool_calls": [call]}}]})
    yield from repeat(framed(wire, text_event(wire, "x" * 100_000)))


def item_starts(wire: str) -> Iterator[bytes]:
    for number in range(300):
        item = {"type": "message", "x": "x" * 1_000_000}
        yield framed(wire, {"type": "response.output_item.added", "output_index": number, "item": item})


def parts(wire: str) -> Iterator[bytes]:
    for number in range(1_000_000):
        event = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "a"}
        yield framed(wire, {**event, "summary_index": number})


def counts(wire: str) -> Iterator[bytes]:
    yield from repeat(framed(wire, usage_event(wire)) * 1000)


def counts_behind_text(wire: str) -> Iterator[bytes]:
    yield framed(wire, text_event(wire, "word "))
    yield from counts(wire)


def pings(wire: str) -> Iterator[bytes]:
    yield from repeat((b": ping\n\n" if WIRES[wire].ending == "sse" else b"\n\n") * 10_000)


def bomb(wire: str) -> Iterator[bytes]:
    """Yield one gigabyte compressed to one megabyte."""
    yield from repeat(gzip.compress(bytes(100_000_000)), 10)


async def measured(
    wire: str, flood: Callable[[str], Iterator[bytes]], clocks: dict[str, float] | None = None, **headers: str
) -> dict[str, Any]:
    """Return the end of a turn whose provider sends that, and the growth of the process in MB; see `measured_call`."""

    async def do(exchange: Exchange) -> None:
        exchange.head(**headers)
        sent = 0
        for piece in flood(wire):
            exchange.send(piece)
            await exchange.writer.drain()
            sent += len(piece)
            if sent > MOST_BYTES:
                break
        exchange.end()

    script = [GOOD, ProviderFault(name="flood", respond=do, code=None), GOOD]
    async with provider(wire, script, [make_stream(wire, ["x"])] * len(script)) as (made, _):
        url = f"http://127.0.0.1:{made.port}"
        child = await AsyncProcess.start(
            "tests.support.faults.measured_call", [wire, url, json.dumps(clocks or {})], cwd=ROOT, env=os.environ
        )
        out, err = await child.communicate()
    assert not err, err.decode()
    return json.loads(out)


BY_SIZE = {"provider.bad_reply"}  # wires that count all bytes or events of a reply may come to their cap first
TWO = ("anthropic", "ollama")
OF_ALL = [one_line, one_whole_body, tiny_objects, tiny_objects_in_a_whole_body, wide_event, text_that_gets_wide]
OF_EACH = [wide_text, calls, arguments, provider_state_objects]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try the code that all wires share on one wire, on two in CI and on all with --deep; the rest on two or all."""
    lane, names = lane_of(metafunc.config), set(metafunc.fixturenames)
    deep = lane == "deep"
    if {"wire", "refused"} <= names:
        of_all = {"quick": TWO[:1], "ci": TWO, "deep": WIRES}[lane]
        of_each = TWO if lane == "quick" else WIRES
        both = [(wire, flood) for flood in OF_ALL for wire in of_all]
        both += [(wire, flood) for flood in OF_EACH for wire in of_each]
        ids = [f"{flood.__name__}-{wire}" for wire, flood in both]
        metafunc.parametrize(("wire", "refused"), both, ids=ids)
    elif "wire" in names and hasattr(metafunc.function, "wires"):
        metafunc.parametrize("wire", WIRES if deep else metafunc.function.wires)


def on_wires(*wires: str) -> Callable[[Any], Any]:
    """Return a decorator that sets the wires on which a test runs without --deep."""

    def mark(function: Any) -> Any:
        function.wires = wires
        return function

    return mark


@pytest.mark.promise("C7")
@pytest.mark.cases(quick=1)
async def test_an_endless_reply_is_aborted_within_the_memory_limit(wire, refused):
    run = await measured(wire, refused)

    assert run["end"] == "provider.bad_reply"
    assert run["grew"] < GROWTH_MB


@pytest.mark.ci_lane
@pytest.mark.promise("C7")
@pytest.mark.parametrize(
    ("wire", "flood"),
    [
        *(("openai_chat", flood) for flood in (long_names, names_in_pieces, long_ids, long_indexes)),
        *(("openai_responses", flood) for flood in (item_starts, parts)),
    ],
)
@pytest.mark.cases(quick=1)
async def test_an_endless_field_of_one_wire_is_aborted_within_the_memory_limit(wire, flood):
    run = await measured(wire, flood)

    assert run["end"] == "provider.bad_reply"
    assert run["grew"] < GROWTH_MB


@pytest.mark.ci_lane
@pytest.mark.promise("C7")
@on_wires("gemini")
async def test_endless_small_deltas_are_aborted_within_the_memory_limit(wire):
    run = await measured(wire, small_text)

    assert run["end"] == "provider.bad_reply"
    assert run["grew"] < GROWTH_MB


@pytest.mark.ci_lane
@pytest.mark.promise("C7")
@on_wires("anthropic", "gemini")
@pytest.mark.cases(quick=1)
async def test_a_call_with_60_000_objects_runs_and_is_sent_back_to_the_model(wire):
    run = await measured(wire, tiny_arguments)

    assert run["end"] == "final"
    assert run["grew"] < GROWTH_MB


@pytest.mark.ci_lane
@pytest.mark.promise("C7")
@pytest.mark.promise("C5")
@pytest.mark.parametrize("flood", [counts, pings])
@on_wires("openai_chat", "ollama")
@pytest.mark.cases(quick=1)
async def test_endless_token_counts_and_pings_end_with_the_first_chunk_timeout(wire, flood):
    run = await measured(wire, flood, {"llm_invoke_timeout_seconds": 1})

    assert run["end"] in {"timeout.first_chunk"} | (BY_SIZE if flood is counts and wire != "openai_chat" else set())
    assert run["grew"] < GROWTH_MB


@pytest.mark.promise("C7")
@pytest.mark.promise("C5")
@on_wires("openai_chat")
@pytest.mark.ci_lane
async def test_endless_token_counts_after_text_end_with_the_heartbeat_timeout(wire):
    run = await measured(wire, counts_behind_text, {"llm_heartbeat_timeout_seconds": 1})

    assert run["end"] in {"timeout.heartbeat"} | (BY_SIZE if wire != "openai_chat" else set())
    assert run["characters"] == 5
    assert run["grew"] < GROWTH_MB


@pytest.mark.promise("C7")
@pytest.mark.parametrize("headers", [{"Content_Encoding": "gzip"}, {"Transfer_Encoding": "gzip, chunked"}])
@pytest.mark.cases(quick=1)
async def test_a_compressed_body_is_not_decompressed(headers):
    run = await measured("openai_chat", bomb, **headers)

    assert run["end"] == ("provider.bad_reply" if "Content_Encoding" in headers else "provider.transport")
    assert run["grew"] < GROWTH_MB
