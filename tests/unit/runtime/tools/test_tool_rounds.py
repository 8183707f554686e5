"""The calls of a round: announced together, answered one by one in call order."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from pathlib import Path

import pytest

from agenticx.llms import ToolCallDelta
from agenticx.runtime import AgentHook, AutoApproveConfirmGate, Block, ConfirmAnswer, HookRegistry, StopSignal
from agenticx.testing import ScriptedGate, ScriptedModel, call, finish, outline, raw, say
from agenticx.tools import ToolContext, ToolOutput, tool
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(risk="write")
def note(text: str) -> str:
    """Keep a note."""
    return f"kept {text}"


async def test_a_tool_round(play):
    run = await play(
        [[say("Adding."), call("add", {"a": 1, "b": 2}, pieces=['{"a": 1', ', "b": 2}'])], "It is 3."], tools=[add]
    )

    assert outline(run.events, state=True, usage=True, tokens="each", detail=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "tool_call_delta",
        "tool_call_delta",
        "usage",
        "state:executing",
        "tool_call:add",
        "tool_result:ok",
        "state:observing",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "usage",
        "state:done",
        "final:answer",
    ]
    assert [event.data for event in run.events_of("tool_call_delta")] == [
        {"tool_call_id": "call_1", "name": "add", "arguments_delta": '{"a": 1'},
        {"tool_call_id": "call_1", "name": "add", "arguments_delta": ', "b": 2}'},
    ]
    assert run.events_of("tool_call")[0].data == {
        "tool_call_id": "call_1",
        "name": "add",
        "arguments": {"a": 1, "b": 2},
    }
    result = dict(run.events_of("tool_result")[0].data)
    assert result.pop("duration_ms") >= 0
    assert result == {"tool_call_id": "call_1", "name": "add", "result": "3", "is_error": False, "outcome": "ok"}
    assert run.rows == [
        ("user", "go"),
        ("assistant", "Adding.", ["add"]),
        ("tool", "call_1", "ok", "3"),
        ("assistant", "It is 3."),
    ]
    assert [message.role for message in run.model.requests[1].messages] == ["user", "assistant", "tool"]


async def test_read_only_calls_run_side_by_side_and_answer_in_call_order(play):
    together, second_done = asyncio.Barrier(3), asyncio.Event()

    @tool(risk="read")
    async def look(n: int) -> str:
        """Look."""
        await together.wait()
        if n == 1:
            second_done.set()
        else:
            await second_done.wait()
        return f"saw {n}"

    run = await play([[call("look", {"n": n}) for n in range(3)], "ok"], tools=[look])

    assert run.results == [("call_1", "ok", "saw 0"), ("call_2", "ok", "saw 1"), ("call_3", "ok", "saw 2")]


async def test_calls_with_side_effects_run_one_after_the_other(play):
    running, most = 0, 0

    @tool(risk="write")
    async def change(n: int) -> str:
        """Change."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return f"changed {n}"

    run = await play(
        [[call("change", {"n": n}) for n in range(3)], "ok"], tools=[change], gate=AutoApproveConfirmGate()
    )

    assert most == 1
    assert [text for *_, text in run.results] == ["changed 0", "changed 1", "changed 2"]


async def test_a_write_waits_for_the_reads_before_it_and_the_reads_after_it_wait_for_the_write(play):
    order: list[str] = []

    @tool(risk="read")
    async def read(name: str) -> None:
        """Read."""
        await asyncio.sleep(0)
        order.append(name)

    @tool(risk="write")
    async def write(name: str) -> None:
        """Write."""
        order.append(name)

    calls = [call("read", {"name": "a"}), call("read", {"name": "b"}), call("write", {"name": "C"})]
    run = await play([[*calls, call("read", {"name": "d"})], "ok"], tools=[read, write], gate=AutoApproveConfirmGate())

    assert order == ["a", "b", "C", "d"]
    assert run.outline[2:14] == [
        "tool_call_delta",
        "tool_call:read",
        "tool_call:read",
        "tool_call:write",
        "tool_call:read",
        "tool_result:ok",
        "tool_result:ok",
        "confirm_required",
        "confirm_response:approved",
        "tool_result:ok",
        "tool_result:ok",
        "round_start",
    ]


async def test_an_unknown_tool_is_answered_with_the_known_ones(play):
    run = await play([[call("nope", {"x": 1}), call("add", {"a": 1, "b": 2})], "ok"], tools=[add, note])

    assert run.outline == [
        "turn_started",
        "round_start",
        "tool_call_delta",
        "tool_call:nope",
        "tool_call:add",
        "tool_result:unknown_tool",
        "tool_result:ok",
        "round_start",
        "token",
        "final:answer",
    ]
    assert run.results == [
        ("call_1", "unknown_tool", "unknown tool 'nope'; known tools: add, note"),
        ("call_2", "ok", "3"),
    ]
    assert run.events_of("tool_result")[0].data["is_error"] is True


async def test_a_call_without_a_name_causes_one_reminder_and_then_a_bad_reply(play):
    run = await play([[say("Hm."), call("", {"a": 1})], call("None")], tools=[add, note])

    assert run.outline == [
        "turn_started",
        "round_start",
        "token",
        "tool_call_delta",
        "round_start",
        "tool_call_delta",
        "error:provider.bad_reply",
    ]
    assert run.rows == [
        ("user", "go"),
        ("assistant", "Hm."),
        ("reminder", "[reminder] Your last call named no tool or could not be read. The tools are: add, note."),
    ]


async def test_calls_without_a_name_are_dropped_if_another_call_has_one(play):
    run = await play([[call("none"), call("add", {"a": 1, "b": 2}), call("")], "ok"], tools=[add])

    assert run.results == [("call_2", "ok", "3")]
    assert run.rows[1] == ("assistant", "", ["add"])


async def test_arguments_that_do_not_fit_the_schema_are_refused_for_that_call_alone(play):
    run = await play([[call("add", {"a": "x"}), call("add", {"a": 1, "b": 2})], "ok"], tools=[add])

    assert [outcome for _, outcome, _ in run.results] == ["invalid_arguments", "ok"]
    assert run.results[0][2].startswith("Invalid arguments: ")
    assert run.events_of("tool_call")[0].data["arguments"] == {"a": "x"}


async def test_malformed_arguments_of_a_read_only_tool_are_repaired_and_marked(play):
    text = "```json\n{'a': 1, 'b': 2,}\n```"
    run = await play([call("add", text), "ok"], tools=[add])

    assert run.events_of("tool_call")[0].data["arguments"] == text, "a client receives the model's own text"
    assert run.events_of("tool_result")[0].data["repaired"] is True
    assert run.results == [("call_1", "ok", "3")]
    assert run.session.messages[1].tool_calls[0].arguments == text, "history keeps the model's own bytes"


async def test_malformed_arguments_of_a_tool_with_side_effects_are_never_repaired(play):
    run = await play([call("note", "{'text': 'hi',}"), "ok"], tools=[note])

    assert run.outline[3:5] == ["tool_call:note", "tool_result:invalid_arguments"]
    assert run.events_of("tool_call")[0].data["arguments"] == "{'text': 'hi',}"
    assert "repaired" not in run.events_of("tool_result")[0].data


async def test_a_repair_that_does_not_fit_the_schema_is_invalid(play):
    run = await play([call("add", "{'a': 'x',}"), "ok"], tools=[add])

    assert [outcome for _, outcome, _ in run.results] == ["invalid_arguments"]
    assert "repaired" not in run.events_of("tool_result")[0].data


@pytest.mark.promise("C4")
async def test_numbers_in_another_form_are_converted_without_loss_and_marked(play):
    run = await play(
        [[call("add", {"a": "1", "b": 2.0}), call("add", {"a": 1, "b": 2}), call("add", {"a": " 1", "b": 2})], "ok"],
        tools=[add],
    )

    assert [outcome for _, outcome, _ in run.results] == ["ok", "ok", "invalid_arguments"]
    assert ["repaired" in event.data for event in run.events_of("tool_result")] == [True, False, False]
    assert run.results[0][2] == "3"
    assert run.events_of("tool_call")[0].data["arguments"] == {"a": "1", "b": 2.0}, (
        "a client receives the model's own text"
    )
    assert run.session.messages[1].tool_calls[0].arguments == '{"a": "1", "b": 2.0}', "so does the model itself"


@pytest.mark.promise("C4")
async def test_hooks_the_question_and_its_digest_are_about_the_converted_value(play):
    seen = []

    class Watch(AgentHook):
        async def before_tool_call(self, name, arguments, context):
            seen.append(arguments)

        async def after_tool_call(self, name, arguments, result, context):
            seen.append(arguments)

    @tool(risk="write")
    def move(steps: int) -> str:
        """Move."""
        return repr(steps)

    gate = ScriptedGate(True, True)
    script = [call("move", {"steps": "3"}), call("move", {"steps": 3}), "ok"]
    run = await play(script, tools=[move], gate=gate, hooks=HookRegistry([Watch()]))

    assert [request.context["arguments"] for request in gate.requests] == [{"steps": 3}] * 2
    assert gate.requests[0].digest == gate.requests[1].digest
    assert seen == [{"steps": 3}] * 4
    assert [text for *_, text in run.results] == ["3", "3"]
    assert [event.data.get("repaired") for event in run.events_of("tool_result")] == [True, None]


@pytest.mark.parametrize(("gate", "outcome"), [(False, "denied"), (True, "timed_out")])
async def test_the_result_of_a_converted_call_is_marked_whatever_its_outcome(play, gate, outcome):
    @tool(risk="write", timeout=1)
    async def move(steps: int) -> None:
        """Move for ever."""
        await asyncio.Event().wait()

    run = await play([call("move", {"steps": "3"}), "ok"], tools=[move], gate=ScriptedGate(gate))

    assert [(event.data["outcome"], event.data["repaired"]) for event in run.events_of("tool_result")] == [
        (outcome, True)
    ]


async def test_arguments_that_the_user_changed_are_converted_in_the_same_way(play):
    @tool(risk="write")
    def move(steps: int) -> str:
        """Move."""
        return repr(steps)

    gate = ScriptedGate(ConfirmAnswer(approved=True, arguments={"steps": "4"}))
    run = await play([call("move", {"steps": 3}), "ok"], tools=[move], gate=gate)

    ((_, outcome, text),) = run.results
    assert (outcome, text.splitlines()[1:]) == ("ok", ["4"])
    assert run.events_of("tool_result")[0].data["repaired"] is True


async def test_long_arguments_are_parsed_in_a_thread(play):
    threads = []

    @tool(risk="read")
    def size(text: str, n: int) -> int:
        """Measure."""
        return len(text) * n

    class Watched:
        schema, read_only, timeout, assess, run = size.schema, True, None, size.assess, size.run

        def validate(self, arguments):
            threads.append(threading.current_thread())
            return size.validate(arguments)

    calls = [call("size", {"text": "x" * length, "n": 1}) for length in (10, 100_000)]
    run = await play([calls, "ok"], tools=[Watched()])

    assert [text for *_, text in run.results] == ["10", "100000"]
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


async def test_a_stop_while_long_arguments_are_parsed_still_announces_and_answers_the_call(play):
    stop, reading, release = StopSignal(), threading.Event(), threading.Event()

    class Slow:
        schema, read_only, timeout = add.schema, True, None

        def assess(self, arguments, context): ...

        def run(self, arguments, context): ...

        def validate(self, arguments):
            reading.set()
            stop.set()
            release.wait(PATIENCE)

    arguments = {"a": "x" * 100_000}
    run = await play([[call("add", arguments), call("add", {"a": 1})]], tools=[Slow()], stop=stop)
    release.set()

    assert reading.is_set()
    assert run.outline[-5:] == [*["tool_call:add"] * 2, *["tool_result:cancelled"] * 2, "error:stopped"]
    assert [event.data["arguments"] for event in run.events_of("tool_call")] == [arguments, '{"a": 1}']


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2, "b": 3}', '{"a": NaN, "b": 1}', "[1, 2]", "7", '{"a": 1}{"b": 2}'])
async def test_ambiguous_arguments_do_not_parse(play, text):
    run = await play([call("note", text), "ok"], tools=[note])

    assert [outcome for _, outcome, _ in run.results] == ["invalid_arguments"]


async def test_missing_and_repeated_call_ids_are_replaced_by_our_own(play):
    first = [call("add", {"a": 1, "b": 1}, id="x"), call("add", {"a": 1, "b": 2}, id="x"), call("add", "{", id="")]
    run = await play([first, call("add", {"a": 1, "b": 3}, id="x"), "ok"], tools=[add])

    ids = [event.data["tool_call_id"] for event in run.events_of("tool_call")]
    assert ids[0] == "x"
    assert len(set(ids)) == 4
    assert [id_ for id_, *_ in run.results] == ids


async def test_a_blocked_call_tells_the_model_why(play):
    class NoNotes(AgentHook):
        async def before_tool_call(self, name, arguments, context):
            return Block("no notes today") if name == "note" else None

    run = await play(
        [[call("note", {"text": "hi"}), call("add", {"a": 1, "b": 2})], "ok"],
        tools=[add, note],
        hooks=HookRegistry([NoNotes()]),
    )

    assert run.outline[3:7] == ["tool_call:note", "tool_call:add", "tool_result:blocked", "tool_result:ok"]
    assert run.results[0] == ("call_1", "blocked", "Blocked: no notes today")


async def test_a_tools_own_events_come_between_its_call_and_its_result(play):
    @tool(risk="read")
    async def draw(context: ToolContext) -> str:
        """Draw."""
        context.emit("tool_progress", {"output": "drawing"})
        context.emit("artifact", {"path": "a.html", "delta": "<p>", "final": False})
        return "drawn"

    run = await play([call("draw"), "ok"], tools=[draw])

    assert run.outline[3:7] == ["tool_call:draw", "tool_progress", "artifact", "tool_result:ok"]
    artifact = {"path": "a.html", "delta": "<p>", "final": False, "tool_call_id": "call_1"}
    assert run.events_of("artifact")[0].data == artifact
    progress = dict(run.events_of("tool_progress")[0].data)
    assert progress.pop("elapsed_seconds") >= 0
    assert progress == {"tool_call_id": "call_1", "name": "draw", "output": "drawing"}


async def test_a_running_tool_reports_progress_every_two_seconds(play):
    @tool(risk="read")
    async def work(context: ToolContext) -> None:
        """Work."""
        await context.clock.sleep(5)

    run = await play([call("work"), "ok"], tools=[work])

    elapsed = [event.data["elapsed_seconds"] for event in run.events_of("tool_progress")]
    assert len(elapsed) == 2
    assert elapsed == pytest.approx([2, 4])


async def test_a_tool_that_takes_too_long_is_timed_out_and_the_turn_continues(play):
    @tool(risk="read")
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    run = await play(
        [call("forever"), "ok"],
        tools=[forever],
        settings={"tool_timeout_seconds": 1},
    )

    assert run.outline[3:6] == ["tool_call:forever", "stall:tool", "tool_result:timed_out"]
    stall = dict(run.events_of("stall")[0].data)
    assert stall.pop("elapsed_seconds") == pytest.approx(1)
    assert stall == {"phase": "tool", "limit_seconds": 1, "action": "failed"}
    assert run.terminal["text"] == "ok"


async def test_a_tools_own_time_out_overrides_the_setting(play):
    @tool(risk="read", timeout=2)
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    run = await play([call("forever"), "ok"], tools=[forever])

    assert run.results == [("call_1", "timed_out", "forever did not finish within 2 s and was ended.")]


async def test_a_tool_that_times_out_may_return_its_partial_output(play):
    @tool(risk="read", timeout=2)
    async def count() -> ToolOutput | None:
        """Count for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ToolOutput("one, two", truncated=True)

    run = await play([call("count"), "ok"], tools=[count])

    text = "count did not finish within 2 s and was ended.\none, two"
    assert run.results == [("call_1", "timed_out", text)]
    assert run.events_of("tool_result")[0].data["truncated"] is True


async def test_arguments_of_rich_python_types_are_events_as_json(play):
    @tool(risk="write")
    async def plan(day: date, folder: Path) -> str:
        """Plan a day."""
        return f"{day.year} {folder.name}"

    run = await play(
        [call("plan", {"day": "2026-01-02", "folder": "/tmp/x"}), "ok"], tools=[plan], gate=AutoApproveConfirmGate()
    )

    assert run.events_of("tool_call")[0].data["arguments"] == {"day": "2026-01-02", "folder": "/tmp/x"}
    assert run.events_of("confirm_required")[0].data["context"]["arguments"] == {
        "day": "2026-01-02",
        "folder": "/tmp/x",
    }
    assert run.results == [("call_1", "ok", "2026 x")]


async def test_no_call_runs_before_the_consumer_has_received_it(play):
    ran: list[bool] = []

    @tool(risk="read")
    async def look() -> None:
        """Look."""
        ran.append(True)

    turn = play.runtime(ScriptedModel([call("look"), "ok"])).run_turn("go", play.session(), tools=[look])
    async for event in turn:
        if event.type == "tool_call":
            for _ in range(100):  # as long as it likes
                await asyncio.sleep(0)
            assert ran == []

    assert ran == [True]


async def test_a_gap_in_the_call_indexes_of_a_reply_is_a_call_without_a_name(play):
    run = await play([[raw(ToolCallDelta(1, "x", "add", '{"a": 1, "b": 2}')), finish("tool_calls")], "ok"], tools=[add])

    assert run.results == [("x", "ok", "3")]
