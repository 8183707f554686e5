"""Sub-agents: their start, limits and tools, and the delivery of their endings."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.errors import InvalidArguments, StoreError, ToolError, UserCodeError
from agenticx.runtime import AgentRuntime, Budget, RuntimeEvent, Session, StopSignal
from agenticx.settings import load_settings
from agenticx.subagents import ModelUnavailable, SubagentRun
from agenticx.subagents.host import MemoryHost
from agenticx.teams import AgentTeamManager, SubagentLimits
from agenticx.testing import ScriptedGate, ScriptedModel, call, check_grammar, hang, pause, say, usage
from agenticx.tools import tool
from tests.support.endings import ending_text, told_endings
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    """Return an event loop whose time passes only while a turn waits."""
    return VIRTUAL_TIME


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(risk="read")
def look_at(number: int) -> str:
    """Look at one."""
    return f"seen {number}"


@tool(risk="execute")
def act() -> str:
    """Act."""
    return "done"


class Team:
    """A main agent with sub-agents: `script` are the replies of the main agent, `workers` those of one model each."""

    def __init__(self, home: Path, workers: Sequence[Sequence[Any]], *, gate: Any = None, **options: Any) -> None:
        self.clock = LoopClock()
        self.settings = load_settings({}, environ={"AGX_HOME": str(home)})
        self.gate = ScriptedGate() if gate is None else gate
        self.session = Session(workspace=home)
        self.models = [ScriptedModel(script, clock=self.clock) for script in workers]
        self._unused = list(self.models)

        @tool(risk="read", timeout=5)
        async def wait_briefly() -> None:
            """Wait for sub-agents, until the call times out."""
            await self.manager.wait()

        self.wait_briefly = wait_briefly
        self.manager = AgentTeamManager(
            lambda _: self.runtime(self._unused.pop(0)),
            session=self.session,
            settings=self.settings,
            clock=self.clock,
            **options,
        )

    def runtime(self, model: Any) -> AgentRuntime:
        return AgentRuntime(model, self.gate, settings=self.settings, clock=self.clock)

    async def run(self, script: Sequence[Any], stop: Any = None, on: Callable[[RuntimeEvent], object] | None = None):
        """Run a turn of the main agent and return its events and its model."""
        model = ScriptedModel(script, clock=self.clock)
        events: list[RuntimeEvent] = []
        tools = [*self.manager.meta_tools(), look, look_at, act, self.wait_briefly]
        async for event in self.runtime(model).run_turn("go", self.session, stop, tools=tools):
            events.append(event)
            if on is not None:
                on(event)
        check_grammar([event for event in events if event.turn_id == events[0].turn_id])
        model.assert_done()
        return events, model


def spawn(task: str = "work", **options: Any) -> Any:
    return call("spawn_subagent", {"task": task, **options})


def results(events: Sequence[RuntimeEvent]) -> list[tuple[str, str]]:
    """Return the outcome and the text of each result of the main agent."""
    return [(e.data["outcome"], e.data["result"]) for e in events if e.type == "tool_result" and e.agent_id == "meta"]


def notices(session: Session) -> list[str]:
    return [message.content for message in session.messages if isinstance(message, UserMessage) and message.injected]


async def test_a_result_is_delivered_between_two_rounds_of_the_parent(tmp_path: Path) -> None:
    team = Team(tmp_path, [["The log is empty."]])
    events, model = await team.run([spawn("Read the log", name="reader"), call("wait_subagents"), "It is empty."])

    assert json.loads(results(events)[0][1]) == {"agent_id": "reader-1"}
    (waited,) = json.loads(results(events)[1][1])
    assert (waited["agent_id"], waited["state"]) == ("reader-1", "completed")
    assert notices(team.session) == [ending_text("reader-1 completed", "The log is empty.")]
    assert model.requests[-1].messages[-1].content == ending_text("reader-1 completed", "The log is empty.")
    assert team.models[0].requests[0].messages[-1].content == "Read the log"
    own = [(e.type, e.data["parent_agent_id"], e.data["depth"]) for e in events if e.type.startswith("subagent_")]
    assert own == [("subagent_started", "meta", 1), ("subagent_completed", "meta", 1)]
    child = [event for event in events if event.agent_id == "reader-1" and event.turn_id != events[0].turn_id]
    assert child[0].data["parent_turn_id"] == events[0].turn_id
    check_grammar(child)


async def test_several_endings_are_one_message(tmp_path: Path) -> None:
    team = Team(tmp_path, [["one"], ["two"], [hang()]], limits=SubagentLimits(seconds=30))
    await team.run([[spawn(name="a"), spawn(name="b"), spawn(name="c")], call("wait_subagents"), "done"])

    (notice,) = notices(team.session)
    assert sorted(notice.split("\n\n")) == [
        ending_text("a-1 completed", "one"),
        ending_text("b-2 completed", "two"),
        ending_text("c-3 failed: timeout.turn", "the turn exceeded its time limit"),
    ]


async def test_what_ends_with_the_parent_is_delivered_at_the_start_of_its_next_turn(tmp_path: Path) -> None:
    team = Team(tmp_path, [[hang()]])
    await team.run([spawn(), "I do not wait."])
    assert notices(team.session) == []
    _, model = await team.run(["I see."])

    assert notices(team.session) == [ending_text("agent-1 failed: stopped", "the turn was stopped")]
    assert [message.role for message in model.requests[0].messages[-2:]] == ["user", "user"]
    await team.run(["Nothing new."])
    assert len(notices(team.session)) == 1


async def test_a_stop_of_the_parent_stops_its_subagents_also_queued_ones(tmp_path: Path) -> None:
    team = Team(tmp_path, [[hang()], ["never"]], limits=SubagentLimits(running=1))
    stop = StopSignal()
    asyncio.get_running_loop().call_later(5, stop.set)
    events, _ = await team.run([[spawn(name="a"), spawn(name="b")], call("wait_subagents")], stop)

    assert events[-1].data["code"] == "stopped"
    await asyncio.sleep(1)
    assert {status["agent_id"]: status["code"] for status in team.manager.list()} == {
        "a-1": "stopped",
        "b-2": "stopped",
    }
    assert team.models[1].requests == []


async def test_a_paused_subagent_goes_on_with_a_message(tmp_path: Path) -> None:
    team = Team(tmp_path, [[call("look_at", {"number": number}) for number in range(10)], [say("It rains.")]])
    first = [spawn(name="scout"), call("wait_subagents")]
    second = [call("message_subagent", {"agent_id": "scout-1", "text": "Only the weather!"}), call("wait_subagents")]
    await team.run([*first, *second, "done"])

    paused, completed = notices(team.session)
    assert told_endings(paused) == ["scout-1 paused; a message resumes it"]
    assert "\nIt used its 10 rounds." in paused
    assert completed == ending_text("scout-1 completed", "It rains.")
    texts = [message.content for message in team.models[1].requests[0].messages]
    assert texts[0] == "work"
    assert texts[-1] == "Only the weather!"


async def test_a_message_reaches_a_subagent_at_work(tmp_path: Path) -> None:
    team = Team(tmp_path, [[[pause(5), call("look")], "Understood."]])
    message = call("message_subagent", {"agent_id": "agent-1", "text": "In French!"})
    await team.run([spawn(), [pause(1), message], call("wait_subagents"), "done"])

    assert team.models[0].requests[1].messages[-1].content == "In French!"


async def test_a_retry_begins_with_an_empty_conversation(tmp_path: Path) -> None:
    team = Team(tmp_path, [["bad"], ["good"]])
    retry = call("retry_subagent", {"agent_id": "agent-1"})
    await team.run([spawn("Guess."), call("wait_subagents"), retry, call("wait_subagents"), "done"])

    assert [text.split("\n")[1] for text in notices(team.session)] == ["bad", "good"]
    assert [message.content for message in team.models[1].requests[0].messages] == ["Guess."]


async def test_a_cancelled_subagent_ends_as_stopped(tmp_path: Path) -> None:
    team = Team(tmp_path, [[hang()]])
    cancel = call("cancel_subagent", {"agent_id": "agent-1"})
    await team.run([spawn(), [pause(1), cancel], call("wait_subagents"), "done"])

    assert notices(team.session) == [ending_text("agent-1 failed: stopped", "the turn was stopped")]


async def test_a_subagent_has_tools_of_its_parent_only(tmp_path: Path) -> None:
    team = Team(tmp_path, [[call("look"), "ok"]])
    events, _ = await team.run(
        [
            [spawn(tools=[]), spawn(tools=["delete_everything"]), spawn(tools=["look"])],
            call("wait_subagents"),
            "done",
        ]
    )

    (none, _), (unknown, text), (ok, _) = results(events)[:3]
    assert (none, unknown, ok) == ("invalid_arguments", "invalid_arguments", "ok")
    assert "unknown tools delete_everything; those that can be given are: spawn_subagent, " in text
    assert [schema.name for schema in team.models[0].requests[0].tools] == ["look"]


async def test_a_subagent_asks_the_gate_of_its_parent(tmp_path: Path) -> None:
    gate = ScriptedGate(False)
    team = Team(tmp_path, [[call("act"), "not allowed"]], gate=gate)
    await team.run([spawn(name="doer"), call("wait_subagents"), "done"])

    (request,) = gate.requests
    assert (request.agent_id, request.agent_path) == ("doer-1", ("meta", "doer-1"))
    assert notices(team.session) == [ending_text("doer-1 completed", "not allowed")]


async def test_waiting_for_a_person_counts_in_no_time_limit(tmp_path: Path) -> None:
    class SlowGate(ScriptedGate):
        async def ask(self, request: Any, announce: Callable[[], None]) -> Any:
            announce()
            await asyncio.sleep(300)
            return await super().ask(request, announce)

    inner = [spawn("act", name="leaf"), call("wait_subagents"), "mid done"]
    team = Team(tmp_path, [inner, [call("act"), "leaf done"]], gate=SlowGate(True), limits=SubagentLimits(seconds=20))
    await team.run([spawn(name="mid"), call("wait_subagents"), "done"])

    assert notices(team.session) == [ending_text("mid-1 completed", "mid done")]


async def test_subagents_that_wait_for_their_own_leave_their_place(tmp_path: Path) -> None:
    mid = [spawn("go", name="leaf"), call("wait_subagents"), "mid done"]
    team = Team(tmp_path, [mid, ["leaf done"]], limits=SubagentLimits(running=1))
    events, _ = await team.run([spawn(name="mid"), call("wait_subagents"), "done"])

    assert notices(team.session) == [ending_text("mid-1 completed", "mid done")]
    depths = {e.agent_id: (e.data["parent_agent_id"], e.data["depth"]) for e in events if e.type == "subagent_started"}
    assert depths == {"mid-1": ("meta", 1), "leaf-2": ("mid-1", 2)}
    assert team.models[0].requests[2].messages[-1].content == ending_text("leaf-2 completed", "leaf done")


async def test_the_ending_of_an_orphan_is_delivered_above(tmp_path: Path) -> None:
    team = Team(tmp_path, [[spawn("go", name="leaf"), "mid does not wait"], [hang()]])
    await team.run([spawn(name="mid"), call("wait_subagents"), "done"])
    await team.run(["next"])

    told = "\n\n".join(notices(team.session))
    assert ending_text("mid-1 completed", "mid does not wait") in told
    assert told_endings(told) == ["leaf-2 failed: stopped", "mid-1 completed"]


async def test_limits_of_depth_and_number_are_results_of_the_call(tmp_path: Path) -> None:
    team = Team(tmp_path, [[spawn("deeper"), "no"], [hang()], [hang()]], limits=SubagentLimits(depth=1, children=2))
    events, _ = await team.run([spawn(), call("wait_subagents"), [spawn(), spawn(), spawn()], "done"])

    assert team.models[0].requests[1].messages[-1].content == "sub-agents may be 1 deep; do the work yourself"
    outcome, text = results(events)[4]
    assert (outcome, text) == ("error", "queue_full: 2 sub-agents have not ended; wait for one of them")


async def test_one_turn_starts_a_limited_number_of_runs_also_through_others(tmp_path: Path) -> None:
    wait, retry = call("wait_subagents"), call("retry_subagent", {"agent_id": "mid-1"})
    mid = [spawn("go", name="leaf"), wait, "mid done"]
    team = Team(tmp_path, [mid, ["leaf done"], ["next done"]], limits=SubagentLimits(total=2))
    events, _ = await team.run([spawn(name="mid"), wait, spawn(), retry, "done"])

    text = "this turn of the main agent has started 2 sub-agents, the most that it may; work with what they found"
    assert results(events)[2:] == [("error", f"queue_full: {text}")] * 2
    events, _ = await team.run([spawn(name="next"), wait, "done"])
    assert [outcome for outcome, _ in results(events)] == ["ok", "ok"]


async def test_a_wait_ends_at_its_time_limit_also_while_no_place_is_free(tmp_path: Path) -> None:
    cancel = call("cancel_subagent", {"agent_id": "leaf-2"})
    mid = [spawn("go", name="leaf"), call("wait_subagents", {"timeout": 5}), cancel, "mid done"]
    team = Team(tmp_path, [mid, [hang()]], limits=SubagentLimits(running=1))
    await team.run([spawn(name="mid"), call("wait_subagents"), "done"])

    (waited,) = json.loads(team.models[0].requests[2].messages[-1].content)
    assert (waited["agent_id"], waited["state"]) == ("leaf-2", "running")
    assert ending_text("mid-1 completed", "mid done") in notices(team.session)[0]


async def test_waiting_for_none_keeps_the_place_to_work(tmp_path: Path) -> None:
    waiting = [[call("wait_subagents")] * 3, "a done"]
    team = Team(tmp_path, [waiting, ["b done"]], limits=SubagentLimits(running=1))
    events, _ = await team.run([[spawn(name="a"), spawn(name="b")], call("wait_subagents"), "done"])

    ends = [event.agent_id for event in events if event.type == "subagent_completed"]
    assert ends == ["a-1", "b-2"]


async def test_an_agent_whose_wait_was_cut_off_works_in_a_place(tmp_path: Path) -> None:
    cancel = call("cancel_subagent", {"agent_id": "leaf-2"})
    mid = [spawn("go", name="leaf"), call("wait_briefly"), [pause(9), cancel], [pause(9), call("look")], "mid done"]
    team = Team(tmp_path, [mid, [hang()], ["next done"]], limits=SubagentLimits(running=1))
    script = [spawn(name="mid"), [pause(8), spawn(name="next")], call("wait_subagents"), "done"]
    events, _ = await team.run(script)

    ends = [event.agent_id for event in events if event.type in ("subagent_completed", "subagent_error")]
    assert ends == ["leaf-2", "mid-1", "next-3"]


async def test_status_queries_are_few_and_the_turn_goes_on(tmp_path: Path) -> None:
    team = Team(tmp_path, [[hang()]])
    query = call("query_subagent_status")
    script = [spawn(), query, query, [pause(8), query], [pause(8), query], "done"]
    events, _ = await team.run(script)

    outcomes = [outcome for outcome, _ in results(events)[1:]]
    assert outcomes == ["ok", "blocked", "ok", "blocked"]
    assert "wait_subagents waits without asking" in results(events)[2][1]
    assert events[-1].type == "final"
    events, _ = await team.run([query, "done"])
    assert results(events)[0][0] == "ok"


async def test_a_budget_ends_a_subagent_and_the_parent_goes_on(tmp_path: Path) -> None:
    budget = Budget(tokens=2_000)
    greedy = [[call("look"), usage(900, 100)]] * 2
    team = Team(tmp_path, [greedy], budget=budget)
    events, _ = await team.run([spawn(name="greedy"), call("wait_subagents"), call("check_resources"), "what there is"])

    (notice,) = notices(team.session)
    assert told_endings(notice) == ["greedy-1 failed: budget_exceeded"]
    assert "\nthe budget of 2000 tokens is exceeded" in notice
    assert json.loads(results(events)[2][1])["tokens_used"] == 2_000
    assert events[-1].type == "final"


async def test_agents_of_others_cannot_be_addressed(tmp_path: Path) -> None:
    meddling = [call("cancel_subagent", {"agent_id": "a-1"}), "I cannot"]
    team = Team(tmp_path, [["a is done"], meddling], limits=SubagentLimits(running=1))
    await team.run([[spawn(name="a"), spawn(name="b")], call("wait_subagents"), "done"])

    assert team.models[1].requests[1].messages[-1].content == "there is no sub-agent 'a-1'; known: none"


async def test_closing_ends_all_and_lets_none_begin(tmp_path: Path) -> None:
    team = Team(tmp_path, [[hang()]])
    agent_id = await team.manager.spawn("work")
    await asyncio.sleep(1)
    await team.manager.aclose()

    assert team.manager.status(agent_id)["code"] == "stopped"
    with pytest.raises(ToolError, match="no sub-agent can be started any more"):
        await team.manager.spawn("work")


async def test_outside_of_a_turn_tools_are_chosen_from_those_of_the_runtime(tmp_path: Path) -> None:
    model, settings = ScriptedModel(["done"]), load_settings({}, environ={"AGX_HOME": str(tmp_path)})
    runtime = AgentRuntime(model, ScriptedGate(), tools=[look, act], settings=settings)
    manager = AgentTeamManager(runtime, session=Session(workspace=tmp_path), settings=settings)
    with pytest.raises(InvalidArguments, match="unknown tools other; those that can be given are: look, act"):
        await manager.spawn("work", tools=["look", "other"])
    with pytest.raises(InvalidArguments, match="tools must name at least one; those that can be given are: look, act"):
        await manager.spawn("work", tools=[])
    await manager.wait([await manager.spawn("work", tools=["look"])])
    assert [tool.name for tool in model.requests[0].tools] == ["look"]


async def test_outside_of_a_turn_there_are_no_tools_to_choose_from_without_those_of_a_runtime(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="unknown tools look; those that can be given are: none"):
        await Team(tmp_path, [["never"]]).manager.spawn("work", tools=["look"])


async def test_a_text_in_the_place_of_ids_and_a_model_that_cannot_be_chosen_are_refused(tmp_path: Path) -> None:
    team = Team(tmp_path, [])
    with pytest.raises(TypeError, match="ids must be a list of ids, not the text 'a-1'"):
        await team.manager.wait("a-1")
    manager = AgentTeamManager(team.runtime(ScriptedModel([])), session=team.session, settings=team.settings)
    with pytest.raises(ModelUnavailable, match="the model 'x' cannot be chosen: all sub-agents have the same one"):
        await manager.spawn("work", model="x")


async def test_an_agent_that_could_not_begin_again_is_as_it_was(tmp_path: Path) -> None:
    class Full(MemoryHost):
        is_full = False

        async def record_run(self, run: SubagentRun, started: RuntimeEvent, taken: Sequence[str], /) -> None:
            if self.is_full:
                raise StoreError("disk full")

    host, team = Full(), Team(tmp_path, [])
    manager = AgentTeamManager(
        team.runtime(ScriptedModel(["one", "two"])), session=team.session, settings=team.settings, host=host
    )
    agent_id = await manager.spawn("work")
    await manager.wait([agent_id])
    before, host.is_full = manager.status(agent_id), True
    for begin_again in (manager.message(agent_id, "again"), manager.retry(agent_id)):
        with pytest.raises(StoreError, match="disk full"):
            await begin_again
        assert manager.status(agent_id) == before
    host.is_full = False
    await manager.message(agent_id, "and now?")
    await manager.wait([agent_id])
    assert manager.status(agent_id)["rounds"] == 2


async def test_a_retry_begins_with_the_context_of_the_task_too(tmp_path: Path) -> None:
    team, model = Team(tmp_path, []), ScriptedModel(["one", "two", "three"])
    manager = AgentTeamManager(team.runtime(model), session=team.session, settings=team.settings)
    agent_id = await manager.spawn("Read the log", context="It is in logs/.")
    for begin_again in (lambda: manager.message(agent_id, "And?"), lambda: manager.retry(agent_id)):
        await manager.wait([agent_id])
        assert manager.status(agent_id)["task"] == "Read the log"
        await begin_again()
    await manager.wait([agent_id])
    first = "It is in logs/.\n\nRead the log"
    asked = [[m.content for m in each.messages if isinstance(m, UserMessage)] for each in model.requests]
    assert asked == [[first], [first, "And?"], [first]]


def test_limits_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="running must be above 0, not 0"):
        SubagentLimits(running=0)


async def test_no_order_of_endings_loses_one(tmp_path: Path, rng: random.Random, count: Callable[..., int]) -> None:
    for _ in range(count(5, 50, 1_000)):
        number = rng.randint(1, 6)
        replies = [rng.choice([["ok"], [[pause(rng.random()), "late"]], [hang()]]) for _ in range(number)]
        limits = SubagentLimits(seconds=2, running=rng.randint(1, 4))
        team = Team(tmp_path, replies, limits=limits)
        calls = [spawn(name=f"w{index}") for index in range(number)]
        script = [calls, *rng.choice([[], [call("wait_subagents", {"mode": "any"})], [call("wait_subagents")]]), "done"]
        await team.run(script)
        await asyncio.sleep(3)
        await team.run(["and now"])

        told = "\n".join(notices(team.session))
        for index in range(number):
            assert told.count(f"[sub-agent w{index}-{index + 1} ") == 1


async def test_arguments_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    manager = Team(tmp_path, []).manager
    for task in ("", " \n", "x" * 200_001):
        with pytest.raises(InvalidArguments, match="task must"):
            await manager.spawn(task)
    with pytest.raises(InvalidArguments, match="mode must be 'any' or 'all', not 'most'"):
        await manager.wait(mode="most")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="timeout must be 0 or more seconds, not -1"):
        await manager.wait(timeout=-1)


async def test_a_function_for_runtimes_that_fails_leaves_no_subagent(tmp_path: Path) -> None:
    manager = AgentTeamManager(dict[str | None, AgentRuntime]().__getitem__, session=Session(workspace=tmp_path))
    with pytest.raises(UserCodeError, match="runtime_for raised KeyError"):
        await manager.spawn("Read the log")
    assert manager.list() == []
