"""Turns written to a sink: in batches, before any call runs, and whole if they are ended early."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.errors import StoreError
from agenticx.runtime import StopSignal, TurnContext
from agenticx.runtime.resume import NullCallJournal
from agenticx.testing import ScriptedModel, call, check_grammar, hang, outline, say
from agenticx.tools import tool
from tests.support.jumping_clock import VIRTUAL_TIME
from tests.support.turn_player import collector

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    """Return a backend whose time passes only while a turn waits."""
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
async def no_task_is_left(anyio_backend):
    """Check that a turn leaves nothing behind, however it ends."""
    yield
    assert [task for task in asyncio.all_tasks() if "agx" in task.get_name()] == []


class SlowSink:
    """A sink that takes a second for each batch and keeps all that it has written whole."""

    def __init__(self):
        self.written = []

    async def __call__(self, batch):
        await asyncio.sleep(1)
        self.written += batch


async def test_a_written_turn_has_the_events_of_a_yielded_one(play):
    script = [call("look", {}), "done"]
    run = await play(script, tools=[look([])])
    events = []
    await play.runtime(ScriptedModel(script)).write_turn("go", play.session(), collector(events), tools=[look([])])
    assert outline(events, detail=True) == run.outline


def look(seen, sink=None):
    @tool(risk="read", name="look")
    async def look_around() -> str:
        """Look around."""
        seen.append(None if sink is None else outline(sink.written)[-1])
        return "seen"

    return look_around


async def test_no_call_runs_before_its_events_are_written(play):
    sink, seen = SlowSink(), []
    model = ScriptedModel([[call("look", {}), call("look", {})], "done"])
    await play.runtime(model).write_turn("go", play.session(), sink, tools=[look(seen, sink)])
    assert seen == ["tool_call", "tool_call"]
    check_grammar(sink.written)


async def test_a_sink_that_fails_ends_the_turn_before_the_call_runs(play):
    async def sink(batch):
        if "tool_call" in outline(batch):
            raise StoreError("no space left")

    seen, session = [], play.session()
    with pytest.raises(StoreError, match="no space left"):
        await play.runtime(ScriptedModel([call("look", {})])).write_turn("go", session, sink, tools=[look(seen)])
    assert seen == []
    assert (await play(["free again"], session=session)).terminal["text"] == "free again"


async def test_a_bug_is_raised_once_the_events_before_it_are_written(play):
    class Journal(NullCallJournal):
        async def record_call(self, call):
            raise LookupError("a bug")

    sink = SlowSink()
    with pytest.raises(LookupError, match="a bug"):
        await play.runtime(ScriptedModel([call("look", {})])).write_turn(
            "go", play.session(), sink, tools=[look([])], context=TurnContext(journal=Journal())
        )
    assert outline(sink.written)[-2:] == ["tool_call", "tool_result"]


async def test_a_cancelled_turn_interrupts_no_write(play):
    sink, seen = SlowSink(), []
    model = ScriptedModel([call("look", {})])
    turn = asyncio.create_task(play.runtime(model).write_turn("go", play.session(), sink, tools=[look(seen)]))
    await asyncio.sleep(1.5)  # the batch with the call is being written
    turn.cancel()
    await asyncio.wait({turn})
    assert turn.cancelled()
    assert seen == []
    assert outline(sink.written) == ["turn_started", "round_start", "tool_call_delta", "tool_call", "tool_result"]


async def test_a_stopped_turn_is_written_to_its_end(play):
    sink, stop = SlowSink(), StopSignal()
    asyncio.get_running_loop().call_later(0.5, stop.set)
    await play.runtime(ScriptedModel([[say("Hm"), hang()]])).write_turn("go", play.session(), sink, stop)
    assert outline(sink.written, detail=True)[-1] == "error:stopped"
    check_grammar(sink.written)
