"""Long tool results, answers and histories do not block the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr, field_serializer, field_validator

from agenticx import UserMessage
from agenticx.messages import AssistantMessage
from agenticx.runtime import ContextCompactor
from agenticx.runtime.calls.result_rendering import is_large
from agenticx.testing import call
from agenticx.tools import tool
from tests.support.timeouts import PATIENCE, longest_hold, slowdown

pytestmark = pytest.mark.anyio


class Shown(BaseModel):
    """A model that records in which threads its JSON is made."""

    name: str = "shown"
    _threads: list[int] = PrivateAttr(default_factory=list)

    @field_serializer("name")
    def record_thread(self, name: str) -> str:
        self._threads.append(threading.get_ident())
        return name


async def test_an_object_that_a_tool_returns_is_rendered_in_a_thread(play):
    value = Shown()

    @tool(risk="read")
    async def look() -> Any:
        """Look."""
        return value

    run = await play([call("look"), "ok"], tools=[look])

    assert run.results == [("call_1", "ok", '{"name":"shown"}')]
    assert value._threads
    assert threading.get_ident() not in value._threads


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ("a" * 1_000_000, False),  # cut before it is looked at
        (b"a" * 1_000_000, False),
        (None, False),
        ({"rows": [{"name": "a", "size": 1, "ok": True}] * 100}, False),
        ([0] * 100_000, True),
        ({"text": "a" * 100_000}, True),
        ([1 << 3_000_000], True),
        (dict.fromkeys(range(10000)), True),
        ([[[["a" * 70_000]]]], True),
        (Shown(), True),
        ([Shown()], True),
    ],
)
def test_large_values_are_recognised(value, large) -> None:
    assert is_large(value) is large


async def test_a_recursive_value_is_refused(play):
    @tool(risk="read")
    async def look() -> Any:
        """Look."""
        value: list[Any] = []
        value.append(value)
        return value

    [(_, outcome, text)] = (await play([call("look"), "ok"], tools=[look])).results
    assert outcome == "error"
    assert text.startswith("Error: the tool returned a list that contains itself. A tool may return text")


async def test_a_large_value_returned_at_the_time_out_is_reported(play):
    @tool(risk="read", timeout=1)
    async def look() -> Any:
        """Look until it is cancelled."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"rows": ["found"] * 10_000}

    run = await play([call("look"), "ok"], tools=[look])

    [(_, outcome, text)] = run.results
    assert outcome == "timed_out"
    assert text.startswith('look did not finish within 1 s and was ended.\n{"rows":["found","found"')


async def test_a_plain_function_that_times_out_may_still_take_effect(play, caplog):
    released = threading.Event()

    @tool(risk="read", timeout=1)
    def look() -> None:
        """Look until it is released."""
        released.wait(PATIENCE)

    @tool(risk="read")
    def release() -> str:
        """Let the thread end."""
        released.set()
        return "released"

    run = await play([call("look"), call("release"), "ok"], tools=[look, release])

    text = "look did not finish within 1 s; it may still take effect, as its thread cannot be ended."
    assert run.results == [("call_1", "timed_out", text), ("call_2", "ok", "released")]
    [record] = [record for record in caplog.records if "its thread cannot be ended" in record.getMessage()]
    assert record.levelname == "WARNING"


class Places(BaseModel):
    names: list[str]

    @field_validator("names")
    @classmethod
    def _remember(cls, value: list[str]) -> list[str]:
        THREADS.append(threading.get_ident())
        return value


THREADS: list[int] = []


async def test_a_long_output_object_is_validated_in_a_thread(play):
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return ""

    THREADS.clear()
    names = ["Rome" * 5] * 5_000
    run = await play([call("submit_output", {"names": names})], tools=[look], output_type=Places)

    assert run.events[-1].data["output"] == {"names": names}
    assert len(json.dumps(names)) > 100_000
    assert THREADS
    assert threading.get_ident() not in THREADS


@pytest.mark.ci_lane
async def test_a_session_of_100_000_rows_does_not_block_the_event_loop_in_each_round(play):
    rows = [
        row
        for number in range(50_000)
        for row in (UserMessage(content=f"{number}"), AssistantMessage(content=f"it is {number}"))
    ]
    compactor, longest = ContextCompactor(threshold_chars=1_000), list[float]()
    while len(longest) < 3 and min(longest, default=1.0) >= 0.05 * slowdown():  # one may be a hiccup of the machine
        session = play.session(messages=list(rows))
        async with longest_hold() as hold:
            run = await play(["a summary of it all", "ok"], session=session, compactor=compactor)
        longest.append(hold.longest)
        assert run.outline[-1] == "final:answer"
        assert len(run.session.messages) < 20
    assert min(longest) < 0.05 * slowdown()
