"""Tests of the events and background tasks that tools add through their context."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from agenticx.runtime import AgentRuntime, StopSignal
from agenticx.testing import ScriptedModel, call
from agenticx.tools import ToolContext, tool
from tests.support.odd_tools import cyclic, one_result
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]


# --- background tasks -------------------------------------------------------------------------------------------------


async def test_a_plain_function_may_start_background_work(play):
    done = []

    async def clean_up():
        done.append(threading.current_thread())

    def odd(context: ToolContext):
        """Hand over work, from a thread."""
        context.add_background_task(clean_up())

    data = await one_result(play, odd)

    assert (data["outcome"], done) == ("ok", [threading.current_thread()])


@pytest.mark.parametrize("steps", range(40))
@pytest.mark.cases(quick=40)
def test_background_work_is_begun_or_closed_at_whatever_step_the_event_loop_is_left(steps):
    made = []

    async def clean_up():
        await asyncio.sleep(0)

    @tool(risk="read")
    async def work(context: ToolContext):
        """Work."""
        made.append(clean_up())
        context.add_background_task(made[-1])
        return "done"

    async def consume():
        turn = AgentRuntime(ScriptedModel([call("work"), "Done."]), tools=[work]).run_turn("go")
        return [event.type async for event in turn]

    async def leave():
        events = asyncio.create_task(consume())
        for _ in range(steps):
            await asyncio.sleep(0)
        return events.done()

    ended = asyncio.run(leave())
    assert made or not ended
    assert all(inspect.getcoroutinestate(one) == inspect.CORO_CLOSED for one in made)


def test_background_work_of_a_call_that_outlives_its_event_loop_is_closed():
    stop, release, ended, made = StopSignal(), threading.Event(), threading.Event(), []

    async def clean_up():
        pass

    @tool(risk="read")
    def work(context: ToolContext):
        """Work for longer than the turn."""
        stop.set()
        release.wait(PATIENCE)
        made.append(clean_up())
        try:
            context.add_background_task(made[0])
        finally:
            ended.set()

    async def leave():
        turn = AgentRuntime(ScriptedModel([call("work")]), tools=[work]).run_turn("go", should_stop=stop)
        return [event.type async for event in turn]

    assert asyncio.run(leave())[-1] == "error"
    release.set()
    assert ended.wait(PATIENCE)
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED


async def test_background_work_that_exits_ends_neither_the_turn_nor_the_program(play):
    done = []

    async def leave():
        done.append(True)
        raise SystemExit(3)

    async def odd(context: ToolContext):
        """Hand over work."""
        context.add_background_task(leave())

    data = await one_result(play, odd)

    assert (data["outcome"], done) == ("ok", [True])


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("final", {"text": "done"}),
        ("error", {"fatal": True, "code": "stopped", "text": ""}),
        ("token", {"text": "x"}),
        ("tool_result", {}),
        ("subagent_paused", {}),
        ("no_such_event", {}),
        ("", {}),
        (None, {}),
        (["artifact"], {}),
        ("artifact", {}),
        ("artifact", {"path": 7, "final": "yes"}),
        ("artifact", {"path": "a", "final": True, "extra": 1}),
        ("artifact", None),
        ("artifact", 7),
        ("artifact", cyclic()),
        ("artifact", {"path": "a", "content": float("nan"), "final": True}),
        ("artifact", {"path": "a", "content": object(), "final": True}),
        ("citation", {"quote": "x"}),
        ("handoff", {"from_agent": "a"}),
        ("subagent_started", {"task": "x"}),
        ("tool_progress", [1]),
    ],
)
async def test_emitting_a_forbidden_or_invalid_event_is_an_error_of_the_tool(play, type_, payload):
    async def odd(context: ToolContext):
        """Emit."""
        context.emit(type_, payload)

    data = await one_result(play, odd)

    assert data["outcome"] == "error"


async def test_emitted_text_is_cleaned(play):
    @tool(risk="read", name="odd")
    async def odd(context: ToolContext):
        """Emit."""
        context.emit("tool_progress", {"output": "a\ud800"})
        context.emit("artifact", {"path": "b\ud800", "content": "c\udfff", "final": True})

    run = await play([call("odd"), "ok"], tools=[odd])

    assert run.events_of("tool_progress")[0].data["output"] == "a\ufffd"
    artifact = {"path": "b\ufffd", "content": "c\ufffd", "final": True, "tool_call_id": "call_1"}
    assert run.events_of("artifact")[0].data == artifact


async def test_emitting_from_many_threads_keeps_each_threads_order(play):
    @tool(risk="read")
    def work(context: ToolContext) -> str:
        """Emit from threads."""

        def emit(name):
            for n in range(50):
                context.emit("tool_progress", {"output": f"{name}{n}"})

        threads = [threading.Thread(target=emit, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    run = await play([call("work"), "ok"], tools=[work])

    outputs = [event.data["output"] for event in run.events_of("tool_progress")]
    assert len(outputs) == 200
    for name in "abcd":
        assert [text for text in outputs if text[0] == name] == [f"{name}{n}" for n in range(50)]


async def test_emitting_after_the_end_is_dropped(play):
    kept: list[ToolContext] = []

    @tool(risk="read")
    async def leave(context: ToolContext) -> str:
        """Keep the context."""
        kept.append(context)
        return "left"

    @tool(risk="read")
    async def late() -> str:
        """Emit for a call that is over."""
        kept[0].emit("tool_progress", {"output": "late"})
        return "late"

    run = await play([call("leave"), call("late"), "ok"], tools=[leave, late])

    assert run.events_of("tool_progress") == []
