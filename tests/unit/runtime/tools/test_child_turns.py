"""Child turns: their events, stops, questions and modes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from agenticx import AgenticXError
from agenticx.llms import ScriptedModel
from agenticx.runtime import Event, RuntimeEvent, Session, TurnContext, TurnError, current_turn
from agenticx.runtime.channel import Channel
from agenticx.runtime.child_turns import ChannelChildTurns
from agenticx.testing import ScriptedGate, call, check_grammar, hang, outline, say
from agenticx.tools import tool
from tests.support.jumping_clock import LoopClock
from tests.support.turn_player import Player

pytestmark = pytest.mark.anyio


def runner(play: Player, name: str, script: Sequence[Any], tools: Sequence[Any] = (), **options: Any) -> Any:
    """Return a tool `ask_NAME` that has the agent `name` answer below the turn that calls it."""
    model = ScriptedModel(script, clock=LoopClock())

    @tool(name=f"ask_{name}", risk="read", parallel=True)
    async def ask(question: str = "go") -> str:
        """Ask another agent."""
        runtime = play.runtime(model, tools=tools)
        session = options.get("session") or play.session()
        context = TurnContext(parent=current_turn(), permission_mode=options.get("mode"))
        return (await runtime.run(question, session, agent_id=name, context=context)).text

    return ask


def by_turn(events: Sequence[RuntimeEvent]) -> dict[str, list[RuntimeEvent]]:
    """Return the events of each turn by the name of the agent that begins it."""
    names = {event.turn_id: event.agent_id for event in events if event.type == "turn_started"}
    return {name: [event for event in events if event.turn_id == id_] for id_, name in names.items()}


async def test_the_events_of_a_child_come_out_of_the_generator_of_its_parent(play: Player) -> None:
    run = await play(
        [call("ask_reader", {"question": "why?"}), "It is so."], tools=[runner(play, "reader", ["Because."])]
    )
    turns = by_turn(run.events)
    assert run.outline == [
        *("turn_started", "round_start", "tool_call_delta", "tool_call:ask_reader"),
        *("turn_started", "round_start", "token", "final:answer"),
        *("tool_result:ok", "round_start", "token", "final:answer"),
    ]
    assert {event.agent_id for event in turns["reader"]} == {"reader"}
    started, (root,) = turns["reader"][0].data, {event.turn_id for event in turns["meta"]}
    assert (started["input"], started["parent_turn_id"]) == ("why?", root)
    assert "parent_turn_id" not in turns["meta"][0].data
    assert [message.content for message in run.session.messages] == ["go", "", "Because.", "It is so."]
    assert run.events[-1].turn_id == root


async def test_children_run_beside_each_other_at_any_depth_each_in_order(play: Player) -> None:
    leaf = runner(play, "leaf", [say("one two three")])
    tools = [runner(play, "a", [call("ask_leaf"), "done a"], [leaf]), runner(play, "b", [say("x y z"), "unused"][:1])]
    run = await play([[call("ask_a"), call("ask_b")], "ok"], tools=tools)
    turns = by_turn(run.events)
    assert {name: events[-1].data["text"] for name, events in turns.items()} == {
        "meta": "ok", "a": "done a", "b": "x y z", "leaf": "one two three"
    }  # fmt: skip
    assert turns["leaf"][0].data["parent_turn_id"] == turns["a"][0].turn_id
    for name in ("a", "b", "leaf"):
        check_grammar(turns[name])
        assert outline(turns[name])[-1] == "final"


async def test_usage_stands_in_the_turn_that_spent_it(play: Player) -> None:
    run = await play([call("ask_reader"), "done"], tools=[runner(play, "reader", ["A long answer"])])
    turns = by_turn(run.events)
    assert {name: sum(e.type == "usage" for e in events) for name, events in turns.items()} == {"meta": 2, "reader": 1}
    for events in turns.values():
        used = [event.data["output_tokens"] for event in events if event.type == "usage"]
        assert events[-1].data["usage"]["output_tokens"] == (None if used[0] is None else sum(used))


async def test_a_stop_ends_all_turns_below_within_200_ms(play: Player) -> None:
    leaf = runner(play, "leaf", [hang()])
    tools = [runner(play, "a", [call("ask_leaf")], [leaf]), runner(play, "b", [hang()])]
    stopping = asyncio.Event()
    loop, stopped_at, ended_at = asyncio.get_running_loop(), list[float](), dict[str, float]()

    def on(event: RuntimeEvent) -> None:
        if event.type == "round_start" and event.agent_id == "leaf":
            loop.call_later(0.5, lambda: (stopped_at.append(loop.time()), stopping.set()))
        if event.terminal:
            ended_at[event.agent_id] = loop.time()

    run = await play([[call("ask_a"), call("ask_b")]], tools=tools, stop=stopping.is_set, on=on)
    turns = by_turn(run.events)
    assert {name: events[-1].data["code"] for name, events in turns.items()} == dict.fromkeys(turns, "stopped")
    assert len(turns) == 4
    assert run.events[-1].agent_id == "meta"
    assert max(ended_at.values()) - stopped_at[0] < 0.2
    assert [outcome for _, outcome, _ in run.results] == ["cancelled"] * 3


async def test_a_child_asks_the_gate_of_its_parent_and_says_by_which_agents(play: Player) -> None:
    @tool(risk="execute")
    def post(text: str) -> str:
        """Post a text."""
        return f"posted {text}"

    leaf = runner(play, "leaf", [call("post", {"text": "a"}), "sent"], [post])
    gate = ScriptedGate(True, False)
    script = [[call("ask_mid"), call("post", {"text": "b"})], "done"]
    run = await play(script, tools=[runner(play, "mid", [call("ask_leaf"), "ok"], [leaf]), post], gate=gate)
    asked = [(request.agent_id, request.agent_path, request.session_id) for request in gate.requests]
    assert asked == [("leaf", ("meta", "mid", "leaf"), run.session.id), ("meta", (), run.session.id)]
    first, second = run.events_of("confirm_required")
    assert (first.agent_id, first.data["agent_path"]) == ("leaf", ["meta", "mid", "leaf"])
    assert "agent_path" not in second.data
    assert [event.agent_id for event in run.events_of("confirm_response")] == ["leaf", "meta"]


async def test_several_questions_are_open_at_once_and_each_answer_reaches_its_call(play: Player) -> None:
    from agenticx.runtime import AsyncConfirmGate

    ran: list[str] = []

    @tool(risk="execute")
    def post(text: str) -> str:
        """Post a text."""
        ran.append(text)
        return "posted"

    gate = AsyncConfirmGate()
    tools = [runner(play, name, [call("post", {"text": name}), f"{name} ends"], [post]) for name in ("a", "b")]

    def on(event: RuntimeEvent) -> None:
        if event.type == "confirm_required" and len(pending := gate.pending()) == 2:
            for request in reversed(pending):
                gate.resolve(request.id, request.agent_id == "b", digest=request.digest)

    run = await play([[call("ask_a"), call("ask_b")], "ok"], tools=tools, gate=gate, on=on)
    assert ran == ["b"]
    assert {(event.agent_id, event.data["outcome"]) for event in run.events_of("tool_result")} == {
        ("a", "denied"), ("b", "ok"), ("meta", "ok")
    }  # fmt: skip


async def test_a_child_has_no_mode_that_permits_more_than_its_parents(play: Player) -> None:
    @tool(risk="write")
    def note(text: str) -> str:
        """Note a text."""
        return "noted"

    child = runner(play, "child", [call("note", {"text": "x"}), "ok"], [note], mode="auto")
    session = play.session(permission_mode="plan")
    run = await play([call("ask_child"), "done"], tools=[child], session=session)
    denied = next(event for event in run.events_of("tool_result") if event.agent_id == "child")
    assert denied.data["outcome"] == "denied"


async def test_a_child_that_still_runs_is_stopped_before_the_terminal_event_of_its_parent(play: Player) -> None:
    started: list[asyncio.Task[Any]] = []

    @tool(risk="read")
    async def begin() -> str:
        """Begin another agent's work."""
        runtime, context = play.runtime(ScriptedModel([hang()], clock=LoopClock())), TurnContext(parent=current_turn())
        begun = asyncio.Event()

        async def work() -> None:
            with suppress(TurnError):
                async for _ in runtime.run_turn("go", play.session(), agent_id="late", context=context):
                    begun.set()

        started.append(asyncio.create_task(work()))
        await begun.wait()
        return "begun"

    run = await play([call("begin"), "done"], tools=[begin])
    await started[0]
    assert [(event.agent_id, event.type) for event in run.events if event.terminal] == [
        ("late", "error"), ("meta", "final")
    ]  # fmt: skip


async def test_no_turn_begins_below_one_that_has_ended_or_with_the_name_of_the_main_agent(play: Player) -> None:
    parents: list[Any] = []

    @tool(risk="read")
    async def look() -> str:
        """Look."""
        parents.append(current_turn())
        return "seen"

    await play([call("look"), "done"], tools=[look])
    runtime, context = play.runtime(ScriptedModel([])), TurnContext(parent=parents[0])
    with pytest.raises(AgenticXError, match="has ended"):
        await runtime.run("go", Session(), agent_id="late", context=context)
    with pytest.raises(ValueError, match="an agent_id of its own"):
        await runtime.run("go", Session(), context=context)
    assert current_turn() is None


@pytest.mark.parametrize("place", range(1, 12))
async def test_a_generator_that_is_closed_early_ends_the_turns_below_it(play: Player, place: int) -> None:
    leaf = runner(play, "leaf", [say("one two three")])
    before = asyncio.all_tasks()
    runtime = play.runtime(ScriptedModel([call("ask_a"), "ok"], clock=LoopClock()))
    turn = runtime.run_turn("go", play.session(), tools=[runner(play, "a", [call("ask_leaf"), "done"], [leaf])])
    for _ in range(place):
        await anext(turn)
    began = asyncio.get_running_loop().time()
    await turn.aclose()
    assert asyncio.get_running_loop().time() - began < 0.2
    assert asyncio.all_tasks() == before


async def test_work_takes_the_place_of_model_calls(play: Player) -> None:
    async def work(turn: Any) -> str:
        result = await play.runtime(ScriptedModel(["four"], clock=LoopClock())).run(
            "2 + 2?", agent_id="counter", context=TurnContext(parent=turn)
        )
        return f"It is {result.text}."

    run = await play([], context=TurnContext(work=work))
    assert run.outline == [
        *("turn_started", "turn_started", "round_start", "token", "final:answer", "token", "final:answer")
    ]
    assert run.rows == [("user", "go"), ("assistant", "It is four.")]


async def test_a_turn_that_outlives_its_parent_can_begin_below_one_that_is_over(play: Player) -> None:
    written: list[str] = []

    class DurableTurns(ChannelChildTurns):
        @property
        def is_durable(self) -> bool:
            return True

        async def write(self, events: Sequence[Event], /) -> None:
            written.extend(event.type for event in events if event.type != "state")

    @tool(risk="execute")
    def post(text: str) -> str:
        """Post a text."""
        return f"posted {text}"

    gate, turns = ScriptedGate(True), DurableTurns(Channel())
    model = ScriptedModel([call("post", {"text": "a"}), "sent"], clock=LoopClock())
    runtime = play.runtime(model, gate=gate, tools=[post])
    above = runtime.ended_turn(
        play.session(),
        agent_path=("meta", "mid"),
        context=TurnContext(turn_id="turn_1", child_turns=turns),
    )
    late = TurnContext(parent=above, detached=True)
    result = await runtime.run("go", play.session(permission_mode="auto"), agent_id="late", context=late)
    assert (result.text, result.events[0].data["parent_turn_id"]) == ("sent", "turn_1")
    assert (written[0], written[-1]) == ("turn_started", "final")
    assert [request.agent_path for request in gate.requests] == [("meta", "mid", "late")]
    with pytest.raises(AgenticXError, match="turn 'turn_1' of 'mid' has ended, so no child turn can begin in it"):
        await runtime.run("go", agent_id="soon", context=TurnContext(parent=above))
