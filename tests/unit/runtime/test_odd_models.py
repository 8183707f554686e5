"""Models that break their contract: the turn ends with one error, never with a crash."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.llms import Finished, TextDelta
from agenticx.runtime import StopSignal
from tests.support.odd_tools import Panic

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]

END = (Finished("end", "stop"),)


class Odd:
    """A model of our protocol with a given stream."""

    name = "odd"
    context_window = None

    def __init__(self, *batches):
        self.batches = batches
        self.closed = 0

    async def stream(self, request):
        try:
            for batch in self.batches:
                if isinstance(batch, BaseException):
                    raise batch
                yield batch
        finally:
            self.closed += 1


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("bad"),
        SystemExit(3),
        Panic("boo"),
        asyncio.CancelledError(),
        StopIteration(),
        TimeoutError(),
        RecursionError(),
    ],
    ids=lambda exc: type(exc).__name__,
)
@pytest.mark.parametrize("text", ["", "Half"])
async def test_an_unexpected_exception_of_a_model_is_a_bad_reply(play, exc, text):
    model = Odd(*([(TextDelta(text),)] if text else []), exc)
    run = await play(model)

    assert run.outline == ["turn_started", "round_start", *(["token"] if text else []), "error:provider.bad_reply"]
    assert run.rows == [("user", "go"), *([("partial", text)] if text else [])]
    assert model.closed == 1


@pytest.mark.parametrize(
    "batch",
    [
        None,
        7,
        (None,),
        ("text",),
        (object(),),
        (Finished("never", "never"),),
    ],
    ids=["none", "number", "of none", "of text", "of an object", "an odd end"],
)
async def test_a_stream_of_invalid_deltas_ends_in_one_terminal_event(play, batch):
    run = await play(Odd(batch, END))

    assert run.events[-1].terminal


async def test_a_model_whose_stream_method_raises_is_a_bad_reply(play):
    class Refusing(Odd):
        def stream(self, request):
            raise RuntimeError("no")

    run = await play(Refusing())

    assert run.outline == ["turn_started", "round_start", "error:provider.bad_reply"]


async def test_text_after_the_end_marker_is_part_of_the_answer(play):
    run = await play(Odd((TextDelta("a"),), END, (TextDelta("b"),)))

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]
    assert run.terminal["text"] == "ab"


async def test_a_fast_stream_is_paused_until_it_is_read(play):
    class Flood(Odd):
        produced = 0

        async def stream(self, request):
            while True:
                self.produced += 100
                yield [TextDelta("x")] * 100
                await asyncio.sleep(0)

    model, read = Flood(), 0
    turn = play.runtime(model).run_turn("go", play.session())
    async for event in turn:
        read += event.type == "token"
        if read in {1, 20_000}:
            for _ in range(1000):  # the reader takes its time
                await asyncio.sleep(0)
            assert model.produced < read + 20_000
        if read == 20_000:
            break
    await turn.aclose()


@pytest.mark.promise("C8")
async def test_an_iterator_that_is_no_generator_is_closed_at_a_stop(play):
    class Endless:
        closed = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            await asyncio.sleep(0)
            return (TextDelta("x"),)

        async def aclose(self):
            self.closed += 1

    class Iterating(Odd):
        def stream(self, request):
            return source

    source, stop = Endless(), StopSignal()
    run = await play(Iterating(), stop=stop, on=lambda event: stop.set() if event.type == "token" else None)

    assert run.outline == ["turn_started", "round_start", "token", "error:stopped"]
    assert source.closed == 1
