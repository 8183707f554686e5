"""Group chats: cancellation, pause and state of their runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from agenticx.teams import (
    AssistantAgent,
    CancellationToken,
    RoundRobinGroupChat,
    SelectorGroupChat,
    TaskResult,
)
from agenticx.testing import ScriptedModel, call, hang, say
from agenticx.tools import tool
from tests.support.jumping_clock import VIRTUAL_TIME
from tests.unit.teams.chat_agents import Saying, Thinking, Waiting, lines

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


async def talk(team: Any, task: Any = None, **options: Any) -> list[str]:
    return lines((await team.run(task=task, **options)).messages)


# --- cancellation -----------------------------------------------------------------------------------------------------


async def cancelled(run: Any, token: CancellationToken) -> None:
    """Cancel and check that the run ends with CancelledError within 200 ms."""
    loop = asyncio.get_running_loop()
    token.cancel()
    before = loop.time()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert loop.time() - before <= 0.2


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_a_cancelled_run_ends_at_once_and_can_be_gone_on_with(depth: int, stubborn: bool) -> None:
    waiting = Waiting("b", "Done.", stubborn=stubborn)
    team = RoundRobinGroupChat([Saying("a"), waiting], max_turns=2, name="t0")
    for level in range(depth):
        team = RoundRobinGroupChat([team], max_turns=1, name=f"t{level + 1}")
    token = CancellationToken()
    run = asyncio.ensure_future(team.run(task="go", cancellation_token=token))
    await waiting.begun.wait()
    await cancelled(run, token)
    assert "b: Done." in await talk(team)


async def test_after_a_cancellation_no_message_comes_out_of_the_stream() -> None:
    token = CancellationToken()
    a = Thinking("a")
    seen: list[str] = []

    async def consume() -> None:
        async for item in RoundRobinGroupChat([a], max_turns=5).run_stream(task="go", cancellation_token=token):
            assert not isinstance(item, TaskResult)
            seen.extend(lines([item]))
            if item.to_text() == "Hm.":
                token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await consume()
    assert seen == ["user: go", "a: Hm."]


async def test_a_cancelled_task_ends_the_run_too() -> None:
    waiting = Waiting("a", "Done.")
    team = RoundRobinGroupChat([waiting], max_turns=1)
    run = asyncio.ensure_future(team.run(task="go"))
    await waiting.begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await talk(team) == ["a: Done."]


async def test_closing_the_stream_early_ends_the_speech_and_frees_the_team() -> None:
    team = RoundRobinGroupChat([Thinking("a")], max_turns=2)
    stream = team.run_stream(task="go")
    async for item in stream:
        if item.source == "a":
            break
    await stream.aclose()
    assert await talk(team) == ["a: Hm.", "a: a here", "a: Hm.", "a: a here"]


async def test_a_stream_that_was_left_by_a_break_does_not_keep_the_team() -> None:
    team = RoundRobinGroupChat([Thinking("a")], max_turns=1)

    async def leave() -> None:
        async for _ in team.run_stream(task="go"):
            break

    await leave()
    assert await talk(team) == ["a: Hm.", "a: a here"]


async def test_a_run_whose_token_is_cancelled_already_does_nothing() -> None:
    a, token = Saying("a"), CancellationToken()
    token.cancel()
    team = RoundRobinGroupChat([a], max_turns=1)
    with pytest.raises(asyncio.CancelledError):
        await team.run(task="go", cancellation_token=token, output_task_messages=False)
    assert a.spoken == 0
    assert await talk(team, "more") == ["user: more", "a: a here"]


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancellation_reaches_model_calls_and_tools_of_an_inner_team(where: str) -> None:
    begun = asyncio.Event()

    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        return await asyncio.get_running_loop().create_future()

    first = call("wait", {}) if where == "tool" else hang()
    with ScriptedModel([first, say("Done.")]) as model:
        inner = RoundRobinGroupChat([AssistantAgent("a", model, tools=[wait])], max_turns=1, name="inner")
        outer = RoundRobinGroupChat([inner], max_turns=1)
        token = CancellationToken()
        run = asyncio.ensure_future(outer.run(task="go", cancellation_token=token))
        while not (begun.is_set() or (where == "model" and model.open_streams)):
            await asyncio.sleep(0)
        await cancelled(run, token)
        assert model.open_streams == 0
        assert await talk(outer) == ["a: Done."]
    assert [message.content for message in model.requests[1].messages].count("go") == 1


async def test_cancellation_reaches_the_choice_of_a_speaker() -> None:
    with ScriptedModel([hang(), say("b")]) as model:
        team = SelectorGroupChat([Saying("a"), Saying("b")], model, max_turns=1)
        token = CancellationToken()
        run = asyncio.ensure_future(team.run(task="go", cancellation_token=token))
        while not model.open_streams:
            await asyncio.sleep(0)
        await cancelled(run, token)
        assert await talk(team) == ["b: b here"]


# --- pause, state -----------------------------------------------------------------------------------------------------


async def test_pause_reaches_the_agents_and_holds_the_next_speech() -> None:
    a, b = Saying("a"), Saying("b")
    team = RoundRobinGroupChat([RoundRobinGroupChat([a], max_turns=1, name="inner"), b], max_turns=2)
    await team.pause()
    run = asyncio.ensure_future(team.run(task="go"))
    await asyncio.sleep(60)
    assert (a.spoken, a.calls, b.calls) == (0, ["pause"], ["pause"])
    await team.resume()
    assert lines((await run).messages) == ["user: go", "a: a here", "b: b here"]
    assert a.calls == b.calls == ["pause", "resume"]


async def test_a_running_team_cannot_be_run_reset_or_loaded() -> None:
    waiting = Waiting("a", "Done.")
    team = RoundRobinGroupChat([waiting], max_turns=1)
    run = asyncio.ensure_future(team.run(task="go"))
    await waiting.begun.wait()
    state = await team.save_state()
    with pytest.raises(ValueError, match="already running"):
        await team.run(task="go")
    with pytest.raises(RuntimeError, match="The team is running"):
        await team.reset()
    with pytest.raises(RuntimeError, match="The team is running"):
        await team.load_state(state)
    run.cancel()
    await asyncio.wait({run})


def nested(*texts: str) -> RoundRobinGroupChat:
    inner = RoundRobinGroupChat([Saying("a", *texts), Saying("b")], max_turns=2, name="inner")
    return RoundRobinGroupChat([inner, Thinking("c")], max_turns=1)


async def test_a_state_of_nested_teams_is_json_and_another_team_goes_on_from_it() -> None:
    team, other = nested("1", "2"), nested("1", "2")
    await team.run(task="go")
    state = json.loads(json.dumps(await team.save_state()))
    await other.load_state(state)
    assert await other.save_state() == state
    for each in (team, other):
        assert await talk(each) == ["c: Hm.", "c: c here"]
        assert await talk(each) == ["a: 2", "b: b here"]


async def test_a_state_saved_during_a_speech_makes_that_speech_again() -> None:
    with ScriptedModel([say("1"), hang(), say("2")]) as model:
        teams = [
            RoundRobinGroupChat([AssistantAgent("a", model), AssistantAgent("b", model)], max_turns=2) for _ in range(2)
        ]
        run = asyncio.ensure_future(teams[0].run(task="go"))
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        state = json.loads(json.dumps(await teams[0].save_state()))
        run.cancel()
        await asyncio.wait({run})
        after = await teams[0].save_state()
        await teams[1].load_state(state)
        assert await teams[1].save_state() == state
        async for item in teams[1].run_stream():
            assert lines([item]) == ["b: 2"]
            break
    assert [m.content for m in model.requests[2].messages if m.role == "user"][:2] == ["go", "a said:\n1"]
    assert after["transcript"] == state["transcript"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "Swarm"}, "the state is of 'Swarm'"),
        ({"version": 7}, "version 7"),
        ({"participants": {"x": {}}}, r"participants \['x'\]"),
        ({"transcript": {}}, "cannot be read"),
    ],
)
async def test_a_state_of_another_team_is_refused(change: Mapping[str, Any], problem: str) -> None:
    team = RoundRobinGroupChat([Saying("a")], max_turns=1)
    with pytest.raises(ValueError, match=problem):
        await team.load_state({**await team.save_state(), **change})


def two(*texts: str) -> RoundRobinGroupChat:
    agents = [AssistantAgent(name, ScriptedModel([say(text) for text in texts])) for name in ("b", "a")]
    return RoundRobinGroupChat(agents, max_turns=2)


async def test_a_state_may_come_back_with_its_keys_in_another_order() -> None:
    team, other = two("1"), two("1")
    await team.run(task="go")
    state = json.loads(json.dumps(await team.save_state(), sort_keys=True))
    await other.load_state(state)
    assert await other.save_state() == state


def changed(state: Any, path: str, value: Any) -> Any:
    """Return a copy of the state with another value at a path such as `transcript.speaker`."""
    copy = json.loads(json.dumps(state))
    *above, last = path.split(".")
    target = copy
    for key in above:
        target = target[key]
    target[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *[("version", True), ("version", "1"), ("participants", None), ("participants", []), ("participants.a", None)],
        *[("transcript", None), ("transcript", []), ("transcript.entries", [1]), ("transcript.speaker", "zz")],
        *[("transcript.seen", {"b": "x"}), ("transcript.seen", {"zz": 1}), ("transcript.unfinished", 3)],
        *[("participants.a.version", 9), ("participants.a.messages", "abc"), ("participants.a.version", True)],
    ],
)
async def test_a_state_that_cannot_be_loaded_changes_nothing(path: str, value: Any) -> None:
    team, other = two("1"), two("1")
    await team.run(task="go")
    state, before = await team.save_state(), await other.save_state()
    damaged: Any
    for damaged in (changed(state, path, value), 3):
        with pytest.raises(ValueError, match="state"):
            await other.load_state(damaged)
        assert await other.save_state() == before


async def test_a_participant_that_cannot_load_its_state_is_a_value_error() -> None:
    team = RoundRobinGroupChat([Saying("a"), Saying("b")], max_turns=1)
    state = changed(await team.save_state(), "participants.b", {})
    with pytest.raises(ValueError, match="participant 'b'") as caught:
        await team.load_state(state)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_paused_team_that_is_reset_runs() -> None:
    team = RoundRobinGroupChat([Saying("a")], max_turns=1)
    await team.pause()
    await team.reset()
    assert await talk(team, "go") == ["user: go", "a: a here"]


async def test_a_team_whose_stream_was_left_can_be_reset_and_loaded() -> None:
    team = RoundRobinGroupChat([Thinking("a")], max_turns=1)
    state = await team.save_state()

    async def leave() -> None:
        async for _ in team.run_stream(task="go"):
            break

    await leave()
    await team.reset()
    await leave()
    await team.load_state(state)
    assert await talk(team, "go") == ["user: go", "a: Hm.", "a: a here"]
