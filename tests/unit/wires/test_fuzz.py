"""Tests with mutated streams: each gives a storable reply or a typed error, at any chunking."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import InvalidArguments, ModelError
from agenticx.llms import Reply
from agenticx.llms.arguments import parse_arguments
from agenticx.messages import AssistantMessage, Message, message_adapter
from agenticx.runtime import sanitize
from agenticx.runtime.sanitizing import is_valid
from tests.support.lanes import Count
from tests.support.wires.corpus import MALFORMED_STREAMS
from tests.support.wires.recorded import garble, split_body, streams_folder
from tests.support.wires.wires import WIRES, WireUnderTest, read

MAX_BODY_BYTES = 20_000
MAX_SECONDS = 30.0
"""The CPU time that one short stream may take, read several times; it takes milliseconds."""

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 1.5, 10**25, -(10**400), float("nan"), float("inf"), 1e308),
    *("", "x", "None", "\ud800", "{}", "{", '"', "\0", "a" * 300, "2020-01-01"),
    *([], [None], [1], [[]], [{}], {}, {"text": 5}, {"type": None}, {"error": {"message": "m"}}, [{"type": "text"}]),
)


def recorded_bodies(wire: WireUnderTest) -> list[bytes]:
    root = streams_folder()
    if root is None:
        return []
    bodies = [file.read_bytes()[:MAX_BODY_BYTES] for file in sorted((root / str(wire.streams)).glob("*.sse"))]
    assert bodies, f"no streams of {wire.name} in {root}"
    return bodies


def malformed_bodies(wire: WireUnderTest) -> list[bytes]:
    return [
        oddity.body for oddity in MALFORMED_STREAMS if oddity.wire is wire and 0 < len(oddity.body) < MAX_BODY_BYTES
    ]


CASES = [
    *(pytest.param(wire, recorded_bodies, id=f"{wire.name}-recorded") for wire in WIRES.values() if wire.streams),
    *(pytest.param(wire, malformed_bodies, id=f"{wire.name}-odd") for wire in WIRES.values()),
]


def mutate(body: bytes, wire: WireUnderTest, rng: random.Random) -> bytes:
    """Return the body with garbled bytes, with values of its events replaced, or with an event dropped or repeated."""
    separator = b"\n" if wire.ending == "ndjson" else b"\n\n"
    events = body.replace(b"\r\n", b"\n").split(separator)
    match rng.randrange(4):
        case 0:
            return garble(body, rng)
        case 1:
            at = rng.randrange(len(events))
            event = events.pop(at)
            for _ in range(rng.randrange(3)):
                events.insert(rng.randrange(len(events) + 1), event)
        case _:
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(events))
                events[at] = with_another_value(events[at], rng)
    return separator.join(events)


def with_another_value(event: bytes, rng: random.Random) -> bytes:
    head, brace, rest = event.partition(b"{")
    try:
        value = json.loads(brace + rest)
    except (ValueError, RecursionError):
        return event
    path = rng.choice(list(paths(value)))
    return head + json.dumps(replace_at(value, path, rng.choice(VALUES))).encode()


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if len(path) < 20:
        steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, inner in steps:
            yield from paths(inner, (*path, step))


def replace_at(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copied = value.copy()
    copied[path[0]] = replace_at(value[path[0]], path[1:], other)
    return copied


def check(wire: WireUnderTest, body: bytes, rng: random.Random) -> None:
    began = time.process_time()
    replies = [
        read(wire.parser("m"), split_body(body, "random", seed)) for seed in (rng.randrange(99), rng.randrange(99))
    ]
    replies.append(read(wire.parser("m"), [body]))
    assert len({representation(reply, error) for reply, error in replies}) == 1
    reply, error = replies[0]
    assert error is None or error.code.startswith(("provider.", "context_"))
    assert not (reply.complete and error is not None)
    assert time.process_time() - began < MAX_SECONDS
    for call in reply.tool_calls:
        with suppress(InvalidArguments):
            parse_arguments(call.arguments)
    if reply.complete:
        check_history(wire, reply)


def representation(reply: Reply, error: ModelError | None) -> str:
    return repr((reply, error and (str(error), error.code, error.provider_type)))


def check_history(wire: WireUnderTest, reply: Reply) -> None:
    """Check that the message of the reply can be stored, sanitized, and sent over each wire."""
    calls = tuple(call for call in reply.tool_calls if call.name)
    message = AssistantMessage(
        content=reply.text, reasoning=reply.reasoning, tool_calls=calls, provider_state=reply.provider_state
    )
    stored = message_adapter().dump_json(message)
    assert message_adapter().validate_json(stored).role == "assistant"
    history: list[Message] = sanitize([UserMessage(content="hello"), message, UserMessage(content="go on")])
    assert is_valid(history)
    for then in WIRES.values():
        if then is wire:
            then.request(history)  # what it replays is the provider's own; that it can be made is all we answer for
        else:
            assert then.refusals(history) == []


@pytest.mark.promise("C1", "C2")
@pytest.mark.parametrize(("wire", "source"), CASES)
@pytest.mark.cases(quick=5)
@pytest.mark.ci_lane
def test_a_mutated_stream_breaks_nothing(
    wire: WireUnderTest, source: Callable[[WireUnderTest], list[bytes]], rng: random.Random, count: Count
) -> None:
    bodies = source(wire)
    if not bodies:
        pytest.skip("no recorded provider streams: set AGX_STREAMS to the folder that has expected.jsonl")
    for _ in range(-(-count(600, 5_000, 100_000) // len(CASES))):
        body = mutate(rng.choice(bodies), wire, rng)
        try:
            check(wire, body, rng)
        except BaseException as exc:
            exc.add_note(f"the stream: {body!r}")
            raise
