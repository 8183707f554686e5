"""Tests of tools that implement the protocol directly, with parts that misbehave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from agenticx.errors import (
    SessionBusy,
    StoreError,
    ToolError,
)
from agenticx.llms import ToolSchema
from agenticx.tools import Assessment
from tests.support.odd_tools import Panic, Unshowable, cyclic, one_result

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]


@dataclass
class Handmade:
    """A tool that implements the protocol directly, with parts that can misbehave."""

    assessment: object = None
    verdict: object = None
    result: object = "made"
    timeout: float | None = None
    read_only: bool = False
    schema = ToolSchema("odd", "Odd.", {"type": "object"})

    def assess(self, arguments, context):
        return self.assessment() if callable(self.assessment) else self.assessment or Assessment(risk="read")

    def validate(self, arguments):
        return self.verdict() if callable(self.verdict) else dict(arguments)

    def run(self, arguments, context):
        return self.result() if callable(self.result) else self._later()

    async def _later(self):
        return self.result


def _raise(exc):
    def function():
        raise exc

    return function


async def test_a_handmade_tool_works(play):
    data = await one_result(play, Handmade())

    assert (data["outcome"], data["result"]) == ("ok", "made")


async def test_a_synchronous_run_method_works(play):
    data = await one_result(play, Handmade(result=lambda: "plain"))

    assert (data["outcome"], data["result"]) == ("ok", "plain")


@pytest.mark.parametrize(
    "odd",
    [
        Handmade(assessment=_raise(RuntimeError("no"))),
        Handmade(assessment=_raise(Panic())),
        Handmade(assessment=lambda: "fine"),
        Handmade(assessment=lambda: None),
        Handmade(result=_raise(RuntimeError("no"))),
        Handmade(result=_raise(SystemExit())),
        Handmade(result=_raise(SessionBusy("no"))),
        Handmade(result=lambda: (n for n in "ab")),
    ],
    ids=[
        "assess raises",
        "assess panics",
        "assess junk",
        "assess none",
        "run raises",
        "run exits",
        "run raises ours",
        "run returns a generator",
    ],
)
async def test_a_handmade_tool_that_fails_is_an_error_of_the_tool(play, odd):
    data = await one_result(play, odd)

    assert data["outcome"] == "error"


@pytest.mark.parametrize(
    "verdict",
    [
        _raise(RuntimeError("no")),
        _raise(Panic()),
        _raise(GeneratorExit()),
        _raise(asyncio.CancelledError()),
        _raise(StoreError("no")),
        _raise(ToolError("no")),
        lambda: None,
        lambda: [1],
        lambda: {"a": Unshowable()},
        lambda: cyclic(),
    ],
)
async def test_a_handmade_tool_whose_validation_fails_does_not_run(play, verdict):
    data = await one_result(play, Handmade(verdict=verdict))

    assert data["outcome"] == "invalid_arguments"


async def test_a_binding_that_is_not_json_does_not_run(play):
    odd = Handmade(assessment=lambda: Assessment(risk="write", binding={"a": object()}))
    data = await one_result(play, odd)

    assert data["outcome"] == "error"
