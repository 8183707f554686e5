"""The stop button: whatever runs, the turn ends at once, answers its calls and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agenticx import UserMessage
from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentHook, AgentRuntime, AutoApproveConfirmGate, HookRegistry, StopSignal
from agenticx.testing import ScriptedModel, call, hang, say
from agenticx.tools import ToolContext, tool
from tests.support.timed_stop import LIMIT, STOPPED, TimedStop
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("C8")]


async def test_a_stop_before_the_first_event_ends_the_turn(play):
    stop = StopSignal()
    stop.set()
    run = await play(ScriptedModel([]), stop=stop)

    assert [event.type.value for event in run.events] == ["turn_started", "state", "error"]
    assert run.terminal == STOPPED
    assert run.rows == [("user", "go")]


async def test_a_stop_in_the_stream_keeps_the_shown_text(play):
    stop = TimedStop("token")
    run = await play([[say("I was say"), hang()]], stop=stop.signal, on=stop)

    assert run.outline == ["turn_started", "round_start", "token", "error:stopped"]
    assert run.rows == [("user", "go"), ("partial", "I was say")]
    assert stop.seconds < LIMIT


async def test_a_stop_in_a_tool_answers_every_call(play):
    stop = TimedStop()

    @tool(risk="write")
    async def work(n: int) -> None:
        """Work forever on the second."""
        if n == 2:
            stop.press_soon()
            await asyncio.Event().wait()

    run = await play(
        [[call("work", {"n": n}) for n in (1, 2, 3)]],
        tools=[work],
        gate=AutoApproveConfirmGate(),
        session=play.session(permission_mode="auto"),
        stop=stop.signal,
        on=stop,
    )

    assert run.outline == [
        "turn_started",
        "round_start",
        "tool_call_delta",
        *["tool_call:work"] * 3,
        "tool_result:ok",
        "tool_result:cancelled",
        "tool_result:cancelled",
        "error:stopped",
    ]
    assert [text for *_, text in run.results[1:]] == [
        "Cancelled: the turn ended before this call was answered; whether it took effect is not known.",
        "Cancelled: the turn ended before this call began to run.",
    ]
    assert stop.seconds < LIMIT


@pytest.mark.parametrize("by", ["the event loop", "another thread"])
async def test_a_call_whose_thread_begins_after_the_stop_does_not_begin(play, monkeypatch, by):
    stop, start, ran = StopSignal(), threading.Thread.start, []

    def start_after_stop(thread):
        if thread.name != "agx tool work":
            return start(thread)
        if by == "the event loop":
            stop.set()
        else:
            stopping = threading.Thread(target=stop.set)
            start(stopping)
            stopping.join()
        ended, run = threading.Event(), thread.run
        thread.run = lambda: (run(), ended.set())
        start(thread)
        assert ended.wait(PATIENCE)  # the loop learns of what another thread did only after that

    monkeypatch.setattr(threading.Thread, "start", start_after_stop)

    @tool(risk="read")
    def work() -> str:
        """Work."""
        ran.append("work")
        return "done"

    run = await play([call("work")], tools=[work], stop=stop)

    assert ran == []
    assert run.terminal == STOPPED
    assert [outcome for _, outcome, _ in run.results] == ["cancelled"]


async def test_finished_parallel_calls_keep_their_results_after_a_stop(play):
    stop = TimedStop("tool_progress")

    @tool(risk="read")
    async def look(n: int, context: ToolContext) -> str:
        """Hang on the first."""
        if n == 1:
            await asyncio.Event().wait()
        if n == 3:
            context.emit("tool_progress", {"output": "nearly"})
        return f"saw {n}"

    run = await play([[call("look", {"n": n}) for n in (1, 2, 3)]], tools=[look], stop=stop.signal, on=stop)

    assert [outcome for _, outcome, _ in run.results] == ["cancelled", "ok", "ok"]
    assert [text for *_, text in run.results[1:]] == ["saw 2", "saw 3"]
    assert stop.seconds < LIMIT


async def test_a_finished_parallel_call_keeps_the_result_of_its_hook_after_a_stop(play):
    class Redact(AgentHook):
        async def after_tool_call(self, name, arguments, result, context):
            return result.replace("hunter2", "…")

    stop = TimedStop("tool_progress")

    @tool(risk="read")
    async def look(n: int, context: ToolContext) -> str:
        """Hang on the first, fail on the second."""
        if n == 1:
            await asyncio.Event().wait()
        if n == 2:
            raise ValueError("no")
        context.emit("tool_progress", {"output": "nearly"})
        return "hunter2"

    run = await play(
        [[call("look", {"n": n}) for n in (1, 2, 3)]],
        tools=[look],
        hooks=HookRegistry([Redact()]),
        stop=stop.signal,
        on=stop,
    )

    assert [outcome for _, outcome, _ in run.results] == ["cancelled", "error", "ok"]
    assert run.results[2][2] == "…"


async def test_a_finished_result_that_its_hook_has_not_seen_is_withheld(play):
    stop = TimedStop()

    class Slow(AgentHook):
        async def after_tool_call(self, name, arguments, result, context):
            stop.press_soon()
            await asyncio.Event().wait()

    @tool(risk="read")
    async def secret() -> str:
        """Tell."""
        return "hunter2"

    run = await play([call("secret")], tools=[secret], hooks=HookRegistry([Slow()]), stop=stop.signal, on=stop)

    assert [outcome for _, outcome, _ in run.results] == ["cancelled"]
    assert "hunter2" not in run.results[0][2]
    assert stop.seconds < LIMIT


async def test_a_stop_ends_the_turn_while_a_tool_ignores_cancellation(play):
    stop, release, ended = TimedStop(), asyncio.Event(), asyncio.Event()

    @tool(risk="read")
    async def deaf() -> None:
        """Hear nothing."""
        stop.press_soon()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    events = []
    async for event in play.runtime(ScriptedModel([call("deaf")])).run_turn(
        "go", play.session(), stop.signal, tools=[deaf]
    ):
        events.append(event)
        stop(event)
    release.set()
    await ended.wait()

    assert [event.type.value for event in events][-3:] == ["tool_result", "state", "error"]
    assert stop.seconds < LIMIT


async def test_a_stop_ends_the_turn_while_a_tool_blocks_its_thread(play):
    stop, release, loop = TimedStop(), threading.Event(), asyncio.get_running_loop()

    @tool(risk="read")
    def block() -> None:
        """Block."""
        loop.call_soon_threadsafe(stop.press_soon)
        release.wait(PATIENCE)

    run = await play([call("block")], tools=[block], stop=stop.signal, on=stop)
    release.set()

    assert run.outline[-2:] == ["tool_result:cancelled", "error:stopped"]
    assert stop.seconds < LIMIT


async def test_background_work_continues_after_the_terminal_event(play):
    order: list[str] = []
    stop = TimedStop()

    async def clean_up():
        await asyncio.sleep(0.02)
        order.append("cleaned up")

    @tool(risk="read")
    async def work(context: ToolContext) -> None:
        """Work."""
        stop.press_soon()
        try:
            await asyncio.Event().wait()
        finally:
            context.add_background_task(clean_up())

    def on(event):
        stop(event)
        if event.terminal:
            order.append("terminal")

    await play([call("work")], tools=[work], stop=stop.signal, on=on)

    assert order == ["terminal", "cleaned up"]


async def test_a_stop_in_compaction_leaves_the_history_unchanged(play):
    history = [
        row
        for n in range(15)
        for row in (UserMessage(content=f"question {n}"), AssistantMessage(content=f"answer {n}"))
    ]
    stop = TimedStop("round_start")
    run = await play([hang()], session=play.session(messages=list(history)), stop=stop.signal, on=stop)

    assert run.outline == ["turn_started", "round_start", "error:stopped"]
    assert run.session.messages[:-1] == history
    assert stop.seconds < LIMIT


def hook_that_hangs(point, stop):
    """Return hooks of which the one at `point` has the button pressed and never ends."""

    async def hang_for_ever(self, *_):
        stop.press_soon()
        await asyncio.Event().wait()

    return HookRegistry([type("Hanging", (AgentHook,), {point: hang_for_ever})()], limit=0.5)


@pytest.mark.parametrize(
    "point", ["before_model", "after_model", "before_tool_call", "after_tool_call", "on_agent_end"]
)
async def test_a_stop_in_a_hook_ends_the_turn(play, point):
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    stop = TimedStop()
    script = ["Hello."] if "tool" not in point else [[say("Hello."), call("look")]]
    model = ScriptedModel(script)
    run = await play(
        ScriptedModel([]) if point == "before_model" else model,
        tools=[look],
        hooks=hook_that_hangs(point, stop),
        stop=stop.signal,
        on=stop,
    )

    assert run.outline[-1] == ("final:answer" if point == "on_agent_end" else "error:stopped")
    assert stop.seconds < LIMIT
    shown = "".join(event.data["text"] for event in run.events_of("token"))
    assert shown == "".join(r[1] for r in run.rows if r[0] in {"assistant", "partial"}), "what was shown stays"


async def test_a_stop_ends_the_hooks_of_a_failed_turn(play):
    stop = TimedStop()
    hooks = hook_that_hangs("on_agent_end", stop)
    run = await play([call("nope")], hooks=hooks, max_tool_rounds=1, stop=stop.signal, on=stop)

    assert run.outline[-1] == "error:max_rounds"
    assert stop.seconds < LIMIT


async def test_a_plain_function_can_stop_a_turn(play):
    pressed = False
    run_to = TimedStop("token")

    def should_stop():
        return pressed

    def on(event):
        nonlocal pressed
        run_to(event)
        pressed = pressed or event.type == "token"

    run = await play([[say("I was"), hang()]], stop=should_stop, on=on)

    assert run.outline[-1] == "error:stopped"


async def test_a_should_stop_that_raises_counts_as_stop(play):
    def should_stop():
        raise RuntimeError("broken button")

    run = await play(ScriptedModel([]), stop=should_stop)

    assert run.terminal == STOPPED


async def test_a_stop_from_another_thread_ends_the_turn(play):
    stop = StopSignal()

    def on(event):
        if event.type == "token":
            threading.Thread(target=stop.set).start()

    run = await play([[say("I was"), hang()]], stop=stop, on=on)

    assert run.outline[-1] == "error:stopped"


async def test_a_stop_after_the_end_has_no_effect(play):
    stop = StopSignal()
    run = await play(["Hello."], stop=stop, on=lambda event: stop.set() if event.terminal else None)

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]


@pytest.mark.parametrize("steps", range(0, 120, 2))
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.cases(quick=20)
async def test_no_call_begins_after_a_stop_at_any_point_of_the_turn(steps, parallel):
    stop, begun_late = StopSignal(), []

    @tool(risk="read", parallel=parallel)
    async def look(n: int) -> str:
        """Note a beginning after the stop."""
        begun_late.append(n) if stop.is_set() else None
        await asyncio.sleep(0)
        return "seen"

    calls = [call("look", {"n": n}) for n in range(4)]
    turn = AgentRuntime(ScriptedModel([calls, calls, say("Done.")]), tools=[look]).run_turn("go", should_stop=stop)

    async def consume() -> list[str]:
        return [event.type async for event in turn]

    events = asyncio.create_task(consume())
    for _ in range(steps):
        await asyncio.sleep(0)
    stop.set()
    assert (await events)[-1] in {"error", "final"}
    assert begun_late == []
