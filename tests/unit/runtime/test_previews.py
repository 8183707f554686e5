"""Previews of an application's own tools: their pace, and what becomes of a function that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from agenticx.llms import GrowingArguments, ToolCallDelta
from agenticx.runtime import RuntimeEvent
from agenticx.testing import call, pause, raw
from agenticx.tools import ToolContext, tool
from tests.support.turn_player import PlayedTurn, Player

pytestmark = pytest.mark.anyio


def draw_tool(preview: Callable[..., Any]) -> Any:
    @tool(risk="read", preview=preview)
    async def draw(shape: str, context: ToolContext) -> str:
        """Draw a shape."""
        number = None if context.preview is None else context.preview.revision
        artifact = await context.artifacts.write("a.svg", shape.encode(), revision=number)
        context.emit("artifact", artifact.event_data(shape))
        return "drawn"

    return draw


def shape_so_far(arguments: GrowingArguments) -> dict[str, Any] | None:
    return {"path": "a.svg", "content": arguments["shape"]} if "shape" in arguments else None


def shown(turn: PlayedTurn) -> list[str]:
    return [event.data["delta"] for event in turn.events_of("artifact") if not event.data["final"]]


async def test_a_preview_comes_at_once_and_then_at_most_ten_times_a_second(play: Player) -> None:
    begin, pieces = '{"shape": "<svg>', ["x" * 2] * 48
    written = [raw(ToolCallDelta(0, "call_1", "draw", begin))]
    for piece in pieces:
        written += [pause(0.03), raw(ToolCallDelta(0, arguments=piece))]
    times: list[float] = []

    def note(event: RuntimeEvent) -> None:
        if event.type == "artifact" and not event.data["final"]:
            times.append(asyncio.get_running_loop().time())

    script = [*written, raw(ToolCallDelta(0, arguments='"}'))]
    turn = await play([script, "Done."], tools=[draw_tool(shape_so_far)], on=note)
    assert "".join(shown(turn)) == "<svg>" + "x" * 96
    assert times[0] == 0
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert [step for step in steps[:-1] if not 0.0999 < step < 0.1301] == []
    assert turn.outline[-5:] == ["artifact", "tool_result:ok", "round_start", "token", "final:answer"]


async def test_a_preview_of_a_file_that_is_written_elsewhere_is_dropped(play: Player) -> None:
    @tool(risk="read", preview=shape_so_far)
    async def draw(shape: str, context: ToolContext) -> str:
        """Draw a shape into another file than was shown."""
        context.emit("artifact", (await context.artifacts.write("b.svg", shape.encode())).event_data(shape))
        return "drawn"

    turn = await play([call("draw", {"shape": "<svg/>"}), "Done."], tools=[draw])
    artifacts = [event.data for event in turn.events_of("artifact")]
    assert [(data["path"], data["final"], data.get("dropped")) for data in artifacts] == [
        *(("a.svg", False, None), ("b.svg", True, None), ("a.svg", True, True)),
    ]


async def text_later(arguments: GrowingArguments) -> None:
    """Return nothing, later."""


@pytest.mark.parametrize(
    ("preview", "reason"),
    [
        (lambda arguments: arguments["colour"], "the preview of 'draw' raised KeyError: 'colour'"),
        (
            lambda _: {"path": "a.svg"},
            "the preview of 'draw' returned a <class 'dict'>; right would be a dict with the",
        ),
        (lambda _: {"path": "a.svg", "content": None}, "the preview of 'draw' returned a <class 'dict'>"),
        (lambda _: "<svg>", "the preview of 'draw' returned a <class 'str'>"),
        (lambda _: {"path": "../a.svg", "content": "x"}, "the path '../a.svg' has the part '..'"),
    ],
)
async def test_a_preview_that_fails_is_logged_once_and_the_call_runs(
    play: Player, caplog: pytest.LogCaptureFixture, preview: Callable[..., Any], reason: str
) -> None:
    turn = await play([call("draw", {"shape": "<svg/>"}, pieces=5), "Done."], tools=[draw_tool(preview)])
    assert turn.outline == [
        *("turn_started", "round_start", "tool_call_delta", "tool_call:draw", "artifact", "tool_result:ok"),
        *("round_start", "token", "final:answer"),
    ]
    (record,) = [record for record in caplog.records if "preview of a call failed" in record.getMessage()]
    assert reason in record.getMessage()


async def test_a_preview_that_shrinks_shows_no_more(play: Player) -> None:
    def shrinking(arguments: GrowingArguments) -> dict[str, Any] | None:
        shape = arguments.get("shape", "")
        return {"path": "a.svg", "content": shape if len(shape) < 4 else shape[3:]} if shape else None

    written = [raw(ToolCallDelta(0, "call_1", "draw", '{"shape": "<sv'))]
    written += [pause(0.2), raw(ToolCallDelta(0, arguments="g/>")), pause(0.2), raw(ToolCallDelta(0, arguments='"}'))]
    turn = await play([written, "Done."], tools=[draw_tool(shrinking)])
    assert shown(turn) == ["<sv"]
    assert [event.data["content"] for event in turn.events_of("artifact") if event.data["final"]] == ["<svg/>"]


def test_a_preview_function_must_be_plain() -> None:
    with pytest.raises(TypeError, match=r"^preview must be a plain function, .* not a coroutine function$"):
        draw_tool(text_later)
