"""Tests of the results of tools: values of any kind and size, and generators, which are refused."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import BaseModel

from agenticx.tools import tool
from tests.support.odd_tools import Unshowable, cyclic, one_result

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]


class Point(BaseModel):
    x: int
    y: int


def deep():
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("text", "text"),
        ("a\ud800b\x00", "a\ufffdb\x00"),
        (b"bytes \xc3\xa9", "bytes é"),
        (7, "7"),
        (True, "true"),
        (float("nan"), "NaN"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ({1: {2}}, '{"1":[2]}'),
        (Point(x=1, y=2), '{"x":1,"y":2}'),
        ([], "[]"),
        ("", ""),
    ],
    ids=repr,
)
async def test_a_returned_value_becomes_text(play, value, text):
    async def give():
        """Give."""
        return value

    data = await one_result(play, give)

    assert (data["outcome"], data["result"]) == ("ok", text)


@pytest.mark.parametrize("make", [cyclic, deep, Unshowable, lambda: iter([1]), lambda: (n for n in "ab")])
@pytest.mark.cases(quick=2)
async def test_a_value_without_a_form_is_an_error_that_says_what_can_be_returned(play, make):
    async def give():
        """Give."""
        return make()

    data = await one_result(play, give)

    assert data["outcome"] == "error"
    assert data["result"].startswith("Error: the tool returned a")
    assert len(data["result"]) < 400


@pytest.mark.parametrize(("piece", "times"), [("x", 100_000_000), (b"x", 100_000_000), (["x" * 1000], 10_000)])
async def test_a_huge_result_keeps_head_and_tail_and_is_marked_as_truncated(play, piece, times):
    async def give():
        """Give."""
        return piece * times

    data = await one_result(play, give)

    assert data["truncated"] is True
    assert len(data["result"]) < 31_000
    assert "left out" in data["result"]


# --- generators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_returned_generator_is_closed_and_reported_as_an_error(play, kind, begun):
    closed = []

    def count():
        try:
            yield 1
            yield 2
        finally:
            closed.append(threading.get_ident())

    def begin():
        generator = count()
        if begun:
            next(generator)
        return generator

    async def later():
        """Return a generator."""
        return begin()

    def now():
        """Return a generator."""
        return begin()

    data = await one_result(play, later if kind == "async" else now)

    assert data["outcome"] == "error"
    assert data["result"] == ("Error: the tool returned a generator; it must collect what it yields and return that.")
    assert len(closed) == begun
    assert threading.get_ident() not in closed, "its code runs beside the loop"


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_returned_async_generator_is_closed_and_reported_as_an_error(play, kind):
    closed = []

    async def count():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    generator = count()
    assert await anext(generator) == 1

    async def later():
        """Return an async generator."""
        return generator

    def now():
        """Return an async generator."""
        return generator

    data = await one_result(play, later if kind == "async" else now)

    assert (data["outcome"], "an async generator" in data["result"]) == ("error", True)
    assert closed == [True]


async def test_a_coroutine_that_was_not_awaited_is_closed_and_reported_as_an_error(play):
    async def inner():
        return "never"

    async def forgetful():
        """Forget to await."""
        return inner()

    data = await one_result(play, forgetful)

    assert (data["outcome"], "a coroutine" in data["result"]) == ("error", True)


async def test_a_generator_that_cannot_be_closed_is_timed_out(play):
    async def stuck():
        try:
            yield 1
        finally:
            await asyncio.Event().wait()

    generator = stuck()
    await anext(generator)

    @tool(risk="read", name="odd", timeout=1)
    async def give():
        """Return it."""
        return generator

    data = await one_result(play, give)

    assert data["outcome"] == "timed_out"
