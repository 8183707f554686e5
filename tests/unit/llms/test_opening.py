"""Replies that are opened before their rest is read, the closing of streams, and the path of a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date
from inspect import currentframe
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.errors import ModelError
from agenticx.llms import (
    Delta,
    Finished,
    ModelRequest,
    Price,
    PricedModel,
    RetryingModel,
    RetryPolicy,
    TextDelta,
    ThinkBlockModel,
    ToolFallbackModel,
    Usage,
    UsageDelta,
    complete,
)
from agenticx.llms.model_catalog import ModelFacts
from agenticx.llms.opening import OpeningStream, OpenReply, open_reply
from agenticx.llms.wrappers.capabilities import CapabilityModel

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(messages=[], attempt_seconds=1.0)
PRICE = {"input": 1, "output": 2, "read": date(2026, 1, 1)}
OVERLOADED = ModelError("overloaded", code="provider.overloaded", retryable=True)
END = [UsageDelta(Usage(3, 4)), Finished("end", "stop")]

Step = Sequence[Delta] | ModelError | None
"""A batch, an error that ends the reply, or None for silence."""


class PlainIterator:
    """The stream of a model whose author wrote no generator: it counts how often it is closed."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.closed = 0
        self.depths: list[list[str]] = []
        self._steps = iter(steps)

    def __aiter__(self) -> PlainIterator:
        return self

    async def __anext__(self) -> Sequence[Delta]:
        self.depths.append(llm_frames(currentframe()))
        match next(self._steps, StopAsyncIteration()):
            case None:
                await asyncio.get_running_loop().create_future()
                raise AssertionError("unreachable")
            case BaseException() as exc:
                raise exc
            case batch:
                return batch

    async def aclose(self) -> None:
        self.closed += 1


class PlainModel:
    """A model that plays each of `scripts` as a `PlainIterator`, kept in `streams`."""

    context_window = None

    def __init__(self, *scripts: Sequence[Step], name: str = "plain") -> None:
        self.name = name
        self.streams: list[PlainIterator] = []
        self._scripts = iter(scripts)

    def stream(self, request: ModelRequest) -> PlainIterator:
        self.streams.append(PlainIterator(next(self._scripts)))
        return self.streams[-1]

    @property
    def closed(self) -> list[int]:
        """The number of times that each stream was closed."""
        return [stream.closed for stream in self.streams]


def llm_frames(frame: FrameType | None) -> list[str]:
    """Return the functions of the package `llms` that are waiting for the caller."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "llms" in path.parts and "agenticx" in path.parts and "tests" not in path.parts:
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found


def wrapped(model: Any) -> Any:
    """Return `model` in the wrappers of a turn's model, without retries."""
    native = ToolFallbackModel(ThinkBlockModel(CapabilityModel(model, ModelFacts())))
    return PricedModel(native, Price.model_validate(PRICE), SystemClock())


def retrying(*models: PlainModel, attempts: int = 2) -> RetryingModel:
    first, *others = map(wrapped, models)
    policy = RetryPolicy(attempts=attempts, shortest_wait=0, longest_wait=0)
    return RetryingModel(first, others, policy, SystemClock())


def text(*words: str) -> list[list[Delta]]:
    return [[TextDelta(word)] for word in words]


async def test_no_layer_of_the_opening_stays_in_the_path_of_a_token() -> None:
    model = PlainModel([*text("a", "b", "c"), END])
    reply, _ = await complete(retrying(model), REQUEST)
    first, *others = model.streams[0].depths
    assert reply.text == "abc"
    assert "open_with_downgrades" in first
    assert "open_next_attempt" in first
    assert others[1:] == [["OpenReply.__anext__", "receive_reply", "complete"]] * 3


ATTEMPTS: list[tuple[list[list[Step]], list[int]]] = [
    ([[*text("a"), END]], [1]),
    ([[*text("a"), OVERLOADED]], [1]),
    ([[]], [1]),
    ([[OVERLOADED], [*text("a"), END]], [1, 1]),
    ([[[UsageDelta(Usage(1))], OVERLOADED], [*text("<thi"), OVERLOADED]], [1, 1]),
    ([[OVERLOADED], [OVERLOADED]], [1, 1]),
]


@pytest.mark.parametrize(("scripts", "closed"), ATTEMPTS)
async def test_the_stream_of_each_attempt_is_closed_once(scripts: list[list[Step]], closed: list[int]) -> None:
    model = PlainModel(*scripts)
    await complete(retrying(model, attempts=len(scripts)), REQUEST)
    assert model.closed == closed


@pytest.mark.parametrize(
    "script", [[None], [[UsageDelta(Usage(1))], None], [*text("<think>"), None], [*text("a"), None]]
)
async def test_the_stream_of_a_cancelled_reader_is_closed_once(script: list[Step]) -> None:
    model = PlainModel(script)
    reading = asyncio.create_task(complete(retrying(model), REQUEST))
    await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.wait({reading})
    assert (reading.cancelled(), model.closed) == (True, [1])


async def test_a_silent_model_is_closed_once_before_its_fallback_is_called() -> None:
    silent, prepare_handoff = PlainModel([None], name="silent"), PlainModel([*text("a"), END], name="other")
    reply, error = await complete(retrying(silent, prepare_handoff), REQUEST)
    assert (reply.text, error, silent.closed, prepare_handoff.closed) == ("a", None, [1], [1])


@pytest.mark.parametrize("read", [0, 1, 2])
async def test_a_stream_that_is_closed_early_ends(read: int) -> None:
    model = PlainModel([*text("a", "b", "<", "d"), END])
    stream = wrapped(model).stream(REQUEST)
    assert isinstance(stream, OpeningStream)
    for _ in range(read):
        await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert [batch async for batch in stream] == []
    assert model.closed == ([1] if read else [])


async def test_a_stream_that_failed_has_ended() -> None:
    for script in ([OVERLOADED], [*text("a"), OVERLOADED]):
        stream = wrapped(PlainModel(script)).stream(REQUEST)
        with pytest.raises(ModelError, match="overloaded"):
            async for _ in stream:
                pass
        assert [batch async for batch in stream] == []


async def test_a_model_without_aclose_is_read() -> None:
    class Iterator:
        def __init__(self) -> None:
            self._steps = iter([*text("a"), END])

        def __aiter__(self) -> Iterator:
            return self

        async def __anext__(self) -> Sequence[Delta]:
            return next(self._steps)

    class Model:
        name, context_window = "bare", None

        def stream(self, request: ModelRequest) -> Iterator:
            return Iterator()

    stream = RetryingModel(wrapped(Model())).stream(REQUEST)
    assert [await anext(stream), len(await anext(stream))] == [[TextDelta("a")], 3]


# --- transforms -------------------------------------------------------------------------------------------------------


class Holding:
    """A transform that holds back some text, and may fail at some batch."""

    def __init__(self, number: int, every: int, fails_at: int | None) -> None:
        self._number = number
        self._every = every
        self._fails_at = fails_at
        self._batches = 0
        self._held: list[str] = []

    def change(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        self._batches += 1
        if self._batches == self._fails_at:
            raise ModelError(f"transform {self._number}", code="provider.bad_reply")
        self._held += [delta.text for delta in batch if isinstance(delta, TextDelta)]
        return self.flush() if self._batches % self._every == 0 else ()

    def flush(self) -> Sequence[Delta]:
        held, self._held = "".join(self._held), []
        return [TextDelta(f"{self._number}({held})")] if held else ()


async def in_layers(
    source: AsyncIterator[Sequence[Delta]],
    change: Callable[[Sequence[Delta]], Sequence[Delta]],
    flush: Callable[[], Sequence[Delta]],
) -> AsyncIterator[Sequence[Delta]]:
    """Yield the batches of `source` changed by one transform: the model of what several of them do."""
    failure: ModelError | None = None
    try:
        async for batch in source:
            if deltas := change(batch):
                yield deltas
    except ModelError as exc:
        failure = exc
    if rest := flush():
        yield rest
    if failure is not None:
        raise failure


async def read_all(stream: AsyncIterator[Sequence[Delta]]) -> tuple[list[Sequence[Delta]], str]:
    batches: list[Sequence[Delta]] = []
    try:
        async for batch in stream:
            batches.append(batch)
    except ModelError as exc:
        return batches, str(exc)
    return batches, ""


async def with_first(reply: OpenReply) -> AsyncIterator[Sequence[Delta]]:
    if reply.first is not None:
        yield reply.first
    async for batch in reply:
        yield batch


async def test_transforms_do_what_nested_generators_would(rng: Random, count: Any) -> None:
    for _ in range(count(100, 1_000, 30_000)):
        steps: list[Step] = [*text(*"abcdefgh"[: rng.randint(0, 8)])]
        if rng.random() < 0.4:
            steps.append(OVERLOADED)
        shapes = [
            (number, rng.randint(1, 4), rng.randint(1, 5) if rng.random() < 0.3 else None)
            for number in range(rng.randint(0, 3))
        ]
        layers: Any = PlainIterator(steps)
        for shape in shapes:
            transform = Holding(*shape)
            layers = in_layers(layers, transform.change, transform.flush)
        expected = await read_all(layers)

        model = PlainModel(steps)
        try:
            reply = await open_reply(model, REQUEST)
            for shape in shapes:
                transform = Holding(*shape)
                await reply.transform(transform.change, transform.flush)
        except ModelError as exc:
            actual: tuple[list[Sequence[Delta]], str] = ([], str(exc))
        else:
            actual = await read_all(with_first(reply))
        assert (actual, model.closed) == (expected, [1]), (steps, shapes)
