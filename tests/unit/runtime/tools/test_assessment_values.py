"""Assessments with values of other types than declared: each is an error of its call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenticx import open_hub
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, collect
from agenticx.tools import Assessment, tool
from tests.support.turn_player import Player

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]

ODD: dict[str, tuple[Any, str]] = {
    "none": (None, "NoneType; it must return an Assessment"),
    "a text": ("read", "str; it must return an Assessment"),
    "a misspelt risk": (
        Assessment(risk="raed"),  # pyright: ignore[reportArgumentType]
        "an Assessment whose risk is 'raed'; it must be one of read, write, execute",
    ),
    "no risk": (
        Assessment(risk=None),  # pyright: ignore[reportArgumentType]
        "an Assessment whose risk is NoneType; it must be one of read, write, execute",
    ),
    "a path": (
        Assessment(risk="write", path=Path("/tmp/x")),  # pyright: ignore[reportArgumentType]
        "an Assessment whose path is PosixPath; it must be a text or None",
    ),
    "bytes": (
        Assessment(risk="write", diff=b"x"),  # pyright: ignore[reportArgumentType]
        "an Assessment whose diff is bytes; it must be a text or None",
    ),
    "a list as command": (
        Assessment(risk="read", command=[1]),  # pyright: ignore[reportArgumentType]
        "an Assessment whose command is list of int; it must be a text or None",
    ),
    "a number as question": (
        Assessment(risk="write", question=1),  # pyright: ignore[reportArgumentType]
        "an Assessment whose question is int; it must be a text or None",
    ),
    "exceptions as reasons": (
        Assessment(risk="write", reasons=(ValueError("a"),)),  # pyright: ignore[reportArgumentType]
        "an Assessment whose reasons is tuple of ValueError; it must be a tuple of texts",
    ),
    "a text as reasons": (
        Assessment(risk="write", reasons="abc"),  # pyright: ignore[reportArgumentType]
        "an Assessment whose reasons is str; it must be a tuple of texts",
    ),
    "a number as protected": (
        Assessment(risk="read", protected=0),  # pyright: ignore[reportArgumentType]
        "an Assessment whose protected is int; it must be True or False",
    ),
    "no binding": (
        Assessment(risk="write", binding=None),  # pyright: ignore[reportArgumentType]
        "an Assessment whose binding is NoneType; it must be a mapping of JSON values",
    ),
}


@pytest.mark.parametrize("kind", ODD)
async def test_an_assessment_of_another_type_is_an_error_of_its_call(play: Player, kind: str) -> None:
    assessment, problem = ODD[kind]

    @tool(risk="write", assess=lambda arguments, context: assessment)
    def put() -> str:
        """Put."""
        return "put"

    run = await play([call("put"), "ok"], tools=[put])

    assert run.results == [("call_1", "error", f"the assessment of tool 'put' returned {problem}")]
    assert run.outline[-1] == "final:answer"


async def test_an_assessment_that_is_not_json_does_not_hang_a_stored_turn(tmp_path: Path) -> None:
    @tool(risk="write", assess=lambda arguments, context: ODD["a path"][0])
    def put() -> str:
        """Put."""
        return "put"

    settings = load_settings({"home": tmp_path / "home"}, environ={})
    model = ScriptedModel([call("put"), "ok"])
    async with open_hub("memory://", model=model, tools=[put], workspace=tmp_path, settings=settings) as hub:
        session = await hub.create(name="Named")
        events = await collect(hub.run_turn(session.id, "go"))

    [result] = [event.data for event in events if event.type == "tool_result"]
    assert (result["outcome"], events[-1].type) == ("error", "final")
